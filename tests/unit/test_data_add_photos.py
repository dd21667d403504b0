"""Test adding folders and archives of photos, including damaged and hostile ones."""

from __future__ import annotations

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
from kit.model.errors import DataError
from kit.model.progress import Silent
from scenarios import data as worker_side
from scenarios.catalog.catdog_cnn import SCENARIO as CATDOG

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


def test_a_zip_with_an_unknown_method_or_a_long_name_is_rejected(tmp_path: Path) -> None:
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
        archive.writestr("x" * 300 + ".jpg", b"x")
    with pytest.raises(DataError, match=r"a\.zip is rejected: it has a name that is too long"):
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
