"""Small things about files that every step needs: hashing, what a full disk means, replacing a folder at once."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kit.model.errors import DiskError

NO_ROOM = {errno.ENOSPC, errno.EDQUOT}
NO_ACCESS = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR}
NO_FOLDER = {errno.EEXIST, errno.ENOENT, errno.ELOOP}  # a file or dead link in its place, or nowhere to make it
ELSEWHERE = "Free some space there, or let KIT_DATA_DIR name a folder elsewhere that you may write."


def sha256(path: Path) -> str:
    """SHA-256 (hex) of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Turn a full or forbidden disk, met while writing below `folder`, into DiskError."""
    try:
        yield
    except OSError as error:
        if error.errno in NO_ROOM:
            raise DiskError(f"No room left on the disk of {folder}.", ELSEWHERE) from error
        where = Path(error.filename or os.devnull)
        at_or_above = folder.is_relative_to(where)
        if (error.errno in NO_ACCESS and (where.is_relative_to(folder) or at_or_above)) or (
            error.errno in NO_FOLDER and at_or_above
        ):
            raise DiskError(f"{error.filename} cannot be written.", ELSEWHERE) from error
        raise


def need_room(folder: Path, size: int) -> None:
    """Raise DiskError where fewer than `size` bytes are free for `folder`."""
    free = shutil.disk_usage(folder).free
    if free < size:
        raise DiskError(
            f"{size / 1e6:,.0f} MB are needed in {folder} and {free / 1e6:,.0f} MB are free.",
            ELSEWHERE,
        )


def make_temporary(folder: Path) -> Path:
    """An empty folder at this very place; what an interrupted process left there is removed. The caller holds the
    data set's lock, so nobody else uses it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def replace_folder(new: Path, target: Path, aside: Path) -> None:
    """Put `new` where `target` is, readable for all: a container may run as another user. The old one goes to
    `aside` first: a crash in between leaves none, never a mix."""
    shutil.rmtree(aside, ignore_errors=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    for path in (target.parent, new, *new.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    if target.exists():
        target.replace(aside)
    new.replace(target)
    shutil.rmtree(aside, ignore_errors=True)
