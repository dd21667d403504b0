"""Describe the error that stops a command."""

import os
import sys
import traceback

from kit.cli.console import wrap
from kit.host.paths import cache_folder
from kit.model.errors import DiskError, KitError
from kit.model.formatting import printable
from kit.storage.files import DISK_FAULTS


def describe(error: Exception) -> tuple[str, int]:
    """Return the text for stderr and the exit code.

    A full disk or a forbidden folder is a disk error. For an unexpected error, the text names the file with the
    traceback. The traceback itself comes first if KIT_DEBUG is set or no file can be written.
    """
    if isinstance(error, KitError):
        return wrap(printable(f"{error}\n"), sys.stderr), error.exit_code  # it may quote a record or a file name
    if isinstance(error, OSError) and error.errno in DISK_FAULTS:
        what = f"{error.filename} cannot be used" if error.filename else "The output cannot be written"
        remedy = "Free disk space, or use a folder that you may read and write."
        return f"{what}: {error.strerror}.\n{remedy}\n", DiskError.exit_code
    return _explain(error), 1


def _explain(error: Exception) -> str:
    trace = "".join(traceback.format_exception(error))
    summary = f"kit failed with an unexpected error: {type(error).__name__}: {error}\n"
    if os.environ.get("KIT_DEBUG"):
        return trace + summary
    log = cache_folder() / "logs" / "crash.log"
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(trace, encoding="utf-8")
    except OSError:  # the disk may be full
        return trace + summary
    return f"{summary}Please report this error with the traceback in {log}.\n"
