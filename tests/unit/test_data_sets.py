"""Test the data sets on the host: fetch from a mirror, add IDX and CIFAR-10 files, verify, resolve."""

from __future__ import annotations

import errno
import gzip
import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import filelock
import pytest

from kit.datasets import prepare, service
from kit.datasets.registry import CIFAR_FILES, SOURCES, RemoteFile
from kit.model.errors import DataError, DiskError, KitError, UsageError
from kit.model.progress import Silent
from tests import faults

QUIET = Silent()
SHARED = Path(__file__).parents[3] / "shared" / "data"
IDX = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KIT_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.delenv("KIT_DATA_MIRROR", raising=False)
    return tmp_path / "data"


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with four small files in place of MNIST's, which SOURCES describes."""
    folder = tmp_path / "mirror"
    folder.mkdir()
    files = []
    for name in IDX:
        raw = name.encode() * 50
        packed = gzip.compress(raw, mtime=1)
        (folder / name).write_bytes(packed)
        files.append(RemoteFile(name, len(packed), digest(packed), digest(raw)))
    monkeypatch.setitem(SOURCES, "mnist", tuple(files))
    monkeypatch.setenv("KIT_DATA_MIRROR", str(folder))
    return folder


@pytest.fixture
def cifar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with six small files in place of CIFAR-10's binary version."""
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    for number, name in enumerate(list(CIFAR_FILES)):
        (folder / name).write_bytes(bytes([number]) * 3073)
        monkeypatch.setitem(CIFAR_FILES, name, digest(bytes([number]) * 3073))
    monkeypatch.setattr(prepare, "CIFAR_FILE_BYTES", 3073)
    return folder


def test_fetch_from_a_mirror_prepares_once_and_verifies(home: Path, mirror: Path) -> None:
    made = service.fetch("mnist", QUIET)
    assert made.files == 4
    assert {p.name for p in (home / "sets" / "mnist").iterdir()} == {*IDX, "dataset.json", "SHA256SUMS"}
    assert service.verify("mnist") == made == service.status("mnist").prepared
    shutil.rmtree(mirror)
    assert service.fetch("mnist", QUIET) == made  # without another download
    shutil.rmtree(home / "sets")
    assert service.fetch("mnist", QUIET) == made  # the archives are still there


