"""Augment photos by one random affine map each, with the semantics of Keras' `ImageDataGenerator`.

Keras' `apply_affine_transform` shears, then zooms, about the center of the image. A flip mirrors the result. One map
combines all three, so each pixel is interpolated only once.
"""

from collections.abc import Sequence
from typing import cast

import cv2
import numpy as np
import numpy.typing as npt

from scenarios.spec import Augment

Matrix = npt.NDArray[np.float64]
Bytes = npt.NDArray[np.uint8]

# Width of the frame around an image: its longer side divided by this. A zoom by 1.2 shows a tenth of the side beyond
# each edge. A map that reaches beyond the frame gives the right pixels, too, but is slower.
FRAME_DIVISOR = 10

cv2.setNumThreads(1)  # one thread per photo: the loader runs several photos in parallel


def draw_maps(augment: Augment, size: tuple[int, int], count: int, rng: np.random.Generator) -> Matrix:
    """Draw `count` maps, (count, 2, 3), for images of `size` (H, W). Each leads from a pixel (column, row, 1) of the
    augmented image to its position (column, row) in the original. Pixel centers have integer coordinates.

    Shear: angle s in degrees, uniform in +-augment.shear. Zoom: zx for columns and zy for rows, independent, uniform in
    1 +- augment.zoom. Flip: with probability 1/2. In coordinates about the center,
    column' = zx * column - zy * sin(s) * row and row' = zy * cos(s) * row. A flip negates `column` first.
    """
    shear = np.deg2rad(rng.uniform(-augment.shear, augment.shear, count))
    zx, zy = rng.uniform(1 - augment.zoom, 1 + augment.zoom, (2, count))
    mirror = np.where(rng.random(count) < 0.5, -1.0, 1.0) if augment.flip else np.ones(count)
    maps = np.zeros((count, 2, 3))
    maps[:, 0, 0] = zx * mirror
    maps[:, 0, 1] = -zy * np.sin(shear)
    maps[:, 1, 1] = zy * np.cos(shear)
    center = np.array([(size[1] - 1) / 2, (size[0] - 1) / 2])
    maps[:, :, 2] = center - maps[:, :, :2] @ center
    return maps


def normalize_maps(maps: Matrix, size: tuple[int, int]) -> Matrix:
    """Return the maps in normalized coordinates: -1 and 1 are the centers of the first and the last column, or row."""
    height, width = size
    half = np.diag([(width - 1) / 2, (height - 1) / 2, 1.0])
    half[:2, 2] = half[0, 0], half[1, 1]  # from normalized coordinates to pixels
    whole = np.concatenate([maps, np.broadcast_to([[0.0, 0.0, 1.0]], (len(maps), 1, 3))], axis=1)
    normalized: Matrix = (np.linalg.inv(half) @ whole @ half)[:, :2]
    return normalized


def warp(image: Bytes, matrix: Matrix) -> Bytes:
    """Apply one map of `draw_maps` to an image (H, W, 3): bilinear, with edge pixels repeated outside."""
    return cast("Bytes", warp_framed([add_frame(image)], matrix[None], image.shape[:2])[0])


def add_frame(image: Bytes) -> Bytes:
    """Return an image (H, W, 3) prepared for `warp_framed`: with repeated edge pixels around it, and a fourth channel.

    Both make OpenCV faster: it does not use its vector code near pixels outside the image, and four channels suit that
    code best.
    """
    margin = _margin(image.shape[:2])
    rgba = cv2.cvtColor(image, cv2.COLOR_RGB2RGBA)
    return cast("Bytes", cv2.copyMakeBorder(rgba, margin, margin, margin, margin, cv2.BORDER_REPLICATE))


def warp_framed(images: Sequence[Bytes], maps: Matrix, size: tuple[int, int]) -> Bytes:
    """Apply to each image, prepared by `add_frame`, its own map of `draw_maps`. Return (N, H, W, 3).

    size: (H, W) of the images without their frames.
    """
    height, width = size
    into_frame = maps.copy()
    into_frame[:, :, 2] += _margin(size)
    warped = np.empty((len(images), height, width, 3), np.uint8)
    for place, image, matrix in zip(warped, images, into_frame, strict=True):
        rgba = cv2.warpAffine(
            image,
            matrix,
            (width, height),
            flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP,  # the map leads from the result to the original
            borderMode=cv2.BORDER_REPLICATE,
        )
        cv2.cvtColor(rgba, cv2.COLOR_RGBA2RGB, dst=place)
    return warped


def _margin(size: Sequence[int]) -> int:
    return max(size) // FRAME_DIVISOR + 2
