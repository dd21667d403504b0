"""Reading files that others made: any may have been replaced by a link, a pipe or something endless."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

PLAIN_LIMIT = 256 << 20  # above every document of kit


def read_plain(path: Path) -> bytes:
    """The content of a file that a person named, by a link perhaps. Raises OSError where it cannot be read, also where
    it is no plain file, a pipe would never end, or larger than PLAIN_LIMIT bytes."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "not a plain file")
    with path.open("rb") as file:
        content = file.read(PLAIN_LIMIT + 1)
    if len(content) > PLAIN_LIMIT:
        raise OSError(errno.EFBIG, f"larger than {PLAIN_LIMIT >> 20} MiB")
    return content


def read_untrusted(path: Path, limit: int) -> bytes | None:
    """The content of a plain file; None where there is none. Links are not followed.

    Raises ValueError where it is not a plain file or larger than `limit` bytes; OSError where it cannot be read.
    """
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            raise ValueError(f"{path.name} is not a plain file")
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    with open(descriptor, "rb") as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise ValueError(f"{path.name} is larger than {limit} bytes")
    return content
