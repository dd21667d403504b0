"""Manage the data sets on the host: download, import and verify them, and choose the data of a launch.

The data folder is `KIT_DATA_DIR`, or `data` in the user's cache. It holds the downloads in `archives/<data set>/`, and
the files that workers read in `sets/<data set>/` with their `dataset.json`. A data set appears there whole or not at
all. One lock per data set keeps processes apart.
"""

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import filelock

from kit.datasets import manifest
from kit.datasets.download import copy, download
from kit.datasets.files import replace_folder, sha256
from kit.datasets.manifest import Manifest
from kit.datasets.mirrors import mirror_files, mirror_folder, mirror_urls
from kit.datasets.prepare import prepare
from kit.datasets.registry import SOURCES, RemoteFile
from kit.host.paths import cache_folder, named_folder
from kit.model.data_choice import DataChoice
from kit.model.errors import DataError, DiskError, UsageError, unknown
from kit.model.progress import Progress
from kit.storage.files import require_space
from scenarios.contract.disk import NO_SPACE
from scenarios.contract.request import DataKind
from scenarios.spec import DATASETS

PUBLISHED = "published files, checked by SHA-256"
PROVIDED = "user-provided"


@dataclass(frozen=True)
class DownloadBudget:
    """Limit for the download of one data set, in bytes and seconds."""

    bytes: int
    seconds: float


AUTO_BUDGET = DownloadBudget(250_000_000, 180.0)


@dataclass(frozen=True)
class ResolvedData:
    """The data that launches use. folder: the folder of all prepared sets for workers, or None for synthetic data.
    note: where the data came from, or why it is synthetic and how to get the real set. lack: why the real set could
    not be had, in one sentence; "" if it was not tried."""

    kind: DataKind
    folder: Path | None
    note: str
    lack: str = ""


@dataclass(frozen=True)
class DatasetStatus:
    """State of a data set on this machine. prepared: None if it is missing. download_bytes: size of all published
    files."""

    name: str
    title: str
    folder: Path
    prepared: Manifest | None
    download_bytes: int


def data_dir() -> Path:
    """Return `KIT_DATA_DIR`, or `data` in the user's cache if it is not set."""
    chosen = named_folder("KIT_DATA_DIR")
    return chosen.absolute() if chosen else cache_folder() / "data"


def sets_dir() -> Path:
    """Return the folder of the prepared sets, which workers get as their data folder."""
    return data_dir() / "sets"


def require_known(*names: str) -> None:
    """Raise UsageError if there is no data set of one of these names."""
    for name in names:
        if name not in DATASETS:
            raise unknown("data set", name, DATASETS)


def status(name: str) -> DatasetStatus:
    """Return the state of a data set. `verify` also checks the content of its files.

    Raise UsageError if the name is unknown, DataError if the set is damaged or cannot be read.
    """
    require_known(name)
    folder = sets_dir() / name
    size = sum(file.size for file in SOURCES[name])
    with _readable(name):
        prepared = manifest.read(folder)
    return DatasetStatus(name, DATASETS[name].title, folder, prepared, size)


def resolve(name: str, choice: DataChoice, progress: Progress) -> ResolvedData:
    """Choose the data of launches. Download the real set if necessary. For `auto`, keep within AUTO_BUDGET.

    `auto` falls back to synthetic data, and the note says why. Each launch checks the content of a real set itself.
    Raise UsageError if the name is unknown. Raise DataError if the prepared set is damaged or, for `real`, if the set
    is not available. Raise DiskError.
    """
    require_known(name)
    title = DATASETS[name].title
    if choice == "synthetic":
        return ResolvedData("synthetic", None, f"{title}: synthetic, as requested")
    prepared = status(name).prepared
    if prepared is None:
        try:
            prepared = fetch(name, progress, AUTO_BUDGET if choice == "auto" else None)
        except DataError as error:
            if choice == "real":
                raise
            real = f"Use `kit data fetch {name}` to download the real set, or `kit data add {name} PATH` to import it."
            return ResolvedData("synthetic", None, f"{title}: synthetic. {error.message} {real}", error.message)
    return ResolvedData("real", sets_dir(), f"{title}: {prepared.source}, content digest {prepared.digest}")


def fetch(name: str, progress: Progress, budget: DownloadBudget | None = None) -> Manifest:
    """Download, check and prepare a published data set. Do nothing if it is already prepared.

    `KIT_DATA_MIRROR`, a folder or URL, replaces the published mirrors. It holds the files under their published names,
    directly or in a folder named after the data set, as in `archives`. A folder ignores the budget. Raise UsageError,
    DataError or DiskError.
    """
    require_known(name)
    with _locked(name, progress) as work:
        if (prepared := manifest.read(sets_dir() / name)) is not None:
            return prepared
        archives = data_dir() / "archives" / name
        archives.mkdir(parents=True, exist_ok=True)
        missing = [f for f in SOURCES[name] if not _is_whole(archives / f.name, f)]
        total = sum(f.size for f in SOURCES[name])
        size = sum(f.size for f in missing) + 2 * total  # unpacked and prepared
        require_space(archives, size, f"the data set {name}", "Set KIT_DATA_DIR to a folder on another disk.")
        _obtain(name, missing, archives, progress, budget)
        path = archives if len(SOURCES[name]) > 1 else archives / SOURCES[name][0].name
        return _prepare(name, path, PUBLISHED, work, progress)


