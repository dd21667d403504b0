"""Test that synthetic sets have the shapes of the real ones, the same bytes everywhere, and something to learn."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from scenarios import data
from scenarios.adapter import Photos
from scenarios.catalog.catdog_cnn import SCENARIO as CATDOG
from scenarios.catalog.mnist_cnn import SCENARIO as MNIST
from scenarios.data import synthetic
from scenarios.data.photos import read_photos
from scenarios.spec import DATASETS


@pytest.mark.parametrize("name", [d.name for d in DATASETS.values() if d.shape])
def test_shapes_and_classes(name: str) -> None:
    dataset = replace(DATASETS[name], train=2000, test=500)
    made = synthetic.images(dataset)
    (images, labels), (test, test_labels) = made["train"], made["test"]
    assert images.shape == (2000, *(dataset.shape or ()))
    assert test.shape == (500, *(dataset.shape or ()))
    assert images.dtype == labels.dtype == np.uint8
    assert np.bincount(labels, minlength=10).min() > 120
    assert not (images[:500] == test).all(axis=(1, 2, 3)).any()
    # If the simplest classifier, nearest class mean, can tell the classes apart, so can a network.
    means = np.stack([images[labels == c].mean(axis=0) for c in range(10)]).reshape(10, -1)
    flat = test.reshape(500, -1).astype(float)
    nearest = ((flat[:, None] - means) ** 2).sum(-1).argmin(1)
    assert (nearest == test_labels).mean() > 0.9


def test_the_bytes_never_change() -> None:
    """A digest in a record must always mean the same set. Change this constant only together with the recipe."""
    made = synthetic.images(replace(DATASETS["mnist"], train=100, test=10))
    digest = hashlib.sha256(b"".join(array.tobytes() for part in made.values() for array in part)).hexdigest()
    assert digest == "9ce6031753f2505a54de731b0a20fcae9d9a7bc734fca9030557871c28038528"


def test_a_synthetic_set_has_the_real_sizes_and_is_labeled(tmp_path: Path) -> None:
    loaded = data.load(MNIST, "synthetic", None, tmp_path, 100)
    assert (len(loaded.train), len(loaded.test)) == (60_000, 100)
    assert loaded.kind == "synthetic"


def test_the_classes_of_photos_can_be_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synthetic, "PHOTOS", {"train": 60, "test": 20})
    loaded = data.load(CATDOG, "synthetic", None, tmp_path, None)
    again = data.load(CATDOG, "synthetic", None, tmp_path / "elsewhere", 5)
    assert loaded.digest == again.digest
    assert isinstance(loaded.train, Photos)
    assert isinstance(loaded.test, Photos)
    assert (len(loaded.train), len(loaded.test), len(again.test)) == (60, 20, 5)
    assert loaded.train.augment == CATDOG.augment
    assert loaded.test.augment is None
    images = read_photos(Photos(loaded.train.paths, loaded.train.labels, (64, 64)), 2)
    # Vertical stripes vary along the rows, horizontal ones along the columns.
    across = np.abs(np.diff(images, axis=2)).mean(axis=(1, 2, 3)) > np.abs(np.diff(images, axis=1)).mean(axis=(1, 2, 3))
    assert (across == (loaded.train.labels == 1)).mean() > 0.9
