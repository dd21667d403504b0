"""A data set on its way from the search to its fork servers: loaded once, mapped into the memory of each."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from scenarios.adapter import Arrays, Photos, TrainSet
from scenarios.data import DataSet, part_of
from scenarios.spec import Scenario

# Of a part, but a batch at least. Soon copied; photos are fewer, since a candidate that decodes all of them first shall
# still be ready in time.
MAX_IMAGES = 5_000
MAX_PHOTOS = 2_000
PARTS = ("train", "test")


@dataclass(frozen=True)
class Sets:
    """Both parts of a data set."""

    train: TrainSet
    test: TrainSet


def save(data: DataSet, batch: int, folder: Path) -> None:
    """Write a data set, or whole batches of it, into a folder, which is made: arrays as they are, photos by their
    paths. Raises OSError."""
    folder.mkdir()
    for part, whole in zip(PARTS, (data.train, data.test), strict=True):
        most = MAX_PHOTOS if isinstance(whole, Photos) else MAX_IMAGES
        found = part_of(whole, batch * max(1, most // batch))
        np.save(folder / f"{part}-labels.npy", found.labels)
        if isinstance(found, Photos):
            paths = [str(path.resolve()) for path in found.paths]
            (folder / f"{part}-paths.json").write_text(json.dumps(paths), encoding="utf-8")
        else:
            np.save(folder / f"{part}-images.npy", found.images)


def load(folder: Path, scenario: Scenario) -> Sets:
    """What `save` wrote. Arrays are read-only and shared."""
    train, test = (_part(folder, part, scenario) for part in PARTS)
    return Sets(train, test)


def _part(folder: Path, part: str, scenario: Scenario) -> TrainSet:
    labels = np.load(folder / f"{part}-labels.npy", allow_pickle=False)
    if (images := folder / f"{part}-images.npy").exists():
        return Arrays(np.asarray(np.load(images, mmap_mode="r", allow_pickle=False)), labels)
    paths = [Path(path) for path in json.loads((folder / f"{part}-paths.json").read_text(encoding="utf-8"))]
    return Photos(paths, labels, scenario.image[:2], scenario.augment if part == "train" else None)
