"""Read files that others made. Such a file may have been replaced by a link, a pipe or an endless device."""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

MAX_PLAIN_BYTES = 64 << 20  # larger than every document that kit writes


def read_plain(path: Path) -> bytes:
    """Return the content of a file that the user named, directly or through a link. Raise OSError if it cannot be read,
    if it is not a plain file (a pipe might never end), or if it is larger than MAX_PLAIN_BYTES."""
    state = path.stat()
    if not stat.S_ISREG(state.st_mode):
        raise OSError(errno.EINVAL, "not a plain file")
    with path.open("rb") as file:
        content = _read(file, MAX_PLAIN_BYTES)
    if len(content) > MAX_PLAIN_BYTES:
        raise OSError(errno.EFBIG, f"larger than {MAX_PLAIN_BYTES >> 20} MiB")
    return content


def read_untrusted(path: Path, limit: int) -> bytes | None:
    """Return the content of a plain file, or None if there is no such file. Do not follow links.

    Raise ValueError if it is not a plain file or is larger than `limit` bytes. Raise OSError if it cannot be read.
    """
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            raise ValueError(f"{path.name} is not a plain file")
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    with open(descriptor, "rb") as file:
        content = _read(file, limit)
    if len(content) > limit:
        raise ValueError(f"{path.name} is larger than {limit} bytes")
    return content


def _read(file: BinaryIO, limit: int) -> bytes:
    """Return the content of a file, or its first `limit` + 1 bytes."""
    size = os.fstat(file.fileno()).st_size
    content = file.read(min(size, limit) + 1)  # `read` allocates as many bytes at once
    return content + file.read(limit + 1 - len(content)) if len(content) > size else content
