"""Keep and read the pictures of augmented photos. The name of a file is the digest of its content.

A report embeds these files unread, so only what has the digest that a record names is kept or read.
"""

import hashlib
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from kit.storage.files import write_atomic
from kit.storage.kept_files import is_plain
from kit.storage.safe_read import read_untrusted
from scenarios.contract.augmented import AUGMENTED_FILE, MAX_PICTURE_BYTES, AugmentedPicture

JPEG = b"\xff\xd8\xff"  # the start of a JPEG file


def keep_picture(scratch: Path, picture: AugmentedPicture, folder: Path) -> None:
    """Copy the picture that a worker left to `folder`. Launches that made the same one share a file.

    Raise ValueError if it is not the file that the result names, and OSError.
    """
    write_atomic(folder / picture.file, _read(scratch / AUGMENTED_FILE, picture))


def read_pictures(folder: Path, pictures: Iterable[AugmentedPicture]) -> dict[str, bytes]:
    """Return the content of these pictures by digest, without those that are missing, unreadable or not what they
    should be. folder: of a run, which may come from a stranger."""
    found: dict[str, bytes] = {}
    for picture in dict.fromkeys(pictures):
        with suppress(OSError, ValueError):
            found[picture.digest] = _read(folder / picture.file, picture)
    return found


def _read(path: Path, picture: AugmentedPicture) -> bytes:
    if not is_plain(path):
        raise ValueError(f"{path.name} is missing or not a plain file")
    content = read_untrusted(path, MAX_PICTURE_BYTES)
    if content is None or not content.startswith(JPEG):
        raise ValueError(f"{path.name} is not a JPEG file")
    if hashlib.sha256(content).hexdigest() != picture.digest:
        raise ValueError(f"{path.name} does not have the digest of its record")
    return content
