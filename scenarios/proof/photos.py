"""Make photos whose scaling shows in what is computed from them, and prove how photos are read for evaluation.

The expected pixels come from Pillow's decoder and from NumPy indexing, not from the code that any loader uses.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from scenarios.adapter import Adapter, Photos
from scenarios.contract.result import Check
from scenarios.data.augment import Bytes
from scenarios.proof.distances import WRONG, judged
from scenarios.spec import DATASETS, Scenario

Size = tuple[int, int]  # height and width

ENLARGED = 1.7, 1.3  # height and width of the photos for training, relative to the network's input
SIZES = (0.6, 0.7), (0.7, 2.4), (1.6, 0.8), (2.9, 2.3)  # the same for evaluation
LEVELS_TOLERANCE = 1.001  # one gray level, and the rounding of float32


def checks(adapter: Adapter, scenario: Scenario, seed: int, folder: Path) -> Iterator[Check]:
    """Yield the check of photos of noise, smaller and larger than the network's input, if the scenario has photos.

    Every second photo has its colors at half the resolution, as cameras store them.
    folder: for the photos, which are removed by the caller.
    """
    if DATASETS[scenario.dataset].shape is not None:
        return
    generator, size = np.random.default_rng(seed), scenario.image[:2]
    paths = [folder / f"evaluation-{index}.jpg" for index in range(len(SIZES))]
    for index, (path, factors) in enumerate(zip(paths, SIZES, strict=True)):
        pixels = generator.integers(0, 256, (*_times(size, factors), 3), dtype=np.uint8)
        save(path, pixels, halved=index % 2 == 1)
    expected = np.stack([read(path, size) for path in paths])
    found = adapter.read_photos(Photos(paths, np.zeros(len(paths), np.int64), size)) * 255.0
    valid = found.shape == expected.shape and np.isfinite(found).all()
    yield judged("photos: gray levels", float(np.abs(found - expected).max()) if valid else WRONG, LEVELS_TOLERANCE)


def enlarge(pixels: Bytes) -> Bytes:
    """Return a photo that nearest neighbor scales down to these pixels (H, W, 3).

    All its other pixels are those of the negative. So a filter that mixes pixels takes away most of the contrast, and
    the choice of other pixels gives another picture.
    """
    size = pixels.shape[0], pixels.shape[1]
    large = _times(size, ENLARGED)
    rows, columns = (_sources(*lengths) for lengths in zip(size, large, strict=True))
    photo = 255 - pixels[rows[:, np.newaxis], columns]
    rows, columns = (_sources(*lengths) for lengths in zip(large, size, strict=True))
    photo[rows[:, np.newaxis], columns] = pixels
    return photo


def save(path: Path, pixels: Bytes, *, halved: bool = False) -> None:
    """Save pixels (H, W, 3) as a JPEG file of the best quality. Raise OSError.

    halved: whether height and width of the colors are halved (4:2:0).
    """
    Image.fromarray(pixels).save(path, quality=100, subsampling="4:2:0" if halved else "4:4:4")


def read(path: Path, size: Size) -> Bytes:
    """Decode a photo, and scale it by nearest neighbor to `size`: (H, W, 3)."""
    with Image.open(path) as image:
        pixels = np.asarray(image.convert("RGB"))
    rows, columns = (_sources(*lengths) for lengths in zip(pixels.shape, size, strict=False))
    return pixels[rows[:, np.newaxis], columns]


def _sources(length: int, scaled: int) -> npt.NDArray[np.int64]:
    """Return floor((i + 0.5) * length / scaled) for each i, (scaled,). Only the division rounds, so this is exact."""
    return np.floor((np.arange(scaled) + 0.5) * length / scaled).astype(np.int64)


def _times(size: Size, factors: tuple[float, float]) -> Size:
    return round(size[0] * factors[0]), round(size[1] * factors[1])
