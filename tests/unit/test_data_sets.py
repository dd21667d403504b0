"""The host side: fetch from a mirror, add what people have, verify, resolve; and everything they may be given."""

from __future__ import annotations

import errno
import gzip
import hashlib
import io
import json
import os
import shutil
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import filelock
import numpy as np
import pytest
from PIL import Image

from kit.datasets import photos, prepare, service, unpack
from kit.datasets.registry import CIFAR_FILES, SOURCES, RemoteFile
from kit.model.errors import DataError, DiskError, UsageError
from kit.model.progress import Silent
from scenarios import data as worker_side
from scenarios.catalog.catdog_cnn import SCENARIO as CATDOG

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
    """A folder with four small files that stand for MNIST's, and SOURCES that know them."""
    folder = tmp_path / "mirror"
    folder.mkdir()
    files = []
    for name in IDX:
        raw = name.encode() * 50
        packed = gzip.compress(raw, mtime=1)
        (folder / name).write_bytes(packed)
        files.append(RemoteFile(name, len(packed), digest(packed), (), digest(raw)))
    monkeypatch.setitem(SOURCES, "mnist", tuple(files))
    monkeypatch.setenv("KIT_DATA_MIRROR", str(folder))
    return folder


@pytest.fixture
def cifar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with six small files that stand for CIFAR-10's binary version."""
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    for number, name in enumerate(list(CIFAR_FILES)):
        (folder / name).write_bytes(bytes([number]) * 3073)
        monkeypatch.setitem(CIFAR_FILES, name, digest(bytes([number]) * 3073))
    monkeypatch.setattr(prepare, "CIFAR_FILE_BYTES", 3073)
    return folder


