"""Check that the files of a prepared data set are those that were prepared."""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from scenarios.contract import checksums
from scenarios.data.errors import DataCorrupt


def hash_files(folder: Path, paths: Iterable[Path]) -> dict[str, str]:
    """Return SHA-256 (hex) of files by their names relative to `folder`. Raise DataCorrupt if one cannot be read."""
    digests = {}
    for path in paths:
        name = path.relative_to(folder).as_posix()
        try:
            digests[name] = hashlib.sha256(path.read_bytes()).hexdigest()
        except OSError as error:
            raise _damaged(folder, f"{name} cannot be read ({error.strerror})") from error
    return digests


def require_prepared(folder: Path, digests: Mapping[str, str]) -> None:
    """Compare all files of a set with SHA256SUMS in `folder`.

    Raise DataCorrupt, which names the first file that has changed, is missing, or was not prepared.
    """
    try:
        prepared = checksums.from_text((folder / checksums.FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _damaged(folder, f"{checksums.FILE} cannot be read ({error})") from error
    for name in sorted(prepared.keys() | digests.keys()):
        if prepared.get(name) != digests.get(name):
            raise _damaged(folder, f"{name} is not the file that was prepared")


def _damaged(folder: Path, what: str) -> DataCorrupt:
    name = folder.name
    return DataCorrupt(
        f"The prepared data set {name} is damaged: {what}.",
        f"Run `kit data verify {name}`. It names the folder to remove before `kit data fetch {name}` or "
        f"`kit data add {name} PATH`.",
    )
