"""Describe a prepared data set: `dataset.json`, and `SHA256SUMS` over its files, which `sha256sum -c` can read.

Each launch that uses the set also compares its files with SHA256SUMS. See `scenarios/data`.
"""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import kit
from kit.datasets.files import sha256
from kit.model.errors import CorruptDataError
from kit.storage.files import files_below, write_atomic
from scenarios.contract import checksums

FILE = "dataset.json"


@dataclass(frozen=True)
class Manifest:
    """The description of a prepared data set.

    source: where the files came from, in words. digest: SHA-256 of SHA256SUMS, so it covers names and content of all
    files. files, bytes: their number and total size. prepared_by: version of this package.
    """

    name: str
    source: str
    digest: str
    files: int
    bytes: int
    prepared_by: str


def write(folder: Path, name: str, source: str) -> Manifest:
    """Write the description of all files in `folder` into `folder`, and return it."""
    paths = _content(folder)
    sums = checksums.to_text({path.relative_to(folder).as_posix(): sha256(path) for path in paths})
    digest = hashlib.sha256(sums.encode()).hexdigest()
    size = sum(path.stat().st_size for path in paths)
    manifest = Manifest(name, source, digest, len(paths), size, kit.__version__)
    write_atomic(folder / checksums.FILE, sums)
    write_atomic(folder / FILE, json.dumps(asdict(manifest), indent=1) + "\n")
    return manifest


def read(folder: Path) -> Manifest | None:
    """Return the description in `folder`, or None if the data set is missing.

    Raise CorruptDataError if number or total size of the files has changed, or SHA256SUMS itself. `verify` and each
    launch check the content of the files. Raise OSError if the folder cannot be read.
    """
    if not (folder / FILE).exists():
        return None
    try:
        manifest = Manifest(**json.loads((folder / FILE).read_text(encoding="utf-8")))
    except (ValueError, TypeError, RecursionError) as error:
        raise _damaged(folder, f"{FILE} is not readable ({error})") from error
    if [type(value) for value in vars(manifest).values()] != [str, str, str, int, int, str]:
        raise _damaged(folder, f"{FILE} does not describe a data set")
    paths = _content(folder)
    size = sum(path.stat().st_size for path in paths)
    if (len(paths), size) != (manifest.files, manifest.bytes):
        raise _damaged(
            folder,
            f"it has {len(paths):,} files with {size:,} bytes instead of {manifest.files:,} files with "
            f"{manifest.bytes:,} bytes",
        )
    _read_sums(folder, manifest)
    return manifest


def verify(folder: Path) -> None:
    """Hash every file again. Raise CorruptDataError, which names the first file that has changed."""
    manifest = read(folder)
    assert manifest is not None
    for name, expected in _read_sums(folder, manifest).items():
        if not (folder / name).is_file():
            raise _damaged(folder, f"{name} is missing")
        if sha256(folder / name) != expected:
            raise _damaged(folder, f"the content of {name} has changed")


def _read_sums(folder: Path, manifest: Manifest) -> dict[str, str]:
    """Return SHA-256 (hex) of all files by name. Raise CorruptDataError, or OSError if the file cannot be read."""
    try:
        content = (folder / checksums.FILE).read_bytes()
        sums = checksums.from_text(content.decode())
    except (FileNotFoundError, ValueError) as error:
        raise _damaged(folder, f"{checksums.FILE} is not readable ({error})") from error
    if hashlib.sha256(content).hexdigest() != manifest.digest:
        raise _damaged(folder, f"{checksums.FILE} does not have the digest that {FILE} states")
    return sums


def _content(folder: Path) -> list[Path]:
    return [path for path in files_below(folder) if path.name not in (FILE, checksums.FILE)]


def _damaged(folder: Path, what: str) -> CorruptDataError:
    name = folder.name
    return CorruptDataError(
        f"The prepared data set {name} is damaged: {what}.",
        f"Remove {folder}, then run `kit data fetch {name}` or `kit data add {name} PATH`.",
    )
