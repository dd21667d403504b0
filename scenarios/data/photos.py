"""Photos to batches: decode, scale, augment in worker threads. Pillow and numpy only.

Pillow lets go of the interpreter lock while it decodes, scales and warps, so threads do run side by side.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from scenarios.data.augment import draw_maps, warp
from scenarios.data.errors import DataCorrupt
from scenarios.data.readers import short
from scenarios.frameworks.base import Images, Labels, Photos

Batch = tuple[Images, Labels]

AHEAD = 2  # batches per worker that may be finished or under way while one is being used


def decode(path: Path, size: tuple[int, int]) -> npt.NDArray[np.uint8]:
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


class PhotoLoader:
    """The batches of one epoch: (images (b, H, W, 3) float32 in [0, 1], labels (b,)), the short last one included.

    Order and augmentation depend on (seed, epoch) alone, not on the number of threads. At most AHEAD * workers
    batches are held in advance; an iteration that is given up stops its threads. What goes wrong in a thread is
    raised where the batch would have come: DataCorrupt for an unreadable photo.
    """

    def __init__(self, photos: Photos, batch: int, seed: int, epoch: int, workers: int) -> None:
        self._photos = photos
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
            pixels = decode(self._photos.paths[index], self._photos.size)
            if self._maps is not None:
                pixels = warp(pixels, self._maps[index])
            np.divide(pixels, np.float32(255), out=images[place])
        return images, self._photos.labels[indices]


def read_photos(photos: Photos, workers: int) -> Images:
    """All photos in their own order, without augmentation: (N, H, W, 3) float32 in [0, 1]."""
    images = np.empty((len(photos), *photos.size, 3), np.float32)

    def read(index: int) -> None:
        np.divide(decode(photos.paths[index], photos.size), np.float32(255), out=images[index])

    with ThreadPoolExecutor(max(1, workers), thread_name_prefix="photos") as pool:
        for _ in pool.map(read, range(len(photos))):
            pass
    return images
