"""A launch's output on disk: written as it comes, and never enough to fill it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from kit.model.errors import DiskError

CUT = b"[earlier output was cut off here]\n"


def copy_output(chunks: Iterable[bytes], path: Path, limit: int) -> None:
    """Write chunks to a new file until there are no more; of more than `limit` bytes keep the newest, at least half
    of the limit. Raises DiskError where they cannot be written."""
    try:
        with path.open("w+b") as file:
            for chunk in chunks:
                file.write(chunk)
                if file.tell() > limit:
                    file.seek(-(limit // 2), 2)
                    newest = file.read()
                    file.seek(0)
                    file.truncate()
                    file.write(CUT + newest)
                file.flush()
    except OSError as error:
        raise DiskError(f"The log {path} cannot be written: {error}", "Free some space, then continue.") from error
