"""Make synthetic data sets that can be learned, have the shapes of the real sets, and are the same on every machine.

Sets of arrays also have the sizes of the real sets. Sets of photos are smaller.

Each class has a prototype, which is a smooth random field. An image is the shifted prototype of its class, mixed with a
fainter prototype of any class and with noise. Photos are stripes on a colored ground: horizontal for cats, vertical for
dogs. All arithmetic is on integers from the raw output of PCG64, which numpy keeps stable. So the bytes and their
digests do not depend on the processor, the seed of a launch or the version of numpy.
"""

import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from scenarios.data.readers import Bytes
from scenarios.spec import Dataset

PHOTOS = {"train": 1_000, "test": 400}
PHOTO_SHAPE = (128, 160)
SHIFT = 2  # pixels in each direction
GRID = 4  # pixels between the random values of a field


class _Stream:
    """The random bytes and small integers of one data set."""

    def __init__(self, name: str) -> None:
        self._bits = np.random.PCG64(zlib.crc32(name.encode()))

    def bytes(self, *shape: int) -> Bytes:
        count = int(np.prod(shape))
        raw: npt.NDArray[np.uint64] = self._bits.random_raw(-(-count // 8))
        octets: Bytes = raw.view(np.uint8)[:count]
        return octets.reshape(shape)

    def below(self, limit: int, *shape: int) -> npt.NDArray[np.int64]:
        raw = self._bits.random_raw(int(np.prod(shape))).reshape(shape)
        return (raw % np.uint64(limit)).astype(np.int64)


def images(dataset: Dataset) -> dict[str, tuple[Bytes, Bytes]]:
    """Return {"train": (images (N, H, W, C), labels (N,)), "test": ...} for a set of images of one shape."""
    assert dataset.shape is not None
    stream = _Stream(dataset.name)
    height, width, channels = dataset.shape
    places = 2 * SHIFT + 1
    fields = _fields(stream, len(dataset.classes), height + 2 * SHIFT, width + 2 * SHIFT, channels)
    windows = np.lib.stride_tricks.sliding_window_view(fields, (height, width), axis=(1, 2))
    # from (class, row shift, column shift, C, H, W) to a table with one row per (class, shift)
    table = np.ascontiguousarray(windows.transpose(0, 1, 2, 4, 5, 3)).reshape(-1, *dataset.shape)
    shifts = places * places
    made = {}
    for part, count in (("train", dataset.train), ("test", dataset.test)):
        labels = stream.below(len(dataset.classes), count)
        own = table[labels * shifts + stream.below(shifts, count)]
        other = table[stream.below(len(table), count)]
        mixed = own >> 1  # at most 127 + 63 + 63: no byte overflows
        mixed += other >> 2
        mixed += stream.bytes(count, *dataset.shape) >> 2
        made[part] = mixed, labels.astype(np.uint8)
    return made


def write_photos(dataset: Dataset, folder: Path, count: int | None = None) -> list[Path]:
    """Write PHOTOS JPEG files as `folder/<part>/<class>/<number>.jpg`, and return their paths. The classes alternate.

    count: number of files, the first ones of the training set; None for all.
    """
    paths = []
    for name, pixels in islice(_photos(dataset), count):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path, quality=85)
        paths.append(path)
    return paths


def _photos(dataset: Dataset) -> Iterator[tuple[str, Bytes]]:
    """Yield the name of each photo below the folder of the set, and its pixels (H, W, 3)."""
    stream = _Stream(dataset.name)
    for part, count in PHOTOS.items():
        for number in range(count):
            label = number % len(dataset.classes)
            yield f"{part}/{dataset.classes[label]}/{number:04}.jpg", _striped(stream, vertical=label == 1)


def _fields(stream: _Stream, count: int, height: int, width: int, channels: int) -> Bytes:
    """Return smooth random fields (count, H, W, C): random bytes GRID pixels apart, interpolated bilinearly."""
    rows, columns = -(-height // GRID) + 1, -(-width // GRID) + 1
    field = stream.bytes(count, rows, columns, channels).astype(np.int64)
    for axis, length in ((1, height), (2, width)):
        place = np.arange(length)
        left, weight = place // GRID, place % GRID
        weight = weight.reshape([-1 if a == axis else 1 for a in range(4)])
        field = np.take(field, left, axis) * (GRID - weight) + np.take(field, left + 1, axis) * weight
    return (field // GRID**2).astype(np.uint8)


def _striped(stream: _Stream, *, vertical: bool) -> Bytes:
    """Return a photo (H, W, 3): a random ground, dark stripes of random color, strength, width and position, and
    noise."""
    height, width = PHOTO_SHAPE
    ground = stream.bytes(4, 5, 3).repeat(32, axis=0).repeat(32, axis=1).astype(np.int64)
    period, phase, offset = (int(v) for v in stream.below(24, 3))
    along = np.arange(width) if vertical else np.arange(height)[:, np.newaxis]
    stripe = np.broadcast_to((along + phase) % (period + 12) < (period + 12) // 2, PHOTO_SHAPE)
    color = stream.bytes(3).astype(np.int64) >> 2  # dark
    strength = 4 + offset // 6  # 4 to 7 eighths
    mixed = np.where(stripe[..., np.newaxis], (ground * (8 - strength) + color * strength) // 8, ground)
    photo: Bytes = (mixed - (mixed >> 2) + (stream.bytes(height, width, 3) >> 2)).astype(np.uint8)
    return photo
