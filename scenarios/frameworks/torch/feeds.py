"""The tuned lane's feeds: photos that are decoded once, batches in pinned memory, and data that stays on the device."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own name for it

from scenarios.adapter import Arrays, Photos
from scenarios.data.augment import normalize_maps
from scenarios.data.photos import PhotoLoader, cache_photos, decode_photos, draw_epoch
from scenarios.frameworks.torch.model import Feed, to_labels, to_nchw
from scenarios.frameworks.torch.photos import read_photo

Batch = tuple[torch.Tensor, torch.Tensor]  # images (b, C, H, W), labels (b,)


@dataclass(frozen=True)
class ResidentFeed(Feed):
    """A feed of a set that stays on the device, for a loop that gathers its batches itself.

    draw: starts the epoch of a seed. Returns the order of the images, (N,) indices on the device. gather: returns the
    batch of (b,) such indices. It reads the same memory in all epochs, so a CUDA graph can hold it. labels: (N,).
    """

    draw: Callable[[int], torch.Tensor]
    gather: Callable[[torch.Tensor], Batch]
    labels: torch.Tensor


def resident_feed(
    description: str,
    batch: int,
    labels: torch.Tensor,
    draw: Callable[[int], torch.Tensor],
    images_at: Callable[[torch.Tensor], torch.Tensor],
    workers: int | None = None,
) -> ResidentFeed:
    """Return the feed of a set with these labels. images_at: returns the images of (b,) indices."""

    def gather(indices: torch.Tensor) -> Batch:
        return images_at(indices), labels.index_select(0, indices)

    def batches(seed: int) -> Iterator[Batch]:
        return map(gather, draw(seed).split(batch))

    return ResidentFeed(description, batches, draw, gather, labels, workers=workers)


def cached_photos(photos: Photos, batch: int, threads: int, layout: torch.memory_format) -> Feed:
    """Decode the photos once. The kit's own loader augments them in threads. layout: of the batches."""
    cache = cache_photos(photos, decode_photos(photos, threads, read_photo))

    def batches(seed: int) -> Iterator[Batch]:
        for images, labels in PhotoLoader(photos, batch, seed, 0, threads, cache):
            nchw = torch.from_numpy(images).permute(0, 3, 1, 2)
            yield nchw.contiguous(memory_format=layout), torch.from_numpy(labels)

    return Feed(f"kit photo loader over decoded photos, {threads} threads", batches, workers=threads)


def pinned_photos(photos: Photos, batch: int, threads: int, layout: torch.memory_format, device: torch.device) -> Feed:
    """Feed as `cached_photos` does, through pinned memory."""
    cached = cached_photos(photos, batch, threads, layout)

    def batches(seed: int) -> Iterator[Batch]:
        pinned = ((images.pin_memory(), labels.pin_memory()) for images, labels in cached.batches(seed))
        return copy_ahead(pinned, device)

    return Feed(f"{cached.description}, pinned memory", batches, workers=cached.workers)


def resident_photos(
    photos: Photos, batch: int, threads: int, layout: torch.memory_format, device: torch.device
) -> ResidentFeed:
    """Decode the photos once, keep them on the device as bytes, and augment them there. layout: of the batches.

    Only the order and the maps come from the host. They are drawn as for `cached_photos`.
    """
    pixels = np.empty((len(photos), *photos.size, 3), np.uint8)
    for row, photo in zip(pixels, decode_photos(photos, threads, read_photo), strict=True):
        row[:] = photo
    all_images, all_labels = torch.from_numpy(pixels).to(device), to_labels(photos.labels).to(device)
    maps = torch.zeros(len(photos), 2, 3, device=device)

    def draw(seed: int) -> torch.Tensor:
        order, matrices = draw_epoch(photos, seed, 0)
        if matrices is not None:
            maps.copy_(torch.from_numpy(normalize_maps(matrices, photos.size)))
        return torch.from_numpy(order).to(device)

    def images_at(indices: torch.Tensor) -> torch.Tensor:
        images = all_images.index_select(0, indices).permute(0, 3, 1, 2).float().div_(255)
        if photos.augment is not None:
            images = warp(images, maps.index_select(0, indices))
        return images.contiguous(memory_format=layout)

    description = "decoded photos, gathered and augmented on the device"
    return resident_feed(description, batch, all_labels, draw, images_at, workers=0)


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


def resident_arrays(train: Arrays, batch: int, layout: torch.memory_format, device: torch.device) -> ResidentFeed:
    """Keep the whole set on the device, and gather each batch from it by index in one call. layout: of the batches."""
    rows, to_images = as_rows(train, layout)
    pixels, all_labels = rows.to(device), to_labels(train.labels).to(device)
    return resident_feed(
        "batches gathered from the whole set on the device",
        batch,
        all_labels,
        lambda seed: draw_order(len(train), seed).to(device),
        lambda indices: to_images(pixels.index_select(0, indices)),
    )


def pinned_arrays(train: Arrays, batch: int, layout: torch.memory_format, device: torch.device) -> Feed:
    """Gather each batch by index in pinned memory. layout: of the batches."""
    pixels, to_images = as_rows(train, layout)
    all_labels = to_labels(train.labels)

    def gather(values: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
        pinned = torch.empty(len(indices), *values.shape[1:], dtype=values.dtype, pin_memory=True)
        return torch.index_select(values, 0, indices, out=pinned)

    def batches(seed: int) -> Iterator[Batch]:
        parts = draw_order(len(train), seed).split(batch)
        pinned = ((to_images(gather(pixels, part)), gather(all_labels, part)) for part in parts)
        return copy_ahead(pinned, device)

    return Feed("batches gathered in pinned memory", batches)


def draw_order(images: int, seed: int) -> torch.Tensor:
    """Return the images' indices in the order of a seed."""
    return torch.randperm(images, generator=torch.Generator().manual_seed(seed))


def as_rows(train: Arrays, layout: torch.memory_format) -> tuple[torch.Tensor, Callable[[torch.Tensor], torch.Tensor]]:
    """Return the images as rows, (N, H * W * C), and a function from rows to images (b, C, H, W) in the layout."""
    nhwc = layout is torch.channels_last
    images = torch.from_numpy(np.array(train.images)) if nhwc else to_nchw(train.images)
    shape = images.shape[1:]

    def to_images(rows: torch.Tensor) -> torch.Tensor:
        batch = rows.unflatten(1, shape)
        return batch.permute(0, 3, 1, 2) if nhwc else batch

    return images.flatten(1), to_images


def copy_ahead(batches: Iterator[Batch], device: torch.device) -> Iterator[Batch]:
    """Copy batches from pinned memory to the GPU in a stream of their own, while earlier steps compute.

    The host launches steps ahead of the GPU, so it also starts copies ahead. No memory is reused too early: PyTorch's
    allocator of pinned memory waits for the copy, and `record_stream` makes the allocator of the GPU wait for the step.
    """
    copies = torch.cuda.Stream()
    for batch in batches:
        with torch.cuda.stream(copies):
            images, labels = (tensor.to(device, non_blocking=True) for tensor in batch)
        steps = torch.cuda.current_stream()
        steps.wait_stream(copies)
        images.record_stream(steps)
        labels.record_stream(steps)
        yield images, labels