def jpeg(seed: int) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (12, 10, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG")
    return buffer.getvalue()


def write_photos(folder: Path, count: int) -> Path:
    folder.mkdir(parents=True)
    for number in range(count):
        (folder / f"{folder.name}.{number}.jpg").write_bytes(jpeg(number))
    return folder


def write_tree(root: Path, train: str = "training_set", test: str = "test_set") -> Path:
    for part in (train, test):
        for name in ("Cats", "dogs"):
            write_photos(root / part / name, 3)
    return root


def pack(root: Path, archive: Path) -> Path:
    kind = {".zip": "zip", ".gz": "gztar"}[archive.suffix]
    return Path(shutil.make_archive(str(archive).removesuffix(".zip").removesuffix(".tar.gz"), kind, root))


def test_fetch_from_a_mirror_prepares_once_and_verifies(home: Path, mirror: Path) -> None:
    made = service.fetch("mnist", QUIET)
    assert made.files == 4
    assert {p.name for p in (home / "sets" / "mnist").iterdir()} == {*IDX, "dataset.json", "SHA256SUMS"}
    assert service.verify("mnist") == made == service.status("mnist").prepared
    shutil.rmtree(mirror)
    assert service.fetch("mnist", QUIET) == made  # nothing is asked for again
    shutil.rmtree(home / "sets")
    assert service.fetch("mnist", QUIET) == made  # the archives are still there


def test_the_archives_can_be_a_mirror(
    home: Path, mirror: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = service.fetch("mnist", QUIET)
    monkeypatch.setenv("KIT_DATA_MIRROR", str(home / "archives"))
    monkeypatch.setenv("KIT_DATA_DIR", str(tmp_path / "second"))
    assert service.fetch("mnist", QUIET) == made


def test_a_mirror_with_other_bytes_is_refused(home: Path, mirror: Path) -> None:
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


def test_auto_takes_what_is_here_and_nothing_above_its_budget(
    home: Path, mirror: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_for = service.resolve("mnist", "synthetic", QUIET)
    assert asked_for.kind == "synthetic"
    monkeypatch.delenv("KIT_DATA_MIRROR")
    source = service.resolve("cats-dogs", "auto", QUIET)  # 825 MB; no connection is opened
    assert source.kind == "synthetic"
    assert "825 MB is more than the 250 MB" in source.note
    assert "kit data fetch cats-dogs" in source.note
    monkeypatch.setenv("KIT_DATA_MIRROR", str(mirror))
    source = service.resolve("mnist", "auto", QUIET)
    assert (source.kind, source.folder) == ("real", home / "sets")
    assert "published files" in source.note


@pytest.mark.parametrize("harm", ["changed", "gone", "more", "manifest", "fields", "sums gone", "sums"])
def test_a_damaged_set_is_found(home: Path, mirror: Path, harm: str) -> None:
    service.fetch("mnist", QUIET)
    path = home / "sets" / "mnist" / IDX[0]
    if harm == "changed":
        path.write_bytes(path.read_bytes()[:-1] + b"!")
    elif harm == "gone":
        path.unlink()
    elif harm == "more":
        path.with_name("more.gz").write_bytes(b"")
    elif harm == "manifest":
        path.with_name("dataset.json").write_text("{")
    elif harm == "fields":
        described = json.loads(path.with_name("dataset.json").read_text())
        path.with_name("dataset.json").write_text(json.dumps(described | {"files": "4"}))
    elif harm == "sums gone":
        path.with_name("SHA256SUMS").unlink()
    else:
        path.with_name("SHA256SUMS").write_bytes(b"\xff")
    with pytest.raises(DataError, match="prepared data set mnist is damaged") as caught:
        service.verify("mnist")
    assert "kit data fetch mnist" in caught.value.remedy
    if harm == "changed":
        assert IDX[0] in caught.value.message
    elif not harm.startswith("sums"):  # cheap to see, so seen before every run
        with pytest.raises(DataError, match="damaged"):
            service.resolve("mnist", "auto", QUIET)


def test_add_knows_idx_files_by_their_content(mirror: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    (mine / "raw").mkdir(parents=True)
    for number, name in enumerate(IDX):  # other names, half of them unpacked
        content = (mirror / name).read_bytes()
        (mine / "raw" / f"file{number}").write_bytes(gzip.decompress(content) if number % 2 else content)
    made = service.add("mnist", mine, QUIET)
    assert (made.files, made.source) == (4, "user-provided")
    folder = service.sets_dir() / "mnist"
    for name in IDX:
        assert gzip.decompress((folder / name).read_bytes()) == gzip.decompress((mirror / name).read_bytes())
    again = service.add("mnist", pack(mine, tmp_path / "mine.tar.gz"), QUIET)
    assert again.digest == made.digest


def test_add_refuses_other_idx_files(mirror: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there are files of mnist instead"):
        service.add("fashion-mnist", mirror, QUIET)
    (mirror / IDX[0]).write_bytes((mirror / IDX[0]).read_bytes()[:-9])
    with pytest.raises(DataError, match=f"no file has the content of {IDX[0]}; {IDX[0]} is damaged or cut short"):
        service.add("mnist", mirror, QUIET)


def test_add_knows_cifar_by_its_content(cifar: Path, tmp_path: Path) -> None:
    archive = pack(cifar.parent, tmp_path.parent / f"{tmp_path.name}-cifar.tar.gz")
    made = service.add("cifar-10", cifar, QUIET)
    assert made.files == 6
    (cifar / "data_batch_1.bin").rename(cifar / "renamed")
    assert service.add("cifar-10", cifar, QUIET).digest == made.digest
    assert service.add("cifar-10", archive, QUIET).digest == made.digest
    (cifar / "renamed").write_bytes(b"x" * 3073)
    with pytest.raises(DataError, match=r"no file has the content of data_batch_1\.bin"):
        service.add("cifar-10", cifar, QUIET)
    assert service.verify("cifar-10") == made  # the good one is still there


def test_add_never_reads_pickles(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    (folder / "data_batch_1").write_bytes(b"\x80\x04.")
    with pytest.raises(DataError) as caught:
        service.add("cifar-10", folder, QUIET)
    assert "get the binary version" in caught.value.remedy


@pytest.mark.parametrize(("train", "test"), [("training_set", "test_set"), ("Train", "validation")])
@pytest.mark.parametrize("form", ["folder", "cats.zip", "cats.tar.gz"])
def test_add_takes_a_tree_with_parts(tmp_path: Path, train: str, test: str, form: str) -> None:
    root = write_tree(tmp_path / "tree" / "deeper", train, test).parent
    (root / "deeper" / train / "Cats" / "._Cats.0.jpg").write_bytes(b"not a photo")
    path = root if form == "folder" else pack(root, tmp_path / form)
    made = service.add("cats-dogs", path, QUIET)
    assert made.files == 12
    loaded = worker_side.load(CATDOG, "real", service.sets_dir(), tmp_path, None)
    assert (len(loaded.train), len(loaded.test)) == (6, 6)
    assert loaded.train.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert root.exists()  # what was brought is never moved
    assert len(list(root.rglob("*.jpg"))) == 13


def test_a_set_is_readable_for_a_container_of_another_user(tmp_path: Path) -> None:
    old = os.umask(0o077)
    try:
        service.add("cats-dogs", write_tree(tmp_path / "tree"), QUIET)
    finally:
        os.umask(old)
    for path in (service.sets_dir(), *service.sets_dir().rglob("*")):
        assert path.stat().st_mode & 0o055 == (0o055 if path.is_dir() else 0o044), path


def test_an_unreadable_photo_in_a_tree_is_named(tmp_path: Path) -> None:
    root = write_tree(tmp_path / "tree")
    broken = root / "test_set" / "dogs" / "dogs.1.jpg"
    broken.write_bytes(broken.read_bytes()[:-300])
    with pytest.raises(DataError, match=r"test_set/dogs/dogs\.1\.jpg is not a readable photo"):
        service.add("cats-dogs", root, QUIET)
    Image.new("CMYK", (8, 8)).save(broken)
    with pytest.raises(DataError, match=r"dogs\.1\.jpg is not a readable photo \(colour mode CMYK\)"):
        service.add("cats-dogs", root, QUIET)


def test_the_published_shape_takes_the_first_readable_in_numeric_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(photos, "TRAIN_COUNT", 4)
    monkeypatch.setattr(photos, "TEST_COUNT", 2)
    monkeypatch.setattr(photos, "CHUNK", 3)
    for name in ("Cat", "Dog"):
        folder = tmp_path / "PetImages" / name
        folder.mkdir(parents=True)
        for number in range(12):
            (folder / f"{number}.jpg").write_bytes(b"" if number in (1, 4) else jpeg(number))
        (folder / "Thumbs.db").write_bytes(b"x")
    service.add("cats-dogs", pack(tmp_path / "PetImages" / "..", tmp_path.parent / f"{tmp_path.name}.zip"), QUIET)
    dogs = {
        part: {p.name for p in (service.sets_dir() / "cats-dogs" / part / "dogs").iterdir()}
        for part in ("train", "test")
    }
    assert dogs == {"train": {"0.jpg", "2.jpg", "3.jpg", "5.jpg"}, "test": {"6.jpg", "7.jpg"}}
    monkeypatch.setattr(photos, "TRAIN_COUNT", 9)
    with pytest.raises(DataError, match="Cat has 10 readable photos, 11 are needed"):
        service.add("cats-dogs", tmp_path / "PetImages", QUIET)


def test_a_folder_of_another_shape(tmp_path: Path) -> None:
    write_photos(tmp_path / "birds", 2)
    with pytest.raises(DataError, match="no photos in the shape") as caught:
        service.add("cats-dogs", tmp_path / "birds", QUIET)
    assert "train" in caught.value.remedy


def tar_with(path: Path, *members: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for member in members:
            archive.addfile(member, io.BytesIO(bytes(member.size)))
    return path


def member(name: str, kind: bytes = tarfile.REGTYPE, size: int = 0) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, size
    if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
        info.linkname = "/etc/passwd"
    return info


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (member("../evil.jpg"), "leads out"),
        (member("/evil.jpg"), "leads out"),
        (member("a/../../evil.jpg"), "leads out"),
        (member("evil.jpg", tarfile.SYMTYPE), "link or a device"),
        (member("evil.jpg", tarfile.LNKTYPE), "link or a device"),
        (member("evil.jpg", tarfile.CHRTYPE), "link or a device"),
        (member("big", size=5000), "more than 4,000 bytes"),
    ],
)
def test_tar_members_that_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bad: tarfile.TarInfo, said: str
) -> None:
    monkeypatch.setattr(unpack, "MAX_BYTES", 4000)
    archive = tar_with(tmp_path / "a.tar.gz", member("good.jpg", size=5), bad)
    with pytest.raises(DataError, match=rf"a\.tar\.gz is refused: .*{said}"):
        service.add("cats-dogs", archive, QUIET)
    assert not list(tmp_path.rglob("evil.jpg"))


def test_zip_members_that_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpack, "MAX_FILES", 3)
    link = zipfile.ZipInfo("link.jpg")
    link.external_attr = 0o120777 << 16
    for number, (entries, said) in enumerate(
        [
            (["../evil.jpg"], "leads out"),
            (["..\\evil.jpg"], "leads out"),
            ([link], "is a link"),
            ([f"{n}.txt" for n in range(4)], "3 files"),
        ]
    ):
        path = tmp_path / f"{number}.zip"
        with zipfile.ZipFile(path, "w") as archive:
            for entry in entries:
                archive.writestr(entry, b"x")
        with pytest.raises(DataError, match=f"is refused: .*{said}"):
            service.add("cats-dogs", path, QUIET)


def test_a_zip_of_an_unknown_method_or_with_an_endless_name(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.jpg", b"x")
    content = bytearray(path.read_bytes())
    for place in (8, content.index(b"PK\1\2") + 10):
        content[place] = 99
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"a\.zip is packed in a way that cannot be read"):
        service.add("cats-dogs", path, QUIET)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x" * 300 + ".jpg", b"x")
    with pytest.raises(DataError, match=r"a\.zip is refused: a name in it is too long"):
        service.add("cats-dogs", path, QUIET)


@pytest.mark.parametrize("name", ["tree.zip", "tree.tar.gz"])
@pytest.mark.parametrize("harm", ["short", "flipped", "empty"])
def test_damaged_archives(tmp_path: Path, name: str, harm: str) -> None:
    path = pack(write_tree(tmp_path / "tree"), tmp_path / name)
    content = path.read_bytes()
    middle = len(content) // 2
    path.write_bytes(
        {"short": content[:middle], "flipped": content[:middle] + bytes(40) + content[middle + 40 :], "empty": b""}[
            harm
        ]
    )
    with pytest.raises(DataError, match=f"{name} (is damaged or cut short|is neither a whole zip nor)"):
        service.add("cats-dogs", path, QUIET)
    assert not (service.sets_dir() / "cats-dogs").exists()


def test_a_tar_whose_headers_break_off(tmp_path: Path) -> None:
    path = Path(shutil.make_archive(str(tmp_path / "tree"), "tar", write_tree(tmp_path / "tree")))
    content = bytearray(path.read_bytes())
    with tarfile.open(path) as archive:
        place = archive.getmembers()[-2].offset
    content[place : place + 100] = b"\xff" * 100
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"tree\.tar is damaged or cut short"):
        service.add("cats-dogs", path, QUIET)


def test_names_and_paths_that_do_not_exist(tmp_path: Path) -> None:
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
    with pytest.raises(UsageError, match="There is no "):
        service.add("mnist", tmp_path / "nowhere", QUIET)
    with pytest.raises(DataError, match="is not here"):
        service.verify("mnist")


def test_a_full_disk_is_named(mirror: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(DiskError, match="No room left"):
        service.fetch("mnist", QUIET)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(1, 1, 0))  # type: ignore[attr-defined]
    with pytest.raises(DiskError, match="are free"):
        service.fetch("mnist", QUIET)


@pytest.mark.parametrize("place", ["file/data", "file", "/proc/nowhere/data"])
def test_a_data_folder_that_cannot_be_made(
    tmp_path: Path, mirror: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KIT_DATA_DIR", str(tmp_path / place))
    with pytest.raises(DiskError, match="cannot be written"):
        service.fetch("mnist", QUIET)


def test_what_a_killed_process_left_is_cleared_away(home: Path, mirror: Path) -> None:
    left = home / "work" / "mnist" / "set"
    left.mkdir(parents=True)
    (left / "half").write_bytes(b"x")
    assert service.fetch("mnist", QUIET).files == 4
    assert not left.exists()


def test_a_second_process_waits_and_finds_the_set(home: Path, mirror: Path) -> None:
    home.mkdir()
    lock = filelock.FileLock(home / ".mnist.lock")
    lock.acquire()

    class Telling(Silent):
        def line(self, text: str) -> None:
            assert "waiting" in text
            lock.release()

    assert service.fetch("mnist", Telling()).files == 4


@pytest.mark.skipif(not SHARED.is_dir(), reason="the real MNIST files are not on this machine")
def test_the_real_mnist_files_are_a_mirror(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KIT_DATA_MIRROR", str(SHARED))
    made = service.fetch("mnist", QUIET)
    unpacked = tmp_path / "raw"
    unpacked.mkdir()
    for name in IDX:
        (unpacked / name[:-3]).write_bytes(gzip.decompress((SHARED / "mnist" / name).read_bytes()))
    assert service.add("mnist", unpacked, QUIET).files == made.files  # the hashes of the unpacked files are right