def test_the_archives_can_be_a_mirror(
    home: Path, mirror: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = service.fetch("mnist", QUIET)
    monkeypatch.setenv("KIT_DATA_MIRROR", str(home / "archives"))
    monkeypatch.setenv("KIT_DATA_DIR", str(tmp_path / "second"))
    assert service.fetch("mnist", QUIET) == made


def test_a_mirror_with_wrong_content_is_rejected(home: Path, mirror: Path) -> None:
    (mirror / IDX[2]).write_bytes(gzip.compress(b"else"))
    with pytest.raises(DataError, match=f"{IDX[2]} in KIT_DATA_MIRROR is not the published file"):
        service.resolve("mnist", "real", QUIET)
    source = service.resolve("mnist", "auto", QUIET)
    assert (source.kind, source.folder) == ("synthetic", None)
    assert "is not the published file" in source.note
    assert "kit data fetch mnist" in source.note
    assert not (home / "sets" / "mnist").exists()


def test_a_mirror_without_the_file(mirror: Path) -> None:
    (mirror / IDX[3]).unlink()
    with pytest.raises(DataError, match=f"KIT_DATA_MIRROR has no {IDX[3]}"):
        service.fetch("mnist", QUIET)


def test_auto_keeps_within_its_budget(home: Path, mirror: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = service.resolve("mnist", "synthetic", QUIET)
    assert source.kind == "synthetic"
    monkeypatch.delenv("KIT_DATA_MIRROR")
    source = service.resolve("cats-dogs", "auto", QUIET)  # 825 MB: no connection is opened
    assert source.kind == "synthetic"
    assert "825 MB exceeds the automatic limit of 250 MB" in source.note
    assert "kit data fetch cats-dogs" in source.note
    monkeypatch.setenv("KIT_DATA_MIRROR", str(mirror))
    source = service.resolve("mnist", "auto", QUIET)
    assert (source.kind, source.folder) == ("real", home / "sets")
    assert "published files" in source.note


@pytest.mark.parametrize(
    "harm", ["changed", "missing", "more", "manifest", "nested", "fields", "nested field", "sums missing", "sums"]
)
def test_a_damaged_set_is_found(home: Path, mirror: Path, harm: str) -> None:
    service.fetch("mnist", QUIET)
    path = home / "sets" / "mnist" / IDX[0]
    if harm == "changed":
        path.write_bytes(path.read_bytes()[:-1] + b"!")
    elif harm == "missing":
        path.unlink()
    elif harm == "more":
        path.with_name("more.gz").write_bytes(b"")
    elif harm == "manifest":
        path.with_name("dataset.json").write_text("{")
    elif harm == "nested":
        path.with_name("dataset.json").write_text("[" * 100_000)
    elif harm in ("fields", "nested field"):
        described = json.loads(path.with_name("dataset.json").read_text())
        files = "4" if harm == "fields" else json.loads("[" * 600 + "]" * 600)
        path.with_name("dataset.json").write_text(json.dumps(described | {"files": files}))
    elif harm == "sums missing":
        path.with_name("SHA256SUMS").unlink()
    else:
        path.with_name("SHA256SUMS").write_bytes(b"\xff")
    with pytest.raises(DataError, match="prepared data set mnist is damaged") as caught:
        service.verify("mnist")
    assert "kit data fetch mnist" in caught.value.remedy
    if harm == "changed":
        assert IDX[0] in str(caught.value)
    else:  # these checks are cheap, so every run makes them
        with pytest.raises(DataError, match="damaged"):
            service.resolve("mnist", "auto", QUIET)


def test_add_identifies_idx_files_by_their_content(mirror: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    (mine / "raw").mkdir(parents=True)
    for number, name in enumerate(IDX):  # with other names, and half of them unpacked
        content = (mirror / name).read_bytes()
        (mine / "raw" / f"file{number}").write_bytes(gzip.decompress(content) if number % 2 else content)
    made = service.add("mnist", mine, QUIET)
    assert (made.files, made.source) == (4, "user-provided")
    folder = service.sets_dir() / "mnist"
    for name in IDX:
        assert gzip.decompress((folder / name).read_bytes()) == gzip.decompress((mirror / name).read_bytes())
    again = service.add("mnist", Path(shutil.make_archive(str(tmp_path / "mine"), "gztar", mine)), QUIET)
    assert again.digest == made.digest


def test_add_rejects_other_idx_files(mirror: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="it has files of mnist instead"):
        service.add("fashion-mnist", mirror, QUIET)
    (mirror / IDX[0]).write_bytes((mirror / IDX[0]).read_bytes()[:-9])
    with pytest.raises(DataError, match=f"no file has the content of {IDX[0]}; {IDX[0]} is damaged or truncated"):
        service.add("mnist", mirror, QUIET)


def test_add_identifies_cifar_by_its_content(cifar: Path, tmp_path: Path) -> None:
    archive = Path(shutil.make_archive(f"{tmp_path}-cifar", "gztar", cifar.parent))
    made = service.add("cifar-10", cifar, QUIET)
    assert made.files == 6
    (cifar / "data_batch_1.bin").rename(cifar / "renamed")
    assert service.add("cifar-10", cifar, QUIET).digest == made.digest
    assert service.add("cifar-10", archive, QUIET).digest == made.digest
    (cifar / "renamed").write_bytes(b"x" * 3073)
    with pytest.raises(DataError, match=r"no file has the content of data_batch_1\.bin"):
        service.add("cifar-10", cifar, QUIET)
    assert service.verify("cifar-10") == made  # the good set is still there


def test_add_never_reads_pickles(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    (folder / "data_batch_1").write_bytes(b"\x80\x04.")
    with pytest.raises(DataError) as caught:
        service.add("cifar-10", folder, QUIET)
    assert "get the binary version" in caught.value.remedy


def test_unknown_names_and_missing_paths_are_errors(tmp_path: Path) -> None:
    calls: list[Callable[[str], object]] = [
        service.status,
        service.verify,
        lambda name: service.fetch(name, QUIET),
        lambda name: service.resolve(name, "auto", QUIET),
        lambda name: service.add(name, tmp_path, QUIET),
    ]
    for call in calls:
        with pytest.raises(UsageError, match="Did you mean 'mnist'"):
            call("mnits")
    with pytest.raises(UsageError, match="does not exist"):
        service.add("mnist", tmp_path / "nowhere", QUIET)
    with pytest.raises(DataError, match="is missing"):
        service.verify("mnist")


def test_a_full_disk_is_named(mirror: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(DiskError, match="No space left on device"):
        service.fetch("mnist", QUIET)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(1, 1, 0))  # type: ignore[attr-defined]
    with pytest.raises(DiskError, match="of free space, but the data set mnist needs"):
        service.fetch("mnist", QUIET)


@pytest.mark.parametrize("place", ["file/data", "file", "/proc/nowhere/data"])
def test_a_data_folder_that_cannot_be_written(
    tmp_path: Path, mirror: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KIT_DATA_DIR", str(tmp_path / place))
    with pytest.raises(DiskError, match="cannot be read or written") as caught:
        service.fetch("mnist", QUIET)
    assert "KIT_DATA_DIR" in caught.value.remedy


def test_an_unreadable_file_of_the_user_is_no_disk_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(tmp_path / "mine" / "file"))

    (tmp_path / "mine").mkdir()
    monkeypatch.setattr(service, "prepare", refuse)
    with pytest.raises(DataError, match="mine/file cannot be read"):
        service.add("mnist", tmp_path / "mine", QUIET)


@pytest.mark.parametrize(
    ("place", "kind", "expected"),
    [
        ("data", DiskError, r"data cannot be read or written: Input/output error.*\n.*KIT_DATA_DIR"),
        ("data/sets", DiskError, r"sets cannot be read or written: Input/output error"),
        ("", DiskError, r"cannot be read or written: Input/output error"),  # above the data folder
        (None, DiskError, r"A file in .*data, or one that you gave, cannot be read or written: .*\nCheck the disks"),
        ("data-2", DataError, r"data-2 cannot be read: Input/output error.*\nCheck its permissions and its disk"),
    ],
)
def test_a_fault_of_the_disk_names_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str | None, kind: type[KitError], expected: str
) -> None:
    name = None if place is None else str(tmp_path / place)

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error", name)

    monkeypatch.setattr(service, "prepare", fail)
    with pytest.raises(kind, match=expected):
        service.add("mnist", tmp_path, QUIET)


def test_a_prepared_set_that_cannot_be_read_is_a_data_error(mirror: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service.fetch("mnist", QUIET)
    call: list[Callable[[], object]] = [
        lambda: service.status("mnist"),
        lambda: service.verify("mnist"),
        lambda: service.resolve("mnist", "auto", QUIET),
    ]
    for each in call:
        with (
            faults.at(1, OSError(errno.EIO, "Input/output error"), ("os.scandir",)),
            pytest.raises(DataError, match="The prepared data set mnist cannot be read: Input/output error"),
        ):
            each()


def test_files_of_a_killed_process_are_removed(home: Path, mirror: Path) -> None:
    left = home / "work" / "mnist" / "set"
    left.mkdir(parents=True)
    (left / "half").write_bytes(b"x")
    assert service.fetch("mnist", QUIET).files == 4
    assert not left.exists()
    left.mkdir(parents=True)  # killed after the set was ready
    service.fetch("mnist", QUIET)
    assert not left.exists()


def test_a_second_process_waits_and_finds_the_set(home: Path, mirror: Path) -> None:
    home.mkdir()
    lock = filelock.FileLock(home / ".mnist.lock")
    lock.acquire()

    class Release(Silent):
        def line(self, text: str) -> None:
            assert "Waiting" in text
            lock.release()

    assert service.fetch("mnist", Release()).files == 4


@pytest.mark.skipif(not SHARED.is_dir(), reason="the real MNIST files are not on this machine")
def test_the_real_mnist_files_are_a_mirror(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KIT_DATA_MIRROR", str(SHARED))
    made = service.fetch("mnist", QUIET)
    unpacked = tmp_path / "raw"
    unpacked.mkdir()
    for name in IDX:
        (unpacked / name[:-3]).write_bytes(gzip.decompress((SHARED / "mnist" / name).read_bytes()))
    assert service.add("mnist", unpacked, QUIET).files == made.files  # checks the hashes of the unpacked files
