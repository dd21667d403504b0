"""Test that readers reject every file that is not exactly as specified, and that `load` makes canonical arrays."""

from __future__ import annotations

import gzip
import shutil
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from scenarios import data
from scenarios.adapter import Arrays
from scenarios.catalog.cifar_cnn import SCENARIO as CIFAR
from scenarios.catalog.mnist_cnn import SCENARIO as MNIST
from scenarios.contract import checksums
from scenarios.data import readers
from scenarios.data.errors import DataCorrupt, DataUnavailable
from scenarios.data.integrity import hash_files
from scenarios.spec import DATASETS

SHARED = Path(__file__).parents[3] / "shared" / "data"
IMAGES = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)
WHOLE = struct.pack(">HBBIII", 0, 8, 3, 2, 3, 4) + IMAGES.tobytes()


def test_idx_is_read_as_written(tmp_path: Path) -> None:
    path = tmp_path / "images.gz"
    path.write_bytes(gzip.compress(WHOLE))
    np.testing.assert_array_equal(readers.read_idx(path, (2, 3, 4)), IMAGES)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (gzip.compress(WHOLE[:-1]), "fewer than 24 bytes"),
        (gzip.compress(WHOLE + b"\0"), "more than 24 bytes"),
        (gzip.compress(b"\0\0\x0d" + WHOLE[3:]), "IDX header"),  # floats
        (gzip.compress(WHOLE[:7] + b"\3" + WHOLE[8:]), "IDX header"),  # three images
        (gzip.compress(WHOLE)[:-9], "not a complete gzip file"),
        (WHOLE, "not a complete gzip file"),
        (b"", "IDX header"),
    ],
    ids=["truncated", "too-long", "floats", "three-images", "damaged-gzip", "no-gzip", "empty"],
)
def test_a_wrong_idx_file_is_rejected(tmp_path: Path, content: bytes, expected: str) -> None:
    path = tmp_path / "images.gz"
    path.write_bytes(content)
    with pytest.raises(DataCorrupt, match=expected) as caught:
        readers.read_idx(path, (2, 3, 4))
    assert "images.gz" in str(caught.value)
    assert "kit data" in caught.value.remedy


def test_cifar_planes_become_channels(tmp_path: Path) -> None:
    path = tmp_path / "data_batch_1.bin"
    pixels = np.random.default_rng(0).integers(0, 256, (2, 3, 32, 32), dtype=np.uint8)
    path.write_bytes(b"".join(bytes([label]) + image.tobytes() for label, image in zip((7, 3), pixels, strict=True)))
    images, labels = readers.read_cifar(path, 2)
    assert labels.tolist() == [7, 3]
    assert images.shape == (2, 32, 32, 3)
    assert images[1, 5, 9].tolist() == pixels[1, :, 5, 9].tolist()
    with pytest.raises(DataCorrupt, match=r"6,146 bytes, expected 9,219"):
        readers.read_cifar(path, 3)
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(DataCorrupt, match="cannot be read"):
        readers.read_cifar(loop, 2)


def test_a_label_beyond_the_classes_is_corrupt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = replace(DATASETS["cifar-10"], train=5, test=1)
    monkeypatch.setitem(DATASETS, "cifar-10", small)
    for name in (*readers.CIFAR_FILES["train"], *readers.CIFAR_FILES["test"]):
        (tmp_path / name).write_bytes(bytes([10 if name == "data_batch_3.bin" else 1]) + bytes(3072))
    with pytest.raises(DataCorrupt, match="label 10"):
        readers.read_images(tmp_path, small, "train")


def test_missing_data_say_how_to_get_them(tmp_path: Path) -> None:
    with pytest.raises(DataUnavailable) as caught:
        data.load(MNIST, "real", tmp_path, tmp_path, None)
    assert "mnist/train-images-idx3-ubyte.gz" in str(caught.value)
    assert "kit data fetch" in caught.value.remedy
    with pytest.raises(DataUnavailable):
        data.load(MNIST, "real", None, tmp_path, None)


def write_sums(folder: Path) -> None:
    """Describe the files of a folder as those that were prepared."""
    (folder / checksums.FILE).write_text(checksums.to_text(hash_files(folder, sorted(folder.glob("*.*")))))


def test_load_gives_canonical_arrays_and_a_digest_of_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = replace(DATASETS["cifar-10"], train=10, test=40)
    monkeypatch.setitem(DATASETS, "cifar-10", small)
    folder = tmp_path / "cifar-10"
    folder.mkdir()
    rng = np.random.default_rng(1)
    for names, count in ((readers.CIFAR_FILES["train"], 2), (readers.CIFAR_FILES["test"], 40)):
        for name in names:
            records = rng.integers(0, 256, (count, 3073), dtype=np.uint8)
            records[:, 0] %= 10
            (folder / name).write_bytes(records.tobytes())
    write_sums(folder)
    whole = data.load(CIFAR, "real", tmp_path, tmp_path, None)
    part = data.load(CIFAR, "real", tmp_path, tmp_path, 7)
    assert isinstance(whole.test, Arrays)
    assert isinstance(part.test, Arrays)
    assert whole.train.labels.dtype == np.int64
    assert isinstance(whole.train, Arrays)
    assert whole.train.images.dtype == np.float32
    raw = np.fromfile(folder / "test_batch.bin", np.uint8).reshape(40, 3073)
    np.testing.assert_array_equal(whole.test.images[3, 0, :, 0], raw[3, 1:33].astype(np.float32) / np.float32(255))
    # the sample: images of the whole set, not its first ones, and always the same
    places = [int(np.flatnonzero((whole.test.images == image).all(axis=(1, 2, 3)))[0]) for image in part.test.images]
    assert len(set(places)) == 7
    assert places != sorted(places)
    np.testing.assert_array_equal(whole.test.labels[places], part.test.labels)
    np.testing.assert_array_equal(part.test.images, data.load(CIFAR, "real", tmp_path, tmp_path, 7).test.images)
    assert part.digest == whole.digest
    with open(folder / "test_batch.bin", "r+b") as file:  # one pixel of an image outside the sample
        file.seek(3073 * next(i for i in range(40) if i not in places) + 100)
        byte = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte[0] ^ 1]))
    with pytest.raises(DataCorrupt, match=r"cifar-10 is damaged: test_batch\.bin is not the file that was prepared"):
        data.load(CIFAR, "real", tmp_path, tmp_path, 7)
    (folder / checksums.FILE).unlink()
    write_sums(folder)
    assert data.load(CIFAR, "real", tmp_path, tmp_path, 7).digest != whole.digest


@pytest.mark.skipif(not SHARED.is_dir(), reason="the real MNIST files are not on this machine")
def test_real_mnist(tmp_path: Path) -> None:
    shutil.copytree(SHARED / "mnist", tmp_path / "mnist")
    write_sums(tmp_path / "mnist")
    loaded = data.load(MNIST, "real", tmp_path, tmp_path, None)
    counts = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert np.bincount(loaded.train.labels).tolist() == counts
    assert np.bincount(loaded.test.labels).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert isinstance(loaded.train, Arrays)
    assert abs(float(loaded.train.images.mean()) - 0.1307) < 1e-4  # the usual constant for normalization
