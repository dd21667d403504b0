"""Photos to batches: decode, scale, augment in worker threads. Pillow and numpy only.

Pillow lets go of the interpreter lock while it decodes, scales and warps, so threads do run side by side.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from scenarios.data.augment import Bytes, Canvas, Matrix, draw_maps, reach, warp
from scenarios.data.errors import DataCorrupt
from scenarios.data.readers import short
from scenarios.frameworks.base import Images, Labels, Photos

Batch = tuple[Images, Labels]

AHEAD = 2  # batches per worker that may be finished or under way while one is being used


def decode(path: Path, size: tuple[int, int]) -> Bytes:
    """One JPEG file as RGB, scaled to `size` (H, W) whatever its aspect: Pillow's bilinear filter, which averages
    over the pixels it drops. (H, W, 3). EXIF orientation is ignored, as the frameworks' loaders do.

    A photo of at least 4 times `size` is decoded at 1/2, 1/4 or 1/8 of its resolution, never below twice `size`.
    Raises DataCorrupt, naming the file, where it is not a whole JPEG.
    """
    height, width = size
    try:
        with Image.open(path, formats=["JPEG"]) as image:
            image.draft("RGB", (2 * width, 2 * height))
            return np.asarray(image.convert("RGB").resize((width, height), Image.Resampling.BILINEAR))
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise DataCorrupt(
            f"{short(path)} is not a readable JPEG file ({type(error).__name__}: {error}).".replace(
                str(path), short(path)
            ),
            "Replace or remove the photo and add the data set anew with `kit data add`.",
        ) from error


def decode_all(
    photos: Photos, workers: int, read: Callable[[Path, tuple[int, int]], Bytes] = decode
) -> Iterator[Bytes]:
    """Every photo in its own order, (H, W, 3) each, not augmented."""
    with ThreadPoolExecutor(max(1, workers), thread_name_prefix="photos") as pool:
        yield from pool.map(lambda path: read(path, photos.size), photos.paths)


class PhotoCache:
    """All photos of a set as bytes, ready to be augmented: 26 kB a photo at 64x64, since Pillow keeps four bytes a
    pixel and the edges are repeated around it. decoded: (H, W, 3) each, in the set's order."""

    def __init__(self, photos: Photos, decoded: Iterable[Bytes]) -> None:
        margin = reach(photos.augment, photos.size) if photos.augment else 0
        if photos.augment:
            self._canvases = [Canvas(pixels, margin) for pixels in decoded]
        else:
            self._pixels = list(decoded)

    def pixels(self, index: int, matrix: Matrix | None) -> Bytes:
        """One photo, seen through a map where the set is augmented."""
        return self._pixels[index] if matrix is None else self._canvases[index].seen(matrix)


class PhotoLoader:
    """The batches of one epoch: (images (b, H, W, 3) float32 in [0, 1], labels (b,)), the short last one included.

    Order and augmentation depend on (seed, epoch) alone, not on the number of threads. At most AHEAD * workers
    batches are held in advance; an iteration that is given up stops its threads. What goes wrong in a thread is
    raised where the batch would have come: DataCorrupt for an unreadable photo. cache: of these photos, None to decode
    each when it is needed.
    """

    def __init__(
        self, photos: Photos, batch: int, seed: int, epoch: int, workers: int, cache: PhotoCache | None = None
    ) -> None:
        self._photos = photos
        self._pixels = cache.pixels if cache else self._decoded
        self._workers = max(1, workers)
        rng = np.random.default_rng([seed, epoch])
        order = rng.permutation(len(photos))
        self._batches = [order[start : start + batch] for start in range(0, len(order), batch)]
        self._maps = draw_maps(photos.augment, photos.size, len(photos), rng) if photos.augment else None

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
        images = np.empty((len(indices), *self._photos.size, 3), np.float32)
        for place, index in enumerate(indices):
            pixels = self._pixels(index, None if self._maps is None else self._maps[index])
            np.divide(pixels, np.float32(255), out=images[place])
        return images, self._photos.labels[indices]

    def _decoded(self, index: int, matrix: Matrix | None) -> Bytes:
        pixels = decode(self._photos.paths[index], self._photos.size)
        return pixels if matrix is None else warp(pixels, matrix)


def read_photos(photos: Photos, workers: int) -> Images:
    """All photos in their own order, without augmentation: (N, H, W, 3) float32 in [0, 1]."""
    images = np.empty((len(photos), *photos.size, 3), np.float32)
    for index, pixels in enumerate(decode_all(photos, workers)):
        np.divide(pixels, np.float32(255), out=images[index])
    return images
