"""Random augmentation as one affine map per photo: the semantics of Keras' `ImageDataGenerator`.

There, `apply_affine_transform` shears, then zooms, about the centre of the picture; a flip mirrors the outcome. All
three together are one map, so each pixel is interpolated once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import cv2
import numpy as np
import numpy.typing as npt

from scenarios.spec import Augment

Matrix = npt.NDArray[np.float64]
Bytes = npt.NDArray[np.uint8]

# A zoom by 1.2 shows a tenth of the edge's length on each side. What reaches further is right, too, and slower.
REACH = 10

cv2.setNumThreads(1)  # a photo is the work of one thread; who wants several has as many photos under way


def draw_maps(augment: Augment, size: tuple[int, int], count: int, rng: np.random.Generator) -> Matrix:
    """Draw `count` maps, (count, 2, 3), each from a pixel (column, row, 1) of the augmented picture of `size` (H, W)
    to the place (column, row) in the original that it shows; pixel centres have whole coordinates.

    shear: angle s in degrees, uniform in +-augment.shear. zoom: zx for columns, zy for rows, independent, uniform in
    1 +- augment.zoom. flip: with probability 1/2. About the centre: column' = zx * column - zy * sin(s) * row and
    row' = zy * cos(s) * row, `column` negated first by a flip.
    """
    shear = np.deg2rad(rng.uniform(-augment.shear, augment.shear, count))
    zx, zy = rng.uniform(1 - augment.zoom, 1 + augment.zoom, (2, count))
    mirror = np.where(rng.random(count) < 0.5, -1.0, 1.0) if augment.flip else np.ones(count)
    maps = np.zeros((count, 2, 3))
    maps[:, 0, 0] = zx * mirror
    maps[:, 0, 1] = -zy * np.sin(shear)
    maps[:, 1, 1] = zy * np.cos(shear)
    centre = np.array([(size[1] - 1) / 2, (size[0] - 1) / 2])
    maps[:, :, 2] = centre - maps[:, :, :2] @ centre
    return maps


def centred(maps: Matrix, size: tuple[int, int]) -> Matrix:
    """The maps in coordinates of which -1 and 1 are the centres of a picture's first and last column, or row."""
    height, width = size
    half = np.diag([(width - 1) / 2, (height - 1) / 2, 1.0])
    half[:2, 2] = half[0, 0], half[1, 1]  # from such coordinates to pixels
    whole = np.concatenate([maps, np.broadcast_to([[0.0, 0.0, 1.0]], (len(maps), 1, 3))], axis=1)
    found: Matrix = (np.linalg.inv(half) @ whole @ half)[:, :2]
    return found


def warp(image: Bytes, matrix: Matrix) -> Bytes:
    """`image` (H, W, 3) seen through one map of `draw_maps`: bilinear, edge pixels repeated outside."""
    return cast("Bytes", warp_framed([framed(image)], matrix[None], image.shape[:2])[0])


def framed(image: Bytes) -> Bytes:
    """`image` (H, W, 3), ready to be warped: edge pixels repeated around it, and a fourth channel lent. OpenCV's vector
    code leaves out what lies near a pixel outside, and is at its best with four channels."""
    margin = _margin(image.shape[:2])
    lent = cv2.cvtColor(image, cv2.COLOR_RGB2RGBA)
    return cast("Bytes", cv2.copyMakeBorder(lent, margin, margin, margin, margin, cv2.BORDER_REPLICATE))


def warp_framed(images: Sequence[Bytes], maps: Matrix, size: tuple[int, int]) -> Bytes:
    """Pictures of `size` (H, W), as `framed` gives them, each seen through its own map of `draw_maps`: (N, H, W, 3)."""
    height, width = size
    into_frame = maps.copy()
    into_frame[:, :, 2] += _margin(size)
    seen = np.empty((len(images), height, width, 3), np.uint8)
    for place, image, matrix in zip(seen, images, into_frame, strict=True):
        warped = cv2.warpAffine(
            image,
            matrix,
            (width, height),
            flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP,  # the map leads from the outcome to the original
            borderMode=cv2.BORDER_REPLICATE,
        )
        cv2.cvtColor(warped, cv2.COLOR_RGBA2RGB, dst=place)
    return seen


def _margin(size: Sequence[int]) -> int:
    return max(size) // REACH + 2
