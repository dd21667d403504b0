"""Hash files, check free space, and replace whole folders."""

import hashlib
import shutil
from pathlib import Path

from kit.model.errors import DiskError


def sha256(path: Path) -> str:
    """Return the SHA-256 (hex) of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def require_space(folder: Path, size: int) -> None:
    """Raise DiskError if the disk of `folder` has less than `size` bytes free."""
    free = shutil.disk_usage(folder).free
    if free < size:
        raise DiskError(
            f"{folder} needs {size / 1e6:,.0f} MB of free disk space, but only {free / 1e6:,.0f} MB are free.",
            "Free disk space, or set KIT_DATA_DIR to a folder on another disk.",
        )


def make_temporary(folder: Path) -> Path:
    """Make an empty folder, and delete what an interrupted process left in its place. The caller holds the lock of the
    data set, so no other process uses the folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def replace_folder(new: Path, target: Path, aside: Path) -> None:
    """Replace `target` with `new`. Make it readable for all users, because a container may run as another user.

    The old folder is moved to `aside` first. After a crash in between there is no `target`, but never a mix of both.
    """
    shutil.rmtree(aside, ignore_errors=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    for path in (target.parent, new, *new.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    if target.exists():
        target.replace(aside)
    new.replace(target)
    shutil.rmtree(aside, ignore_errors=True)
