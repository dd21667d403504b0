"""Data sets on the host: fetched, brought, verified, handed to workers.

The data folder, `KIT_DATA_DIR` or the user's cache, holds `archives/<data set>/` as downloaded and
`sets/<data set>/` as workers read them, each with its `dataset.json`. Everything appears there whole or not at all;
a lock for each data set keeps processes apart.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import filelock

from kit.datasets import manifest
from kit.datasets.download import copy, download
from kit.datasets.files import disk_errors, make_temporary, need_room, replace_folder, sha256
from kit.datasets.manifest import Manifest
from kit.datasets.prepare import prepare
from kit.datasets.registry import SOURCES, RemoteFile
from kit.host.paths import cache_folder, named_folder
from kit.model.errors import DataError, UsageError, unknown
from kit.model.progress import Progress
from scenarios.spec import DATASETS

Mode = Literal["auto", "real", "synthetic"]
PUBLISHED = "published files, checked by SHA-256"
PROVIDED = "user-provided"


@dataclass(frozen=True)
class Budget:
    """What may be spent on one data set's download, in bytes and seconds."""

    bytes: int
    seconds: float


AUTO_BUDGET = Budget(250_000_000, 180.0)


@dataclass(frozen=True)
class Source:
    """What a launch works on. folder: the one with all prepared sets, to be handed to workers; None for synthetic.
    note: where the data came from, or why it is synthetic and how to get the real set."""

    kind: Literal["real", "synthetic"]
    folder: Path | None
    note: str


@dataclass(frozen=True)
class Status:
    """prepared: None where the set is not here. download_bytes: of the published files in all."""

    name: str
    title: str
    folder: Path
    prepared: Manifest | None
    download_bytes: int


def data_dir() -> Path:
    """`KIT_DATA_DIR`, else `data` in the user's cache."""
    chosen = named_folder("KIT_DATA_DIR")
    return chosen.absolute() if chosen else cache_folder() / "data"


def sets_dir() -> Path:
    """The folder of the prepared sets: what workers get as their data folder."""
    return data_dir() / "sets"


def status(name: str) -> Status:
    """What is here of a data set. Raises UsageError (no such), DataError (damaged)."""
    _require(name)
    folder = sets_dir() / name
    size = sum(file.size for file in SOURCES[name])
    return Status(name, DATASETS[name].title, folder, manifest.read(folder), size)


def resolve(name: str, mode: Mode, progress: Progress) -> Source:
    """Decide what launches work on, downloading where that is needed and, for `auto`, within AUTO_BUDGET.

    `auto` falls back to the synthetic set, and the note says why. Raises UsageError; DataError where a set that is
    here is damaged or, for `real`, cannot be had; DiskError.
    """
    _require(name)
    title = DATASETS[name].title
    if mode == "synthetic":
        return Source("synthetic", None, f"{title}: synthetic, as asked for")
    prepared = status(name).prepared
    if prepared is None:
        try:
            prepared = fetch(name, progress, AUTO_BUDGET if mode == "auto" else None)
        except DataError as error:
            if mode == "real":
                raise
            real = f"`kit data fetch {name}` gets the real set, `kit data add {name} PATH` takes one from this machine."
            note = f"{title}: synthetic. {error.message} {real}"
            return Source("synthetic", None, note)
    return Source("real", sets_dir(), f"{title}: {prepared.source}, content digest {prepared.digest}")


def fetch(name: str, progress: Progress, budget: Budget | None = None) -> Manifest:
    """Download, check and prepare a published data set, or do nothing where it is here.

    `KIT_DATA_MIRROR`, a folder or URL, takes the place of the published mirrors: it has the files under their
    published names, in it or in a folder named like the data set (as `archives` has them). A folder costs no budget.
    Raises UsageError, DataError, DiskError.
    """
    _require(name)
    with _exclusive(name, progress):
        if (prepared := manifest.read(sets_dir() / name)) is not None:
            return prepared
        archives = data_dir() / "archives" / name
        archives.mkdir(parents=True, exist_ok=True)
        missing = [f for f in SOURCES[name] if not _is_whole(archives / f.name, f)]
        total = sum(f.size for f in SOURCES[name])
        need_room(archives, sum(f.size for f in missing) + 2 * total)  # unpacked and prepared
        _obtain(name, missing, archives, progress, budget)
        path = archives if len(SOURCES[name]) > 1 else archives / SOURCES[name][0].name
        return _prepare(name, path, PUBLISHED, progress)


