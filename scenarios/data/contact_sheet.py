"""Draw examples of augmented photos, with photos of the synthetic set: those of real sets have no license."""

import hashlib
import io
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

from scenarios.contract.augmented import AUGMENTED_FILE, MAX_PICTURE_BYTES, VERSIONS, AugmentedPicture
from scenarios.contract.codec import write_bytes
from scenarios.data import synthetic
from scenarios.data.augment import draw_maps, warp
from scenarios.data.photos import decode
from scenarios.data.readers import Bytes
from scenarios.spec import DATASETS, Augment, Scenario

GAP = 4  # pixels between photos
GRAY = 128  # of the gaps
QUALITIES = (85, 70, 55, 40, 25, 10)  # of JPEG; the first one that gives a file that is small enough


def write_sheet(scenario: Scenario, seed: int, folder: Path) -> AugmentedPicture | None:
    """Write the picture of a scenario with augmentation to AUGMENTED_FILE in `folder`, and return its description.

    Return None if it is larger than MAX_PICTURE_BYTES even at the lowest quality. Raise OSError.
    """
    assert scenario.augment is not None
    pixels = draw_sheet(scenario, scenario.augment, seed, folder)
    content = next((found for q in QUALITIES if len(found := _jpeg(pixels, q)) <= MAX_PICTURE_BYTES), None)
    if content is None:
        return None
    write_bytes(folder / AUGMENTED_FILE, content)
    return AugmentedPicture(hashlib.sha256(content).hexdigest())


def draw_sheet(scenario: Scenario, augment: Augment, seed: int, folder: Path) -> Bytes:
    """Return the pixels (H, W, 3) of the picture: a row for each class, see `AugmentedPicture`.

    Photos are read from files, scaled and augmented by the functions that load a training set. folder: for these files.
    """
    dataset, size = DATASETS[scenario.dataset], scenario.image[:2]
    rng, rows = np.random.default_rng(seed), []
    with tempfile.TemporaryDirectory(dir=folder) as name:
        for path in synthetic.write_photos(dataset, Path(name), len(dataset.classes)):
            photo = decode(path, size)
            rows.append([photo, *(warp(photo, each) for each in draw_maps(augment, size, VERSIONS, rng))])
    height, width = (side + GAP for side in size)
    sheet = np.full((height * len(rows) - GAP, width * (1 + VERSIONS) - GAP, 3), GRAY, np.uint8)
    for row, photos in enumerate(rows):
        for column, photo in enumerate(photos):
            sheet[row * height : (row + 1) * height - GAP, column * width : (column + 1) * width - GAP] = photo
    return sheet


def _jpeg(pixels: Bytes, quality: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=quality)
    return file.getvalue()
