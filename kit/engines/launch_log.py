"""Write a launch's output to disk as it arrives, and limit its size."""

from collections.abc import Iterable
from pathlib import Path

from kit.storage.files import disk_errors

CUT = b"[earlier output was cut off here]\n"


def copy_output(chunks: Iterable[bytes], path: Path, limit: int) -> None:
    """Write all chunks to a new file. If they exceed `limit` bytes, keep the newest output, at least half of the limit.

    Raise DiskError if they cannot be written.
    """
    with disk_errors(path), path.open("w+b") as file:
        for chunk in chunks:
            file.write(chunk)
            if file.tell() > limit:
                file.seek(-(limit // 2), 2)
                newest = file.read()
                file.seek(0)
                file.truncate()
                file.write(CUT + newest)
            file.flush()
