"""The stock lane's data set of JPEG files: decoded by Pillow, scaled and augmented by the kit's functions."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from scenarios.adapter import Photos
from scenarios.data.augment import draw_maps, warp
from scenarios.data.errors import PHOTO_REMEDY, DataCorrupt, unreadable
from scenarios.data.photos import scale
from scenarios.data.readers import short

MAX_WORKERS = 4  # as in PyTorch's transfer-learning tutorial


def photo_loader(
    photos: Photos, batch: int, threads: int, generator: torch.Generator | None = None
) -> DataLoader[tuple[torch.Tensor, torch.Tensor]]:
    """Return a loader of (b, 3, H, W) images and (b,) labels with at most `threads` worker processes.

    generator: shuffles the photos and seeds the workers. Without one, photos come in order.
    """
    shuffle, workers = generator is not None, min(MAX_WORKERS, threads)
    return DataLoader(PhotoDataset(photos), batch, shuffle=shuffle, num_workers=workers, generator=generator)


class PhotoDataset(Dataset):  # type: ignore[misc]
    """JPEG files as a PyTorch data set: (3, H, W) float32 in [0, 1] and a label, augmented if `photos.augment` is set.

    Random numbers come from PyTorch's generator, which the loader seeds in each worker.
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
    """A JPEG file that cannot be decoded.

    Its only argument is one text, because a DataLoader raises a worker's error again from the worker's traceback. The
    last line of that traceback is the message.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text.rpartition(f"{type(self).__name__}: ")[2].strip(), PHOTO_REMEDY)


def read_photo(path: Path, size: tuple[int, int]) -> npt.NDArray[np.uint8]:
    """Decode a photo, and scale it by nearest neighbor to (H, W, 3). Raise UnreadablePhoto."""
    try:
        with Image.open(path) as image:
            return scale(np.asarray(image.convert("RGB")), size)
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise UnreadablePhoto(unreadable(short(path), type(error).__name__)) from error