def add(name: str, path: Path, progress: Progress) -> Manifest:
    """Prepare a data set from what a person has: a folder or an archive, known by its content, not by its names.
    It takes the place of the set that was here. Raises UsageError, DataError, DiskError."""
    _require(name)
    if not path.exists():
        raise UsageError(f"There is no {path}.", "Name a folder or an archive (zip, tar, tar.gz).")
    try:
        with _exclusive(name, progress):
            return _prepare(name, path.resolve(), PROVIDED, progress)
    except PermissionError as error:  # of the data folder it would be a DiskError
        raise DataError(f"{error.filename} cannot be read.", "Give yourself access to it.") from error


def verify(name: str) -> Manifest:
    """Hash every file of a prepared set again. Raises UsageError; DataError where it is absent or damaged."""
    prepared = status(name).prepared
    if prepared is None:
        raise DataError(
            f"{DATASETS[name].title} is not here.",
            f"`kit data fetch {name}` downloads it, `kit data add {name} PATH` takes what you have.",
        )
    manifest.verify(sets_dir() / name)
    return prepared


def _require(name: str) -> None:
    if name not in DATASETS:
        raise unknown("data set", name, DATASETS)


@contextmanager
def _exclusive(name: str, progress: Progress) -> Iterator[None]:
    """Alone with this data set on this machine, writing below the data folder."""
    root = data_dir()
    with disk_errors(root):
        root.mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(root / f".{name}.lock")
        try:
            lock.acquire(timeout=0)
        except filelock.Timeout:
            progress.line(f"Another kit is preparing {name}; waiting for it.")
            lock.acquire()
        try:
            yield
        finally:
            lock.release()


def _is_whole(path: Path, file: RemoteFile) -> bool:
    return path.exists() and path.stat().st_size == file.size and sha256(path) == file.sha256


def _obtain(name: str, files: list[RemoteFile], archives: Path, progress: Progress, budget: Budget | None) -> None:
    mirror = os.environ.get("KIT_DATA_MIRROR")
    if mirror and "://" not in mirror and (folder := named_folder("KIT_DATA_MIRROR")):
        for file in files:
            copy(file, _in_folder(folder, name, file), archives / file.name)
        return
    size = sum(file.size for file in files)
    if budget and size > budget.bytes:
        raise DataError(
            f"The download of {size / 1e6:,.0f} MB is more than the {budget.bytes / 1e6:,.0f} MB taken unasked.",
            f"`kit data fetch {name}` takes it all the same.",
        )
    deadline = time.monotonic() + budget.seconds if budget else None
    for file in files:
        if mirror:
            base = mirror.rstrip("/")
            urls = [f"{base}/{name}/{file.name}", f"{base}/{file.name}"]
        else:
            urls = [folder + file.name for folder in file.mirrors]
        download(file, urls, archives / file.name, progress, deadline)


def _in_folder(mirror: Path, name: str, file: RemoteFile) -> Path:
    for path in (mirror / name / file.name, mirror / file.name):
        if path.is_file():
            return path
    raise DataError(f"KIT_DATA_MIRROR has no {file.name}.", f"Put it into {mirror / name}, or unset KIT_DATA_MIRROR.")


def _prepare(name: str, path: Path, source: str, progress: Progress) -> Manifest:
    work = data_dir() / "work" / name
    folder = make_temporary(work / "set")
    try:
        prepare(name, path, folder, work, progress)
        prepared = manifest.write(folder, name, source)
        replace_folder(folder, sets_dir() / name, work / "old")
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return prepared
