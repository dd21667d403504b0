"""Find, name and hash files, check free space, and replace whole folders."""

import hashlib
import re
import shutil
from pathlib import Path, PurePosixPath

from kit.storage.files import walk

MAX_NAME = 200  # characters; most file systems allow 255 bytes, and callers append a suffix


def portable_name(name: str) -> str:
    """Return a name that every file system can store: printable ASCII, of at most MAX_NAME characters.

    Other names are shortened, with `_` for each other character and a hash of the original name, so that different
    names stay different. The extension is kept.
    """
    if name.isascii() and name.isprintable() and len(name) <= MAX_NAME:
        return name
    path = PurePosixPath(name)
    stem, extension = (re.sub("[^ -~]", "_", part)[:90] for part in (path.stem, path.suffix))
    hashed = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{stem}-{hashed}{extension}"


def sha256(path: Path) -> str:
    """Return the SHA-256 (hex) of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def replace_folder(new: Path, target: Path, aside: Path) -> None:
    """Replace `target` with `new`. Make it readable for all users, because a container may run as another user.

    The old folder is moved to `aside` first, and back if the new one cannot take its place. After a crash in between
    there is no `target`, but never a mix of both.
    """
    shutil.rmtree(aside, ignore_errors=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.parent.chmod(0o755)
    for top, _, names in walk(new):
        Path(top).chmod(0o755)
        for name in names:
            Path(top, name).chmod(0o644)
    if target.exists():
        target.replace(aside)
    try:
        new.replace(target)
    except BaseException:
        if aside.exists():
            aside.replace(target)
        raise
    shutil.rmtree(aside, ignore_errors=True)
