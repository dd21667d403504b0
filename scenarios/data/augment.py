"""Random augmentation as one affine map per photo: the semantics of Keras' `ImageDataGenerator`.

There, `apply_affine_transform` shears, then zooms, about the centre of the picture; a flip mirrors the outcome. All
three together are one map, so each pixel is interpolated once.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from PIL import Image

from scenarios.spec import Augment

Matrix = npt.NDArray[np.float64]
Bytes = npt.NDArray[np.uint8]


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


def reach(augment: Augment, size: tuple[int, int]) -> int:
    """Pixels by which the furthest of all maps that can be drawn shows what lies outside of a picture of `size`."""
    height, width = size
    shear = math.radians(augment.shear)
    columns = (1 + augment.zoom) * ((width - 1) + math.sin(shear) * (height - 1)) - (width - 1)
    rows = augment.zoom * (height - 1)
    return math.ceil(max(columns, rows) / 2)


def warp(image: Bytes, matrix: Matrix) -> Bytes:
    """`image` (H, W, 3) seen through one map of `draw_maps`: bilinear, edge pixels repeated outside.

    Values are truncated to bytes: up to one grey level below the exact ones.
    """
    height, width = image.shape[:2]
    corners = np.array([[0, width - 1, 0, width - 1], [0, 0, height - 1, height - 1], [1, 1, 1, 1]])
    places = matrix @ corners
    # Where the map reaches furthest outside is at a corner.
    beyond = max(-places.min(), (places[0] - (width - 1)).max(), (places[1] - (height - 1)).max(), 0.0)
    canvas = Canvas(image, math.ceil(beyond))
    return canvas.seen(matrix)


class Canvas:
    """A picture (H, W, 3) whose edge pixels are repeated, to be seen through maps that reach at most `margin` pixels
    beyond it: Pillow would paint what is outside black."""

    def __init__(self, image: Bytes, margin: int) -> None:
        self._size = image.shape[1], image.shape[0]
        self._shift = margin + 1.5  # Pillow counts from the corner of a pixel, half a pixel before its centre
        around = (margin + 1, margin + 1)  # one more, to interpolate with
        self._padded = Image.fromarray(np.pad(image, (around, around, (0, 0)), mode="edge"))

    def seen(self, matrix: Matrix) -> Bytes:
        """The picture through one map: bilinear."""
        (a, b, c), (d, e, f) = matrix.tolist()
        data = (a, b, c + self._shift - 0.5 * (a + b), d, e, f + self._shift - 0.5 * (d + e))
        return np.asarray(self._padded.transform(self._size, Image.Transform.AFFINE, data, Image.Resampling.BILINEAR))
