"""Pass a data set from the search to its fork servers. It is loaded once and mapped into the memory of each."""

import json
from pathlib import Path

import numpy as np

from scenarios.adapter import Arrays, Photos, TrainSet
from scenarios.data import DataSet, part_of
from scenarios.spec import Scenario

# Limits for each part of a data set. A part always has at least one batch. The limit for photos is lower, because a
# trial that first decodes all of them must be ready soon.
MAX_IMAGES = 5_000
MAX_PHOTOS = 2_000


def save(data: DataSet, batch: int, folder: Path) -> None:
    """Write whole batches of a data set into a new folder: arrays as they are, photos as paths. Raise OSError."""
    folder.mkdir()
    for name, whole in (("train", data.train), ("test", data.test)):
        limit = MAX_PHOTOS if isinstance(whole, Photos) else MAX_IMAGES
        part = part_of(whole, batch * max(1, limit // batch))
        np.save(folder / f"{name}-labels.npy", part.labels)
        if isinstance(part, Photos):
            paths = [str(path.resolve()) for path in part.paths]
            (folder / f"{name}-paths.json").write_text(json.dumps(paths), encoding="utf-8")
        else:
            np.save(folder / f"{name}-images.npy", part.images)


def load(folder: Path, scenario: Scenario, name: str) -> TrainSet:
    """Return the part `train` or `test` that `save` wrote. Arrays are read-only and shared between processes."""
    labels = np.load(folder / f"{name}-labels.npy", allow_pickle=False)
    if (images := folder / f"{name}-images.npy").exists():
        return Arrays(np.asarray(np.load(images, mmap_mode="r", allow_pickle=False)), labels)
    paths = [Path(path) for path in json.loads((folder / f"{name}-paths.json").read_text(encoding="utf-8"))]
    return Photos(paths, labels, scenario.image[:2], scenario.augment if name == "train" else None)