def add(name: str, path: Path, progress: Progress) -> Manifest:
    """Prepare a data set from the user's folder or archive, and replace the existing set.

    The content of the files decides, not their names. Raise UsageError, DataError or DiskError.
    """
    require_known(name)
    with _file_errors(data_dir()):
        exists = path.exists()
    if not exists:
        raise UsageError(f"{path} does not exist.", "Give a folder or an archive (zip, tar, tar.gz).")
    with _locked(name, progress) as work:
        return _prepare(name, path.resolve(), PROVIDED, work, progress)


def verify(name: str) -> Manifest:
    """Hash every file of a prepared set again. Raise UsageError if the name is unknown, DataError if the set is missing
    or damaged."""
    prepared = status(name).prepared
    if prepared is None:
        raise DataError(
            f"The data set {DATASETS[name].title} is missing.",
            f"Use `kit data fetch {name}` to download it, or `kit data add {name} PATH` to import your own copy.",
        )
    with _readable(name):
        manifest.verify(sets_dir() / name)
    return prepared


@contextmanager
def _readable(name: str) -> Iterator[None]:
    """Turn an OSError from reading the prepared set into DataError."""
    try:
        yield
    except OSError as error:
        raise DataError(
            f"The prepared data set {name} cannot be read: {error.strerror}.",
            f"Check the permissions and the disk of {sets_dir() / name}, or set KIT_DATA_DIR to another folder.",
        ) from error


@contextmanager
def _locked(name: str, progress: Progress) -> Iterator[Path]:
    """Hold the lock of this data set, and yield the path of its work folder, which does not exist yet.

    Delete the work folder afterwards, and one that a killed process left. Raise DiskError or DataError instead of an
    OSError.
    """
    root = data_dir()
    work = root / "work" / name
    with _file_errors(root):
        root.mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(root / f".{name}.lock")
        try:
            held = lock.acquire(timeout=0)
        except filelock.Timeout:
            progress.line(f"Waiting for another kit process that prepares {name}.")
            held = lock.acquire()
        with held:
            shutil.rmtree(work, ignore_errors=True)
            try:
                yield work
            finally:
                shutil.rmtree(work, ignore_errors=True)


@contextmanager
def _file_errors(root: Path) -> Iterator[None]:
    """Turn an OSError into DataError if it names one of the user's files, and else into DiskError."""
    try:
        yield
    except OSError as error:
        what = error.strerror or str(error)
        place = Path(error.filename) if isinstance(error.filename, str | Path) else None
        otherwise = "or set KIT_DATA_DIR to another folder that you can read and write."
        if error.errno in NO_SPACE:
            raise DiskError(f"{place or root} cannot be written: {what}.", f"Free disk space, {otherwise}") from error
        if place is None:  # from reading or writing an open file
            message = f"A file in {root}, or one that you gave, cannot be read or written: {what}."
            raise DiskError(message, f"Check the disks, {otherwise}") from error
        if place.is_relative_to(root) or root.is_relative_to(place):
            message = f"{place} cannot be read or written: {what}."
            raise DiskError(message, f"Check its permissions and its disk, {otherwise}") from error
        raise DataError(f"{place} cannot be read: {what}.", "Check its permissions and its disk.") from error


def _is_whole(path: Path, file: RemoteFile) -> bool:
    return path.exists() and path.stat().st_size == file.size and sha256(path) == file.sha256


def _obtain(
    name: str, files: list[RemoteFile], archives: Path, progress: Progress, budget: DownloadBudget | None
) -> None:
    """Copy or download `files` to `archives`. Raise DataError."""
    if folder := mirror_folder():
        for file in files:
            source = next((path for path in mirror_files(folder, name, file) if path.is_file()), None)
            if source is None:
                remedy = f"Put it into {folder / name}, or unset KIT_DATA_MIRROR."
                raise DataError(f"KIT_DATA_MIRROR has no {file.name}.", remedy)
            copy(file, source, archives / file.name)
        return
    size = sum(file.size for file in files)
    if budget and size > budget.bytes:
        raise DataError(
            f"The download of {size / 1e6:,.0f} MB exceeds the automatic limit of {budget.bytes / 1e6:,.0f} MB.",
            f"Use `kit data fetch {name}` to download it without a limit.",
        )
    deadline = time.monotonic() + budget.seconds if budget else None
    for file in files:
        download(file, mirror_urls(name, file), archives / file.name, progress, deadline)


def _prepare(name: str, path: Path, source: str, work: Path, progress: Progress) -> Manifest:
    folder = work / "set"
    folder.mkdir(parents=True)
    prepare(name, path, folder, work, progress)
    prepared = manifest.write(folder, name, source)
    replace_folder(folder, sets_dir() / name, work / "old")
    return prepared
