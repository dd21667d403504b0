"""Write files atomically, and turn write errors into errors that the user understands."""

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kit.model.errors import DiskError

TEMPORARY_SUFFIX = ".new"
NO_SPACE = {errno.ENOSPC, errno.EDQUOT}
NO_SPACE_TEXT = re.compile(r"no space left on device|disk quota exceeded", re.IGNORECASE)  # in programs' messages
# os.link fails with these errors on file systems without hard links (exFAT, some network and shared folders).
NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


def write_atomic(path: Path, content: str | bytes, *, overwrite: bool = True) -> None:
    """Write a whole file, or nothing. Text is encoded as UTF-8.

    The content first goes to a temporary file in the same folder. File and folder are synced, so that the file
    survives a power cut. Raise FileExistsError if the file exists and `overwrite` is False. Raise OSError, which names
    `path`, if the file cannot be written.
    """
    temporary = path.with_name(f"{path.name}.{os.getpid()}{TEMPORARY_SUFFIX}")
    try:
        with open(temporary, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        if overwrite:
            temporary.replace(path)
        else:
            _rename_new(temporary, path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        error.filename = str(path)  # not the temporary file, which means nothing to the user
        raise
    finally:
        with suppress(OSError):
            temporary.unlink()


def _rename_new(temporary: Path, path: Path) -> None:
    """Give the file its name without overwriting. A hard link does so atomically."""
    try:
        os.link(temporary, path)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        if path.exists():  # not atomic with the next line, but only one process writes here
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from error
        temporary.rename(path)


@contextmanager
def disk_errors(
    path: Path,
    remedy: str = "Choose another folder with --out. Existing results are kept.",
    *,
    reads_elsewhere: bool = False,
) -> Iterator[None]:
    """Turn an OSError from writing at or below `path` into a DiskError that names the file and the cause.

    remedy: sentences for the user. If the disk is full, the advice to free space precedes them. reads_elsewhere: the
    block also reads files outside `path`. Their errors then pass unchanged, and so do errors that name no file, unless
    the disk is full.
    """
    try:
        yield
    except OSError as error:
        full = error.errno in NO_SPACE
        if reads_elsewhere and not full and not _concerns(error, path):
            raise
        if full:
            remedy = f"Free disk space, or {remedy[0].lower()}{remedy[1:]}"
        raise DiskError(f"{error.filename or path} cannot be written: {error.strerror or error}.", remedy) from error


def _concerns(error: OSError, path: Path) -> bool:
    """Return whether the error names `path`, a file below it, or a folder above it."""
    named = Path(error.filename or os.devnull)
    return named.is_relative_to(path) or path.is_relative_to(named)
