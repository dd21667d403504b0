"""Describe the error that stops a command."""

import os
import sys
import traceback

from kit.cli.console import wrap
from kit.host import program
from kit.host.paths import cache_folder
from kit.model.errors import KitError
from kit.model.formatting import printable
from kit.storage.files import as_disk_error


def describe(error: Exception) -> tuple[str, int]:
    """Return the text for stderr and the exit code.

    A full disk or a forbidden folder is a disk error. For an unexpected error, the text names the file with the
    traceback. The traceback itself comes first if KIT_DEBUG is set or no file can be written.
    """
    known = as_disk_error(error) if isinstance(error, OSError) else error
    if not isinstance(known, KitError):
        return _explain(error), 1
    text = program.in_messages("\n".join([str(known), *getattr(error, "__notes__", ())]))
    return wrap(printable(f"{text}\n"), sys.stderr), known.exit_code  # it may quote a record or a file name


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
