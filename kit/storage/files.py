"""Write files atomically, and turn write errors into errors that the user understands."""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kit.model.errors import DiskError, UsageError
from kit.model.formatting import format_bytes
from scenarios.contract import disk

TEMPORARY_SUFFIX = ".new"
# A disk that is full, read-only or broken, or a path that this user cannot use.
DISK_FAULTS = {
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.ENAMETOOLONG),
    *(errno.ENOSPC, errno.EDQUOT, errno.EIO),
}
# os.link fails with these errors on file systems without hard links (exFAT, some network and shared folders).
NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


def write_atomic(path: Path, content: str | bytes, *, overwrite: bool = True, mode: int = 0o666) -> None:
    """Write a whole file, or nothing. Text is encoded as UTF-8. mode: permissions, which the umask reduces.

    The content first goes to a temporary file in the same folder. File and folder are synced, so that the file
    survives a power cut. Raise FileExistsError if the file exists and `overwrite` is False. Raise OSError, which names
    `path`, if the file cannot be written.
    """
    temporary = path.with_name(f"{path.name}.{os.getpid()}{TEMPORARY_SUFFIX}")
    try:
        temporary.unlink(missing_ok=True)
        # O_EXCL: a folder from a stranger may have a link of this name, through which another file would be written.
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        if overwrite:
            temporary.replace(path)
        else:
            _rename_new(temporary, path)
        sync_folder(path.parent)
    except OSError as error:
        error.filename = str(path)  # not the temporary file, which means nothing to the user
        raise
    finally:
        with suppress(OSError):
            temporary.unlink()


def sync_folder(folder: Path) -> None:
    """Make the names of files in a folder survive a power cut. Raise OSError."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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


def files_below(folder: Path) -> list[Path]:
    """Return all files below a folder, sorted. Raise OSError if a folder cannot be read."""
    found = (Path(top, name) for top, _, names in walk(folder) for name in names)
    return sorted(path for path in found if path.is_file())


def walk(folder: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """Walk like `os.walk`, but raise OSError if a folder cannot be read. `Path.rglob` would silently skip it, too."""

    def fail(error: OSError) -> None:
        raise error

    return os.walk(folder, onerror=fail)


def require_space(folder: Path, size: int, what: str, remedy: str) -> None:
    """Raise DiskError if the disk of `folder`, which may not exist yet, has less than `size` bytes free.

    what: what needs them, for example `a launch`. remedy: as in `disk_errors`.
    """
    place = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    free = shutil.disk_usage(place).free
    if free < size:
        raise DiskError(
            f"The disk of {folder} has {format_bytes(free)} of free space, but {what} needs {format_bytes(size)}.",
            _free_space_or(remedy),
        )


@contextmanager
def disk_errors(path: Path, remedy: str = "", *, did: str = "written") -> Iterator[None]:
    """Turn an OSError from writing at or below `path` into a DiskError that names the file and the cause.

    remedy: sentences for the user that name another way. If the disk is full, the advice to free space precedes them.
    did: "read" for files that are only read.
    """
    try:
        yield
    except OSError as error:
        if error.errno in disk.NO_SPACE:
            remedy = _free_space_or(remedy)
        raise DiskError(
            f"{error.filename or path} cannot be {did}: {error.strerror or error}.",
            remedy or "Check its permissions and its disk.",
        ) from error


def require_folder(target: Path, remedy: str) -> None:
    """Raise UsageError if the folder of a file that will be written does not exist, and DiskError."""
    with disk_errors(target, remedy):
        exists = target.parent.is_dir()
    if not exists:
        raise UsageError(f"There is no folder {target.parent}.", remedy)


def _free_space_or(remedy: str) -> str:
    return f"Free disk space, or {remedy[0].lower()}{remedy[1:]}" if remedy else "Free disk space."


@contextmanager
def disk_faults(then: str) -> Iterator[None]:
    """Turn an OSError about a fault of a disk into a DiskError. End the remedy of every DiskError with `then`."""
    try:
        yield
    except (DiskError, OSError) as error:
        fault = error if isinstance(error, DiskError) else as_disk_error(error)
        if fault is None:
            raise
        raise DiskError(fault.message, f"{fault.remedy} {then}").with_notes_of(error) from error


def as_disk_error(error: OSError) -> DiskError | None:
    """Return the error for the user if an OSError is a fault of a disk."""
    if error.errno not in DISK_FAULTS:
        return None
    remedy = "Free disk space." if error.errno in disk.NO_SPACE else "Check the permissions and the disk."
    return DiskError(f"{error.filename or 'A file that kit needs'} cannot be used: {error.strerror}.", remedy)
