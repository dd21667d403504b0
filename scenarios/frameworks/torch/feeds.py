"""The tuned lane's feeds: photos that are decoded once, and data that stays on the device."""

from collections.abc import Iterator

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own name for it

from scenarios.adapter import Arrays, Photos
from scenarios.data.augment import normalize_maps
from scenarios.data.photos import PhotoLoader, cache_photos, decode_photos, draw_epoch
from scenarios.frameworks.torch.model import Feed, to_labels, to_nchw
from scenarios.frameworks.torch.photos import read_photo


def cached_photos(photos: Photos, batch: int, threads: int, layout: torch.memory_format) -> Feed:
    """Decode the photos once. The kit's own loader augments them in threads. layout: of the batches."""
    cache = cache_photos(photos, decode_photos(photos, threads, read_photo))

    def batches(seed: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for images, labels in PhotoLoader(photos, batch, seed, 0, threads, cache):
            nchw = torch.from_numpy(images).permute(0, 3, 1, 2)
            yield nchw.contiguous(memory_format=layout), torch.from_numpy(labels)

    return Feed("kit photo loader over decoded photos, threads", batches)


def resident_photos(
    photos: Photos, batch: int, threads: int, layout: torch.memory_format, device: torch.device
) -> Feed:
    """Decode the photos once, keep them on the device as bytes, and augment them there. layout: of the batches.

    Only the order and the maps come from the host. They are drawn as for `cached_photos`.
    """
    pixels = np.empty((len(photos), *photos.size, 3), np.uint8)
    for row, photo in zip(pixels, decode_photos(photos, threads, read_photo), strict=True):
        row[:] = photo
    all_images, all_labels = torch.from_numpy(pixels).to(device), to_labels(photos.labels).to(device)

    def batches(seed: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        order, matrices = draw_epoch(photos, seed, 0)
        maps = None if matrices is None else torch.from_numpy(normalize_maps(matrices, photos.size)).float().to(device)
        for indices in torch.from_numpy(order).to(device).split(batch):
            images = all_images.index_select(0, indices).permute(0, 3, 1, 2).float().div_(255)
            if maps is not None:
                images = warp(images, maps.index_select(0, indices))
            yield images.contiguous(memory_format=layout), all_labels.index_select(0, indices)

    return Feed("decoded photos, gathered and augmented on the device", batches)


def warp(images: torch.Tensor, maps: torch.Tensor) -> torch.Tensor:
    """Warp each of `images` (b, C, H, W) by its own centered map (b, 2, 3): bilinear, edge pixels repeated.

    The sampling grid is a plain sum: `affine_grid` computes a matrix product, which may be rounded to TF32.
    """
    height, width = images.shape[2:]
    columns = torch.linspace(-1, 1, width, device=maps.device)
    rows = torch.linspace(-1, 1, height, device=maps.device)[:, None, None]
    by_column, by_row, shift = maps[:, None, None, :].unbind(-1)  # (b, 1, 1, 2) each
    grid = by_column * columns[:, None] + by_row * rows + shift
    return F.grid_sample(images, grid, padding_mode="border", align_corners=True)


def resident_arrays(train: Arrays, batch: int, layout: torch.memory_format, device: torch.device) -> Feed:
    """Keep the whole set on the device, and gather each batch from it by index in one call. layout: of the batches."""
    nhwc = layout is torch.channels_last
    images = torch.from_numpy(np.array(train.images)) if nhwc else to_nchw(train.images)
    shape, pixels, all_labels = images.shape[1:], images.flatten(1).to(device), to_labels(train.labels).to(device)

    def batches(seed: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        order = torch.randperm(len(all_labels), generator=torch.Generator().manual_seed(seed))
        for indices in order.to(device).split(batch):
            gathered = pixels.index_select(0, indices).unflatten(1, shape)
            yield gathered.permute(0, 3, 1, 2) if nhwc else gathered, all_labels.index_select(0, indices)

    return Feed("batches gathered from the whole set on the device", batches)
