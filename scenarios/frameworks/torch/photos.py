"""JPEG files as a PyTorch data set: decoded and scaled by Pillow, augmented by the kit's one map."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch.utils.data import DataLoader

from scenarios.adapter import Photos
from scenarios.data.augment import draw_maps, warp
from scenarios.data.errors import PHOTO_REMEDY, DataCorrupt, unreadable
from scenarios.data.readers import short

WORKERS = 4  # what PyTorch's transfer-learning tutorial takes; never more than there are threads


def photo_loader(
    photos: Photos, batch: int, threads: int, generator: torch.Generator | None = None
) -> DataLoader[tuple[torch.Tensor, torch.Tensor]]:
    """Batches of (b, 3, H, W) images and (b,) labels from worker processes; shuffled where a generator is given,
    which also seeds the workers."""
    data: Any = PhotoDataset(photos)
    shuffle = generator is not None
    return DataLoader(data, batch, shuffle=shuffle, num_workers=min(WORKERS, threads), generator=generator)


class PhotoDataset:
    """JPEG files as a PyTorch data set: (3, H, W) float32 in [0, 1], label; augmented where the set says so.

    Random numbers are PyTorch's, which the loader seeds in each worker.
    """

    def __init__(self, photos: Photos) -> None:
        self._photos = photos

    def __len__(self) -> int:
        return len(self._photos)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        image = read_photo(self._photos.paths[index], self._photos.size)
        if self._photos.augment is not None:
            rng = np.random.default_rng(int(torch.randint(2**62, ())))
            image = warp(image, draw_maps(self._photos.augment, self._photos.size, 1, rng)[0])
        pixels = np.array(image.transpose(2, 0, 1), np.float32, order="C")
        return torch.from_numpy(pixels).div_(255), int(self._photos.labels[index])


class UnreadablePhoto(DataCorrupt):
    """A JPEG file that cannot be decoded. Made from one text, because a DataLoader raises what a worker process raised
    anew from the worker's traceback, of which the last line counts."""

    def __init__(self, text: str) -> None:
        super().__init__(text.rpartition(f"{type(self).__name__}: ")[2].strip(), PHOTO_REMEDY)


def read_photo(path: Path, size: tuple[int, int]) -> npt.NDArray[np.uint8]:
    """Decode and scale bilinearly to (H, W, 3). Raises UnreadablePhoto."""
    height, width = size
    try:
        with Image.open(path) as image:
            return np.asarray(image.convert("RGB").resize((width, height), Image.Resampling.BILINEAR))
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise UnreadablePhoto(unreadable(short(path), type(error).__name__)) from error
