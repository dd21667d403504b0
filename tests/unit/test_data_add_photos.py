"""Test adding folders and archives of photos, including damaged and hostile ones."""

from __future__ import annotations

import errno
import gzip
import io
import os
import shutil
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from kit.datasets import photos, service, unpack
from kit.model.errors import CorruptDataError, DataError
from kit.model.progress import Silent
from kit.storage import tar_members
from scenarios import data as worker_side
from scenarios import worker
from scenarios.catalog.catdog_cnn import SCENARIO as CATDOG
from scenarios.contract.reasons import Code, Status
from scenarios.data.errors import DataCorrupt
from tests import examples

QUIET = Silent()


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KIT_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.delenv("KIT_DATA_MIRROR", raising=False)
    return tmp_path / "data"


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
    assert root.exists()  # the user's files are never moved
    assert len(list(root.rglob("*.jpg"))) == 13


def test_a_set_is_readable_for_all_users(tmp_path: Path) -> None:
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
    with pytest.raises(DataError, match=r"dogs\.1\.jpg is not a readable photo \(color mode CMYK\)"):
        service.add("cats-dogs", root, QUIET)


def test_the_published_layout_takes_the_first_readable_photos_in_numeric_order(
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
    with pytest.raises(DataError, match=r"Cat has 10 readable photos.*11 are needed"):
        service.add("cats-dogs", tmp_path / "PetImages", QUIET)


def test_a_folder_with_an_unknown_layout_is_rejected(tmp_path: Path) -> None:
    write_photos(tmp_path / "birds", 2)
    with pytest.raises(DataError, match="no photos in a known folder layout") as caught:
        service.add("cats-dogs", tmp_path / "birds", QUIET)
    assert "train" in caught.value.remedy


NAMES = {
    "not UTF-8": "k\udce4tzchen.jpg",
    "not ASCII": "Kätzchen 猫.jpg",
    "control characters": "9\n\x1b[31m\u202e.jpg",
    "long": "9" * 251 + ".jpg",
    "long with another extension": "9" * 250 + ".jpeg",
    "long and not ASCII": "ä" * 125 + ".JPG",
}


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
@pytest.mark.parametrize("form", ["folder", "cats.zip", "cats.tar.gz"])
def test_photos_of_any_name_are_added(tmp_path: Path, name: str, form: str) -> None:
    root = write_tree(tmp_path / "tree")
    source = root / "training_set" / "Cats"
    (source / "Cats.0.jpg").rename(source / name)
    if form == "cats.zip":
        name = name.encode("utf-8", "replace").decode()  # zipfile writes no other names
        with zipfile.ZipFile(tmp_path / form, "w") as archive:
            for path in root.rglob("*.[jJ]*"):
                stored = path.relative_to(root).as_posix().encode("utf-8", "replace").decode()
                archive.writestr(stored, path.read_bytes())
    path = root if form == "folder" else tmp_path / form
    if form == "cats.tar.gz":
        pack(root, path)
    service.add("cats-dogs", path, QUIET)
    service.verify("cats-dogs")
    prepared = list((service.sets_dir() / "cats-dogs" / "train" / "cats").iterdir())
    assert len(prepared) == 3
    assert all(path.name.isascii() and path.name.isprintable() and len(path.name) < 210 for path in prepared)
    loaded = worker_side.load(CATDOG, "real", service.sets_dir(), tmp_path, None)
    assert len(loaded.train) == 6


def test_names_that_become_equal_are_rejected(tmp_path: Path) -> None:
    root = write_tree(tmp_path / "tree")
    for name in ("cat.JPG", "cat.JPG.jpg"):
        (root / "test_set" / "Cats" / name).write_bytes(jpeg(1))
    with pytest.raises(DataError, match=r"Cats/cat\.JPG.* and another photo would both be stored as cat\.JPG\.jpg"):
        service.add("cats-dogs", root, QUIET)


def test_names_that_differ_only_in_bytes_that_are_not_utf8_stay_apart(tmp_path: Path) -> None:
    root = write_tree(tmp_path / "tree")
    for byte in ("\udce4", "\udcf6"):
        (root / "test_set" / "Cats" / f"{byte}.jpg").write_bytes(jpeg(1))
    assert service.add("cats-dogs", root, QUIET).files == 14


def test_a_photo_that_the_disk_cannot_read_is_not_dropped_silently(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the published layout, broken photos are left out. A fault of the disk must not count as one."""
    monkeypatch.setattr(photos, "TRAIN_COUNT", 1)
    monkeypatch.setattr(photos, "TEST_COUNT", 1)
    for name in ("Cat", "Dog"):
        write_photos(tmp_path / "PetImages" / name, 3)

    def fail(path: Path, **_: object) -> None:
        raise OSError(errno.EIO, "Input/output error", str(path))

    monkeypatch.setattr(Image, "open", fail)
    with pytest.raises(DataError, match=r"Cat\.0\.jpg cannot be read: Input/output error"):
        service.add("cats-dogs", tmp_path / "PetImages", QUIET)


def test_a_changed_photo_is_found_by_the_next_launch(tmp_path: Path) -> None:
    service.add("cats-dogs", write_tree(tmp_path / "tree"), QUIET)
    path = service.sets_dir() / "cats-dogs" / "train" / "dogs" / "dogs.1.jpg"
    before, content = path.stat(), bytearray(path.read_bytes())
    content[-20] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(DataCorrupt, match=r"cats-dogs is damaged: train/dogs/dogs\.1\.jpg is not the file") as caught:
        worker_side.load(CATDOG, "real", service.sets_dir(), tmp_path, None)
    reason = worker.explain(caught.value, examples.request())
    assert (reason.code, reason.code.status, reason.code.exit_code) == (Code.DATA_CORRUPT, Status.FAILED, 5)
    for command in ("verify cats-dogs", "fetch cats-dogs", "add cats-dogs PATH"):
        assert f"`kit data {command}`" in reason.remedy
    with pytest.raises(CorruptDataError, match=r"train/dogs/dogs\.1\.jpg"):
        service.verify("cats-dogs")


@pytest.mark.parametrize("harm", ["removed", "added", "sums"])
def test_a_photo_that_is_missing_or_new_is_found_by_the_next_launch(tmp_path: Path, harm: str) -> None:
    made = service.add("cats-dogs", write_tree(tmp_path / "tree"), QUIET)
    assert worker_side.load(CATDOG, "real", service.sets_dir(), tmp_path, None).digest == made.digest
    folder = service.sets_dir() / "cats-dogs"
    path = folder / "test" / "cats" / "Cats.2.jpg"
    if harm == "removed":
        path.unlink()
    elif harm == "added":
        shutil.copyfile(path, path.with_name("Cats.3.jpg"))
    else:
        (folder / "SHA256SUMS").unlink()
    with pytest.raises(DataCorrupt, match=r"cats-dogs is damaged: (test/cats/Cats|SHA256SUMS)"):
        worker_side.load(CATDOG, "real", service.sets_dir(), tmp_path, None)
    with pytest.raises(CorruptDataError):
        service.resolve("cats-dogs", "auto", QUIET)


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
    ("bad", "expected"),
    [
        (member("../evil.jpg"), "leads out"),
        (member("/evil.jpg"), "leads out"),
        (member("a/../../evil.jpg"), "leads out"),
        (member("evil.jpg", tarfile.SYMTYPE), "link or a device"),
        (member("evil.jpg", tarfile.LNKTYPE), "link or a device"),
        (member("evil.jpg", tarfile.CHRTYPE), "link or a device"),
        (member("big", size=5000), "more than 4,000 bytes"),
        (member("a/" * 50 + "evil.jpg"), "more than 30 levels"),
        (member("good.jpg/evil.jpg"), "two members of the same name"),
    ],
)
def test_unsafe_tar_members_are_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bad: tarfile.TarInfo, expected: str
) -> None:
    monkeypatch.setattr(unpack, "MAX_BYTES", 4000)
    archive = tar_with(tmp_path / "a.tar.gz", member("good.jpg", size=5), bad)
    with pytest.raises(DataError, match=rf"a\.tar\.gz is rejected: .*{expected}"):
        service.add("cats-dogs", archive, QUIET)
    assert not list(tmp_path.rglob("evil.jpg"))


def test_unsafe_zip_members_are_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpack, "MAX_FILES", 3)
    link = zipfile.ZipInfo("link.jpg")
    link.external_attr = 0o120777 << 16
    for number, (entries, expected) in enumerate(
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
        with pytest.raises(DataError, match=f"is rejected: .*{expected}"):
            service.add("cats-dogs", path, QUIET)


def test_a_zip_with_an_unknown_method_or_a_long_path_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.jpg", b"x")
    content = bytearray(path.read_bytes())
    for place in (8, content.index(b"PK\1\2") + 10):
        content[place] = 99
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"a\.zip uses an unsupported compression"):
        service.add("cats-dogs", path, QUIET)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/" * 300 + "a.jpg", b"x")
    with pytest.raises(DataError, match=r"a\.zip is rejected: the name 'a/a/.* has more than 30 levels of folders"):
        service.add("cats-dogs", path, QUIET)


@pytest.mark.parametrize("name", ["tree.zip", "tree.tar.gz"])
@pytest.mark.parametrize("harm", ["short", "flipped", "empty"])
def test_damaged_archives_are_rejected(tmp_path: Path, name: str, harm: str) -> None:
    path = pack(write_tree(tmp_path / "tree"), tmp_path / name)
    content = path.read_bytes()
    middle = len(content) // 2
    path.write_bytes(
        {"short": content[:middle], "flipped": content[:middle] + bytes(40) + content[middle + 40 :], "empty": b""}[
            harm
        ]
    )
    with pytest.raises(DataError, match=f"{name} (is damaged or truncated|is not a complete zip or tar file)"):
        service.add("cats-dogs", path, QUIET)
    assert not (service.sets_dir() / "cats-dogs").exists()


def test_a_tar_with_a_damaged_header_is_rejected(tmp_path: Path) -> None:
    path = Path(shutil.make_archive(str(tmp_path / "tree"), "tar", write_tree(tmp_path / "tree")))
    content = bytearray(path.read_bytes())
    with tarfile.open(path) as archive:
        place = archive.getmembers()[-2].offset
    content[place : place + 100] = b"\xff" * 100
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"tree\.tar is damaged or truncated"):
        service.add("cats-dogs", path, QUIET)


def test_a_tar_is_not_taken_for_the_zip_in_it(tmp_path: Path) -> None:
    root = write_tree(tmp_path / "tree")
    shutil.make_archive(str(root / "zz"), "zip", root / "test_set")
    path = Path(shutil.make_archive(str(tmp_path / "tree"), "tar", root))
    assert zipfile.is_zipfile(path)
    assert service.add("cats-dogs", path, QUIET).files == 12


def test_a_tar_header_cannot_fill_the_memory_and_padding_has_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tar_members, "MAX_HEADER_BYTES", 100_000)
    monkeypatch.setattr(tar_members, "MAX_PADDING_BYTES", 100_000)
    long_name, sparse = member("x", tarfile.GNUTYPE_LONGNAME, 200_000), member("x", tarfile.GNUTYPE_SPARSE)
    for bad in (long_name, sparse):
        with pytest.raises(DataError, match=r"a\.tar\.gz is damaged or truncated"):
            service.add("cats-dogs", tar_with(tmp_path / "a.tar.gz", member("good.jpg", size=5), bad), QUIET)
    path = tar_with(tmp_path / "a.tar.gz", member("good.jpg", size=5))
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()) + bytes(200_000)))
    with pytest.raises(DataError, match=r"a\.tar\.gz is damaged or truncated"):
        service.add("cats-dogs", path, QUIET)


def test_folders_of_an_archive_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpack, "MAX_FILES", 20)
    folders = [member(f"f{number}", tarfile.DIRTYPE) for number in range(30)]
    with pytest.raises(DataError, match="or 20 files"):
        service.add("cats-dogs", tar_with(tmp_path / "a.tar.gz", *folders), QUIET)
