"""The part of a data set that a search uses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from scenarios import catalog
from scenarios.adapter import Arrays, Photos
from scenarios.data import DataSet
from scenarios.tuning import shared_data


def test_photos_sorted_by_class_become_a_representative_sample_of_whole_batches(tmp_path: Path) -> None:
    labels = np.repeat([0, 1], 4000)
    paths = [tmp_path / f"{label}" / f"{number}.jpg" for number, label in enumerate(labels)]
    photos = Photos(paths, labels, (64, 64))
    shared_data.save(DataSet(photos, photos, "real", ""), 48, tmp_path / "part")
    found = shared_data.load(tmp_path / "part", catalog.load()["catdog-cnn"][""], "train")
    assert isinstance(found, Photos)
    assert len(found) == 41 * 48
    assert 0.4 < np.mean(found.labels) < 0.6
    assert [int(path.parent.name) for path in found.paths] == list(found.labels)


@pytest.mark.parametrize(("batch", "count", "saved"), [(128, 10_000, 4_992), (8_192, 10_000, 8_192), (128, 300, 300)])
def test_the_saved_images_fill_whole_batches(batch: int, count: int, saved: int, tmp_path: Path) -> None:
    arrays = Arrays(np.random.default_rng(0).random((count, 2, 2, 1), np.float32), np.arange(count) % 10)
    shared_data.save(DataSet(arrays, arrays, "real", ""), batch, tmp_path / "part")
    found = shared_data.load(tmp_path / "part", catalog.load()["mnist-cnn"][""], "train")
    assert isinstance(found, Arrays)
    assert len(found) == saved
    label_of = {image.tobytes(): label for image, label in zip(arrays.images, arrays.labels, strict=True)}
    assert all(label_of[image.tobytes()] == label for image, label in zip(found.images, found.labels, strict=True))
