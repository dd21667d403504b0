"""What a person is told of an error that nobody foresaw."""

from __future__ import annotations

import errno
import os
import traceback

from kit.host.paths import cache_folder

DISK = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.ENOTDIR, errno.ENAMETOOLONG}


def blame_disk(error: OSError) -> str:
    """Two lines for a full disk or a forbidden folder, wherever it was met; empty where it is nothing of the kind."""
    if error.errno not in DISK:
        return ""
    what = f"{error.filename} cannot be used" if error.filename else "The output cannot be written"
    return f"{what}: {error.strerror}.\nFree disk space, or name a folder that you may read and write.\n"


def explain(error: Exception) -> str:
    """One line, and where the traceback is: a file, or below with KIT_DEBUG=1 and where no file can be written."""
    trace = "".join(traceback.format_exception(error))
    summary = f"kit failed in a way that it should not: {type(error).__name__}: {error}\n"
    if os.environ.get("KIT_DEBUG"):
        return trace + summary
    log = cache_folder() / "logs" / "crash.log"
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(trace, encoding="utf-8")
    except OSError:  # a full disk may be the very thing that failed
        return trace + summary
    return f"{summary}The traceback is in {log}; please report it.\n"
