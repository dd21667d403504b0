"""What a prepared set is: `dataset.json`, and `SHA256SUMS` over its files (which `sha256sum -c` reads)."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, astuple, dataclass
from pathlib import Path

import kit
from kit.datasets.files import sha256
from kit.model.errors import CorruptDataError

FILE = "dataset.json"
SUMS = "SHA256SUMS"


@dataclass(frozen=True)
class Manifest:
    """digest: SHA-256 of SHA256SUMS, so over names and content of all files. files, bytes: how many, how large.
    source: where they came from, in words. prepared_by: version of this package."""

    name: str
    source: str
    digest: str
    files: int
    bytes: int
    prepared_by: str


def write(folder: Path, name: str, source: str) -> Manifest:
    """Describe the files in `folder`, in it."""
    paths = _content(folder)
    lines = [f"{sha256(path)}  {path.relative_to(folder).as_posix()}\n" for path in paths]
    text = "".join(lines)
    digest = hashlib.sha256(text.encode()).hexdigest()
    size = sum(path.stat().st_size for path in paths)
    manifest = Manifest(name, source, digest, len(paths), size, kit.__version__)
    (folder / SUMS).write_text(text, encoding="utf-8")
    (folder / FILE).write_text(json.dumps(asdict(manifest), indent=1) + "\n", encoding="utf-8")
    return manifest


def read(folder: Path) -> Manifest | None:
    """The description in `folder`, None where there is none. Raises DataError where files came, went or changed
    in size since; content is looked at by `verify` alone."""
    if not (folder / FILE).exists():
        return None
    try:
        manifest = Manifest(**json.loads((folder / FILE).read_text(encoding="utf-8")))
    except (ValueError, TypeError, OSError) as error:
        raise _broken(folder, f"{FILE} is not readable ({error})") from error
    if [type(value) for value in astuple(manifest)] != [str, str, str, int, int, str]:
        raise _broken(folder, f"{FILE} does not describe a data set")
    paths = _content(folder)
    size = sum(path.stat().st_size for path in paths)
    if (len(paths), size) != (manifest.files, manifest.bytes):
        raise _broken(
            folder,
            f"there are {len(paths):,} files of {size:,} bytes in all, prepared were {manifest.files:,} of "
            f"{manifest.bytes:,}",
        )
    return manifest


def verify(folder: Path) -> None:
    """Hash every file again. Raises DataError that names the first that differs."""
    manifest = read(folder)
    assert manifest is not None
    try:
        text = (folder / SUMS).read_text(encoding="utf-8")
    except (ValueError, OSError) as error:
        raise _broken(folder, f"{SUMS} is not readable ({error})") from error
    if hashlib.sha256(text.encode()).hexdigest() != manifest.digest:
        raise _broken(folder, f"{SUMS} is not the one that {FILE} names")
    for line in text.splitlines():
        expected, name = line.split("  ", 1)
        if not (folder / name).is_file():
            raise _broken(folder, f"{name} is gone")
        if sha256(folder / name) != expected:
            raise _broken(folder, f"the content of {name} has changed")


def _content(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*") if p.is_file() and p.name not in (FILE, SUMS))


def _broken(folder: Path, what: str) -> CorruptDataError:
    return CorruptDataError(
        f"The prepared data set {folder.name} is damaged: {what}.",
        f"Remove {folder}, then get it anew with `kit data fetch {folder.name}` or `kit data add {folder.name} PATH`.",
    )
