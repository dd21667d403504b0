"""What feeds a PyTorch training loop: a DataLoader, as its tutorials have it, or batches gathered on the device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own name for it
from torch.utils.data import DataLoader, TensorDataset

from scenarios.adapter import Arrays, Images, Photos, TrainSet
from scenarios.data.augment import centred
from scenarios.data.photos import PhotoLoader, decode_all, drawn, kept
from scenarios.frameworks.torch.photos import photo_loader, read_photo


class Feed(Protocol):
    """Batches of one set in an order that a seed gives. description: in words for the report."""

    description: str

    def batches(self, seed: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """One epoch: images (b, C, H, W), labels (b,), the short last batch too."""


class LoaderFeed:
    """A DataLoader, made once: epochs differ by the seed of its generator alone."""

    def __init__(self, train: TrainSet, batch: int, threads: int) -> None:
        self._generator = torch.Generator()
        if isinstance(train, Photos):
            self._loader: DataLoader[Any] = photo_loader(train, batch, threads, self._generator)
        else:
            data = TensorDataset(nchw(train.images), labels_of(train))
            self._loader = DataLoader(data, batch, shuffle=True, generator=self._generator)
        workers = self._loader.num_workers or "no"
        self.description = f"DataLoader over a {type(self._loader.dataset).__name__}, {workers} worker processes"

    def batches(self, seed: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """See `Feed`."""
        self._generator.manual_seed(seed)  # the order, and with it the seeds of the loader's workers
        return iter(self._loader)


class CachedFeed:
    """Photos that were decoded once, augmented by the kit's own loader in threads. channels_last: the layout of the
    batches."""

    description = "kit photo loader over decoded photos, threads"

    def __init__(self, photos: Photos, batch: int, threads: int, *, channels_last: bool) -> None:
        self._photos, self._batch, self._threads = photos, batch, threads
        self._cache = kept(photos, decode_all(photos, threads, read_photo))
        self._format = torch.channels_last if channels_last else torch.contiguous_format

    def batches(self, seed: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """See `Feed`."""
        for images, labels in PhotoLoader(self._photos, self._batch, seed, 0, self._threads, self._cache):
            turned = torch.from_numpy(images).permute(0, 3, 1, 2).contiguous(memory_format=self._format)
            yield turned, torch.from_numpy(labels)


class ResidentPhotos:
    """Photos that were decoded once and lie on the device, as bytes, where they are augmented, too: from the host come
    only an order and the maps. Those are drawn as for `CachedFeed`. channels_last: the layout of the batches."""

    description = "decoded photos, gathered and augmented on the device"

    def __init__(self, photos: Photos, batch: int, threads: int, device: torch.device, *, channels_last: bool) -> None:
        self._photos, self._batch = photos, batch
        pixels = torch.empty(len(photos), *photos.size, 3, dtype=torch.uint8)
        for place, photo in zip(pixels, decode_all(photos, threads, read_photo), strict=True):
            place.copy_(torch.from_numpy(photo))
        self._images = pixels.to(device)
        self._labels = labels_of(photos).to(device)
        self._format = torch.channels_last if channels_last else torch.contiguous_format

    def batches(self, seed: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """See `Feed`."""
        order, maps = drawn(self._photos, seed, 0)
        device = self._images.device
        moved = None if maps is None else torch.from_numpy(centred(maps, self._photos.size)).float().to(device)
        for chosen in torch.from_numpy(order).to(device).split(self._batch):
            images = self._images.index_select(0, chosen).permute(0, 3, 1, 2).float().div_(255)
            if moved is not None:
                images = seen(images, moved.index_select(0, chosen))
            yield images.contiguous(memory_format=self._format), self._labels.index_select(0, chosen)


def seen(images: torch.Tensor, maps: torch.Tensor) -> torch.Tensor:
    """`images` (b, C, H, W), each through its own of the centred maps (b, 2, 3): bilinear, edge pixels repeated.

    The places are summed up by hand: `affine_grid` takes a matrix product, which may be rounded to TF32.
    """
    height, width = images.shape[2:]
    columns = torch.linspace(-1, 1, width, device=maps.device)
    rows = torch.linspace(-1, 1, height, device=maps.device)[:, None, None]
    by_column, by_row, shift = maps[:, None, None, :].unbind(-1)  # (b, 1, 1, 2) each
    places = by_column * columns[:, None] + by_row * rows + shift
    return F.grid_sample(images, places, padding_mode="border", align_corners=True)


class ResidentFeed:
    """The whole set on the device, from which each batch is gathered by index: no image is handled on its own.
    channels_last: the layout of the batches."""

    description = "batches gathered from the whole set on the device"

    def __init__(self, train: Arrays, batch: int, device: torch.device, *, channels_last: bool) -> None:
        height, width, channels = train.images.shape[1:]
        self._batch = batch
        self._shape = (height, width, channels) if channels_last else (channels, height, width)
        self._channels_last = channels_last
        images = torch.from_numpy(np.array(train.images)) if channels_last else nchw(train.images)
        self._images = images.flatten(1).to(device)
        self._labels = labels_of(train).to(device)

    def batches(self, seed: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """See `Feed`."""
        order = torch.randperm(len(self._labels), generator=torch.Generator().manual_seed(seed))
        for chosen in order.to(self._images.device).split(self._batch):
            images = self._images.index_select(0, chosen).unflatten(1, self._shape)
            yield images.permute(0, 3, 1, 2) if self._channels_last else images, self._labels.index_select(0, chosen)


def nchw(images: Images) -> torch.Tensor:
    """(N, H, W, C) array to a new (N, C, H, W) tensor on the CPU, with the plain strides of that shape."""
    return torch.from_numpy(np.array(images.transpose(0, 3, 1, 2), np.float32, order="C"))


def labels_of(train: TrainSet) -> torch.Tensor:
    """(N,) int64 on the CPU, a copy."""
    return torch.from_numpy(np.array(train.labels, np.int64))
