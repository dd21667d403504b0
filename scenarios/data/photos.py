"""Load batches of photos: decode, scale and augment them in worker threads.

OpenCV releases the interpreter lock while it decodes, scales and warps, so the threads run in parallel.
"""

import functools
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import cast

import cv2
import numpy as np
import numpy.typing as npt
from PIL import Image

from scenarios.adapter import Images, Labels, Photos
from scenarios.data.augment import Bytes, Matrix, add_frame, draw_maps, warp_framed
from scenarios.data.errors import PHOTO_REMEDY, DataCorrupt, unreadable
from scenarios.data.readers import short

Batch = tuple[Images, Labels]

END = b"\xff\xd9"  # of a JPEG file
AHEAD = 2  # batches per worker that are loaded, or being loaded, in advance


def decode(path: Path, size: tuple[int, int]) -> Bytes:
    """Decode one JPEG file to RGB, and scale it to `size` (H, W) by nearest neighbor: (H, W, 3).

    EXIF orientation is ignored, as in the frameworks' loaders. Raise DataCorrupt, which names the file, if it is not a
    whole JPEG file. A truncated file that ends with the end marker is not detected.
    """
    try:
        data = _content(path)
        if not data.endswith(END):
            _require_whole(path)
        flags = cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION
        pixels = cv2.imdecode(np.frombuffer(data, np.uint8), flags)
    except (OSError, SyntaxError, Image.DecompressionBombError, cv2.error) as error:
        raise _unreadable(path, error) from error
    if pixels is None:
        raise _unreadable(path, ValueError("it cannot be decoded"))
    return scale(cast("Bytes", pixels), size)


def scale(pixels: Bytes, size: tuple[int, int]) -> Bytes:
    """Scale pixels (h, w, C) to (H, W, C), as `Scenario.scaling` defines it. The aspect ratio may change.

    No library's function is used: at some sizes, those of Pillow, OpenCV and TensorFlow round a position that lies
    exactly between two pixels to different sides.
    """
    rows, columns = (source_indices(*lengths) for lengths in zip(pixels.shape, size, strict=False))
    return pixels.take(rows, axis=0).take(columns, axis=1)


@functools.lru_cache(maxsize=1024)  # a data set has few different heights and widths
def source_indices(length: int, scaled: int) -> npt.NDArray[np.int64]:
    """Return the index before scaling of each row or column after it, (scaled,), in exact arithmetic."""
    return (2 * np.arange(scaled) + 1) * length // (2 * scaled)


def _content(path: Path) -> bytes:
    """Read a file. For a few kB, this takes two thirds of the time of `Path.read_bytes`. numpy's `fromfile` takes twice
    as long."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        size = os.fstat(descriptor).st_size
        data = os.read(descriptor, size)
    finally:
        os.close(descriptor)
    return data if len(data) == size else path.read_bytes()  # a network's file system may return less


def _require_whole(path: Path) -> None:
    """Raise OSError if the file is truncated. OpenCV would fill the rest with gray."""
    with Image.open(path, formats=["JPEG"]) as image:
        image.load()


def _unreadable(path: Path, error: Exception) -> DataCorrupt:
    reason = f"{type(error).__name__}: {error}".replace(str(path), short(path))
    return DataCorrupt(unreadable(short(path), reason), PHOTO_REMEDY)


def decode_photos(
    photos: Photos, workers: int, read: Callable[[Path, tuple[int, int]], Bytes] = decode
) -> Iterator[Bytes]:
    """Yield the decoded photos (H, W, 3) in their order, without augmentation."""
    with ThreadPoolExecutor(max(1, workers), thread_name_prefix="photos") as pool:
        yield from pool.map(lambda path: read(path, photos.size), photos.paths)


def cache_photos(photos: Photos, decoded: Iterable[Bytes]) -> list[Bytes]:
    """Return the cache of a `PhotoLoader` from decoded photos (H, W, 3) without augmentation. A photo of 64x64 takes
    12 kB, or 26 kB if it will be augmented, because its frame is stored, too."""
    return [_prepare(photos, image) for image in decoded]


def _prepare(photos: Photos, image: Bytes) -> Bytes:
    return add_frame(image) if photos.augment else image


def draw_epoch(photos: Photos, seed: int, epoch: int) -> tuple[npt.NDArray[np.int64], Matrix | None]:
    """Draw the order of the photos (N,) and their augmentation maps (N, 2, 3). `maps[i]` is the map of photo i. Return
    None for the maps if the photos are not augmented."""
    rng = np.random.default_rng([seed, epoch])
    order = rng.permutation(len(photos))
    return order, draw_maps(photos.augment, photos.size, len(photos), rng) if photos.augment else None


class PhotoLoader:
    """The batches of one epoch: (images (b, H, W, 3) float32 in [0, 1], labels (b,)), including the short last one.

    Order and augmentation depend only on (seed, epoch), not on the number of threads. At most AHEAD * workers batches
    are loaded in advance. Closing an iterator stops its threads. An error in a thread is raised instead of its batch:
    DataCorrupt for an unreadable photo. cache: the result of `cache_photos`, or None to decode each photo when needed.
    workers: number of threads, at least 1.
    """

    def __init__(
        self, photos: Photos, batch: int, seed: int, epoch: int, workers: int, cache: Sequence[Bytes] | None = None
    ) -> None:
        self._photos = photos
        self._cache = cache
        self.workers = max(1, workers)
        order, self._maps = draw_epoch(photos, seed, epoch)
        self._batches = [order[start : start + batch] for start in range(0, len(order), batch)]

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[Batch]:
        pool = ThreadPoolExecutor(self.workers, thread_name_prefix="photos")
        todo = iter(self._batches)
        pending: deque[Future[Batch]] = deque()
        try:
            while True:
                room = AHEAD * self.workers - len(pending)
                pending.extend(pool.submit(self._load, indices) for indices in islice(todo, room))
                if not pending:
                    return
                yield pending.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)

    def _load(self, indices: npt.NDArray[np.int64]) -> Batch:
        paths, size, cache = self._photos.paths, self._photos.size, self._cache
        photos = [
            cache[index] if cache else _prepare(self._photos, decode(paths[index], size)) for index in indices.tolist()
        ]
        images = np.stack(photos) if self._maps is None else warp_framed(photos, self._maps[indices], size)
        return np.divide(images, np.float32(255)), self._photos.labels[indices]


def read_photos(photos: Photos, workers: int) -> Images:
    """Return all photos in their order, without augmentation: (N, H, W, 3) float32 in [0, 1]."""
    images = np.empty((len(photos), *photos.size, 3), np.float32)
    for index, pixels in enumerate(decode_photos(photos, workers)):
        np.divide(pixels, np.float32(255), out=images[index])
    return images
