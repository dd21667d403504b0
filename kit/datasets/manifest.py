"""Describe a prepared data set: `dataset.json`, and `SHA256SUMS` over its files, which `sha256sum -c` can read."""

import hashlib
import json
from dataclasses import asdict, astuple, dataclass
from pathlib import Path

import kit
from kit.datasets.files import sha256
from kit.model.errors import CorruptDataError
from kit.storage.files import write_atomic

FILE = "dataset.json"
SUMS = "SHA256SUMS"


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
    sums = "".join(f"{sha256(path)}  {path.relative_to(folder).as_posix()}\n" for path in paths)
    digest = hashlib.sha256(sums.encode()).hexdigest()
    size = sum(path.stat().st_size for path in paths)
    manifest = Manifest(name, source, digest, len(paths), size, kit.__version__)
    write_atomic(folder / SUMS, sums)
    write_atomic(folder / FILE, json.dumps(asdict(manifest), indent=1) + "\n")
    return manifest


def read(folder: Path) -> Manifest | None:
    """Return the description in `folder`, or None if the data set is missing.

    Raise CorruptDataError if number or total size of the files has changed. Only `verify` checks their content.
    """
    if not (folder / FILE).exists():
        return None
    try:
        manifest = Manifest(**json.loads((folder / FILE).read_text(encoding="utf-8")))
    except (ValueError, TypeError, OSError) as error:
        raise _damaged(folder, f"{FILE} is not readable ({error})") from error
    if [type(value) for value in astuple(manifest)] != [str, str, str, int, int, str]:
        raise _damaged(folder, f"{FILE} does not describe a data set")
    paths = _content(folder)
    size = sum(path.stat().st_size for path in paths)
    if (len(paths), size) != (manifest.files, manifest.bytes):
        raise _damaged(
            folder,
            f"it has {len(paths):,} files with {size:,} bytes instead of {manifest.files:,} files with "
            f"{manifest.bytes:,} bytes",
        )
    return manifest


def verify(folder: Path) -> None:
    """Hash every file again. Raise CorruptDataError, which names the first file that has changed."""
    manifest = read(folder)
    assert manifest is not None
    try:
        sums = (folder / SUMS).read_text(encoding="utf-8")
    except (ValueError, OSError) as error:
        raise _damaged(folder, f"{SUMS} is not readable ({error})") from error
    if hashlib.sha256(sums.encode()).hexdigest() != manifest.digest:
        raise _damaged(folder, f"{SUMS} does not have the digest that {FILE} states")
    for line in sums.splitlines():
        expected, name = line.split("  ", 1)
        if not (folder / name).is_file():
            raise _damaged(folder, f"{name} is missing")
        if sha256(folder / name) != expected:
            raise _damaged(folder, f"the content of {name} has changed")


def _content(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*") if p.is_file() and p.name not in (FILE, SUMS))


def _damaged(folder: Path, what: str) -> CorruptDataError:
    name = folder.name
    return CorruptDataError(
        f"The prepared data set {name} is damaged: {what}.",
        f"Remove {folder}, then run `kit data fetch {name}` or `kit data add {name} PATH`.",
    )
