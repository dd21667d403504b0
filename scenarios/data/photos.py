"""Photos to batches: decode, scale, augment in worker threads.

OpenCV lets go of the interpreter lock while it decodes, scales and warps, so threads do run side by side.
"""

from __future__ import annotations

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
from scenarios.data.augment import Bytes, Matrix, draw_maps, framed, warp_framed
from scenarios.data.errors import PHOTO_REMEDY, DataCorrupt, unreadable
from scenarios.data.readers import short

Batch = tuple[Images, Labels]

END = b"\xff\xd9"  # of a JPEG file
# The flags that reduce are named for grey pictures, or for blue, green, red; the one for red, green, blue goes with the
# former alone, and then it is what counts.
REDUCED = {
    1: cv2.IMREAD_COLOR_RGB,
    2: cv2.IMREAD_COLOR_RGB | cv2.IMREAD_REDUCED_GRAYSCALE_2,
    4: cv2.IMREAD_COLOR_RGB | cv2.IMREAD_REDUCED_GRAYSCALE_4,
    8: cv2.IMREAD_COLOR_RGB | cv2.IMREAD_REDUCED_GRAYSCALE_8,
}
AHEAD = 2  # batches per worker that may be finished or under way while one is being used


def decode(path: Path, size: tuple[int, int]) -> Bytes:
    """One JPEG file as RGB, scaled to `size` (H, W) whatever its aspect: (H, W, 3). EXIF orientation is ignored, as the
    frameworks' loaders do.

    A large photo is decoded at 1/2, 1/4 or 1/8 of its resolution, never below `size`, which averages over the pixels
    that are dropped; what is left is scaled bilinearly. Raises DataCorrupt, naming the file, where it is not a
    whole JPEG; one that was cut and still ends like a whole one is told by its picture alone.
    """
    height, width = size
    try:
        data = _content(path)
        if not data.endswith(END):
            _require_whole(path)
        how = REDUCED[_reduction(path, size)] | cv2.IMREAD_IGNORE_ORIENTATION
        pixels = cv2.imdecode(np.frombuffer(data, np.uint8), how)
    except (OSError, SyntaxError, Image.DecompressionBombError, cv2.error) as error:
        raise _unreadable(path, error) from error
    if pixels is None:
        raise _unreadable(path, ValueError("it cannot be decoded"))
    return cast("Bytes", cv2.resize(pixels, (width, height), interpolation=cv2.INTER_LINEAR))


def _content(path: Path) -> bytes:
    """In two thirds of the time that `Path.read_bytes` takes for a few kB; numpy's `fromfile` takes twice as long."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, os.fstat(descriptor).st_size)
    finally:
        os.close(descriptor)


@functools.cache
def _reduction(path: Path, size: tuple[int, int]) -> int:
    """By what a photo can be reduced: kept, since only its first bytes, read anew each time, tell how large it is."""
    with Image.open(path, formats=["JPEG"]) as image:
        room = min(image.width // size[1], image.height // size[0])
    return max(factor for factor in REDUCED if factor <= max(1, room))


def _require_whole(path: Path) -> None:
    """Raise OSError for a file that ends too early; OpenCV would paint the rest grey."""
    with Image.open(path, formats=["JPEG"]) as image:
        image.load()


def _unreadable(path: Path, error: Exception) -> DataCorrupt:
    reason = f"{type(error).__name__}: {error}".replace(str(path), short(path))
    return DataCorrupt(unreadable(short(path), reason), PHOTO_REMEDY)


def decode_all(
    photos: Photos, workers: int, read: Callable[[Path, tuple[int, int]], Bytes] = decode
) -> Iterator[Bytes]:
    """Every photo in its own order, (H, W, 3) each, not augmented."""
    with ThreadPoolExecutor(max(1, workers), thread_name_prefix="photos") as pool:
        yield from pool.map(lambda path: read(path, photos.size), photos.paths)


def kept(photos: Photos, decoded: Iterable[Bytes]) -> list[Bytes]:
    """These photos, (H, W, 3) each and not augmented, as a `PhotoLoader` takes them for its cache: 12 kB each at 64x64;
    26 kB where they will be warped, for which they are made ready once."""
    return [_ready(photos, image) for image in decoded]


def _ready(photos: Photos, image: Bytes) -> Bytes:
    return framed(image) if photos.augment else image


def drawn(photos: Photos, seed: int, epoch: int) -> tuple[npt.NDArray[np.int64], Matrix | None]:
    """What is random in an epoch: the order of the photos (N,), and the map of each, by its own place, (N, 2, 3)."""
    rng = np.random.default_rng([seed, epoch])
    order = rng.permutation(len(photos))
    return order, draw_maps(photos.augment, photos.size, len(photos), rng) if photos.augment else None


class PhotoLoader:
    """The batches of one epoch: (images (b, H, W, 3) float32 in [0, 1], labels (b,)), the short last one included.

    Order and augmentation depend on (seed, epoch) alone, not on the number of threads. At most AHEAD * workers
    batches are held in advance; an iteration that is given up stops its threads. What goes wrong in a thread is
    raised where the batch would have come: DataCorrupt for an unreadable photo. cache: these photos as `kept` gives
    them; None to decode each when it is needed.
    """

    def __init__(
        self, photos: Photos, batch: int, seed: int, epoch: int, workers: int, cache: Sequence[Bytes] | None = None
    ) -> None:
        self._photos = photos
        self._cache = cache
        self._workers = max(1, workers)
        order, self._maps = drawn(photos, seed, epoch)
        self._batches = [order[start : start + batch] for start in range(0, len(order), batch)]

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[Batch]:
        pool = ThreadPoolExecutor(self._workers, thread_name_prefix="photos")
        todo = iter(self._batches)
        pending: deque[Future[Batch]] = deque()
        try:
            while True:
                room = AHEAD * self._workers - len(pending)
                pending.extend(pool.submit(self._load, indices) for indices in islice(todo, room))
                if not pending:
                    return
                yield pending.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)

    def _load(self, indices: npt.NDArray[np.int64]) -> Batch:
        paths, size, cache = self._photos.paths, self._photos.size, self._cache
        ready = [
            cache[index] if cache else _ready(self._photos, decode(paths[index], size)) for index in indices.tolist()
        ]
        seen = np.stack(ready) if self._maps is None else warp_framed(ready, self._maps[indices], size)
        return np.divide(seen, np.float32(255)), self._photos.labels[indices]


def read_photos(photos: Photos, workers: int) -> Images:
    """All photos in their own order, without augmentation: (N, H, W, 3) float32 in [0, 1]."""
    images = np.empty((len(photos), *photos.size, 3), np.float32)
    for index, pixels in enumerate(decode_all(photos, workers)):
        np.divide(pixels, np.float32(255), out=images[index])
    return images
