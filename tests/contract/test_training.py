"""Training: an epoch has every image once, in its own order, and counts and times the steps; and the model learns.

The weights show which images a step used. A dense network without hidden layer starts from zero and has a tiny learning
rate. Each image adds (1 - 1/classes) * rate / batch * image to the column of its label. An image with a single bright
pixel leaves a mark there, which is larger if its batch was smaller.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image
from toys import RecordingMeter, noise, save_photo, toy, zeros

from scenarios.adapter import Adapter, Arrays, Meter, Model, Photos, TrainSet
from scenarios.contract.request import Budget
from scenarios.data.augment import draw_maps, warp
from scenarios.data.errors import DataProblem
from scenarios.measuring.window_meter import WindowMeter
from scenarios.proof import reference
from scenarios.spec import Activation, Adam, Augment, Conv, Dense, Flatten, MaxPool, Sgd
from scenarios.weights import check_weights

RATE = 1e-3
COUNT, BATCH, LAST = 35, 8, 3
ARRAYS = toy(image=(6, 6, 1), optimizer=Sgd(RATE), batch=BATCH)
PHOTOS = toy(image=(48, 48, 3), optimizer=Sgd(RATE), batch=BATCH, dataset="cats-dogs")
LABELS = np.arange(COUNT) % 4


def marked_arrays() -> Arrays:
    return Arrays(np.eye(COUNT, 36, dtype=np.float32).reshape(COUNT, 6, 6, 1), LABELS)


def marked_photos(folder: Path) -> Photos:
    """Return black photos with one white square each, aligned to JPEG's blocks of 8 x 8 pixels."""
    paths = []
    for index in range(COUNT):
        pixels = np.zeros((48, 48, 3), np.uint8)
        row, column = 8 * (index // 6), 8 * (index % 6)
        pixels[row : row + 8, column : column + 8] = 255
        paths.append(save_photo(folder / f"{index}.jpg", pixels))
    return Photos(paths, LABELS, (48, 48))


def shares(model: Model) -> npt.NDArray[np.float64]:
    """Return the weight of each marked image over all steps: 1 / batch for each time that it was used."""
    kernel = model.weights()["1/kernel"]
    if len(kernel) > 36:
        kernel = kernel.reshape(6, 8, 6, 8, 3, 4)[:, 4, :, 4, 0].reshape(36, 4)
    return np.asarray(kernel[np.arange(COUNT), LABELS] / (RATE * 0.75), np.float64)


@pytest.mark.parametrize("kind", ["arrays", "photos"])
def test_an_epoch_has_every_image_once_in_its_own_order(adapter: Adapter, kind: str, tmp_path: Path) -> None:
    scenario = ARRAYS if kind == "arrays" else PHOTOS
    train: TrainSet = marked_arrays() if kind == "arrays" else marked_photos(tmp_path)
    model = adapter.build(scenario, zeros(scenario))
    last = []
    for epoch in (0, 1, 0):
        model.load(zeros(scenario))
        meter = RecordingMeter()
        sums = model.train_epoch(train, epoch, meter)
        assert meter.events == ["begin", *[BATCH] * 4, LAST]
        assert sums.images == COUNT
        assert sums.loss == pytest.approx(COUNT * np.log(4), rel=1e-2)
        found = shares(model)
        in_last = np.abs(found - 1 / LAST) < 0.01
        assert in_last.sum() == LAST, found
        assert found[~in_last] == pytest.approx(1 / BATCH, rel=0.03)
        last.append(set(np.flatnonzero(in_last)))
    assert last[0] != last[1], "two epochs in the same order"
    assert last[0] == last[2], "the order must depend only on seed and epoch"


def test_the_same_seed_and_epoch_train_the_same(adapter: Adapter) -> None:
    scenario = toy(optimizer=Sgd(1.0))
    train, weights = Arrays(*noise(scenario, 44)), check_weights(scenario, 1)

    def trained(epoch: int) -> npt.NDArray[np.float32]:
        model = adapter.build(scenario, weights)
        model.train_epoch(train, epoch, RecordingMeter())
        return model.weights()["1/kernel"]

    first = trained(3)
    assert trained(3) == pytest.approx(first, abs=1e-4)
    assert np.abs(trained(4) - first).max() > 1e-2


@pytest.mark.parametrize(("activation", "units"), [("softmax", 4), ("linear", 4), ("sigmoid", 4), ("sigmoid", 1)])
def test_sums_are_those_of_the_network(adapter: Adapter, activation: Activation, units: int) -> None:
    scenario = toy((Flatten(), Dense(6)), activation, units=units, optimizer=Sgd(1e-7))
    count = 80 * scenario.batch + 3  # more steps than an adapter may sum at once
    weights, (images, labels) = check_weights(scenario, 2), noise(scenario, count)
    logits = reference.forward(scenario, weights, images)
    model = adapter.build(scenario, weights)
    for epoch in range(2):  # each has its own sums
        sums = model.train_epoch(Arrays(images, labels), epoch, RecordingMeter())
        assert sums.images == count
        assert sums.loss == pytest.approx(reference.losses(scenario, logits, labels).sum(), rel=1e-4)
        assert sums.correct == (reference.predictions(scenario, logits) == labels).sum()


def test_the_meter_ends_windows_and_stops_training(adapter: Adapter) -> None:
    model = adapter.build(ARRAYS, zeros(ARRAYS))
    meter = RecordingMeter(window=2, windows=2)
    sums = model.train_epoch(marked_arrays(), 0, meter)
    assert meter.events == ["begin", BATCH, BATCH, "mark", BATCH, BATCH, "mark"]
    assert sums.images == 4 * BATCH
    assert (shares(model) > 0.01).sum() == 4 * BATCH, "a step was taken after the last window"
    meter = RecordingMeter()
    assert model.train_epoch(marked_arrays(), 1, meter).images == COUNT, "the next epoch is a whole one"
    assert meter.events == ["begin", *[BATCH] * 4, LAST]


@pytest.mark.parametrize("kind", ["arrays", "photos"])
def test_windows_contain_all_images_of_all_epochs_and_the_time_to_shuffle(
    adapter: Adapter, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On this clock only the drawing of an order takes time."""
    scenario, epochs = (ARRAYS if kind == "arrays" else PHOTOS), 3
    train: TrainSet = marked_arrays() if kind == "arrays" else marked_photos(tmp_path)
    now = 0.0

    def slowed(draw: Callable[..., Any]) -> Callable[..., Any]:
        def slow(*arguments: Any, **options: Any) -> Any:
            nonlocal now
            now += 100.0
            return draw(*arguments, **options)

        return slow

    monkeypatch.setattr(np.random, "default_rng", slowed(np.random.default_rng))
    if torch := sys.modules.get("torch"):
        monkeypatch.setattr(torch, "randperm", slowed(torch.randperm))
    steps = -(-COUNT // BATCH)
    meter = WindowMeter(Budget(steps=epochs * steps), steps, lambda: now)
    model = adapter.build(scenario, zeros(scenario))
    for epoch in range(epochs):
        model.train_epoch(train, epoch, meter)
    assert sum(window.images for window in meter.windows) == epochs * COUNT
    assert sum(window.boundaries for window in meter.windows) == epochs - 1
    assert sum(window.seconds for window in meter.windows) == now - meter.windows[0].start_at >= epochs * 100


class MeterError(RuntimeError):
    """Raised by a meter."""


def test_exceptions_of_the_meter_pass_through(adapter: Adapter) -> None:
    class Failing(RecordingMeter):
        def mark(self) -> bool:
            raise MeterError

    model = adapter.build(ARRAYS, zeros(ARRAYS))
    meter: Meter = Failing(window=2)
    with pytest.raises(MeterError):
        model.train_epoch(marked_arrays(), 0, meter)


def test_training_learns(adapter: Adapter) -> None:
    """Bright quadrants are four classes that a small network can distinguish."""
    scenario = toy((Conv(8), MaxPool(), Flatten(), Dense(16)), optimizer=Adam(1e-2), batch=16)
    images, _ = noise(scenario, 150)
    labels = np.arange(150) % 4
    for image, label in zip(images, labels, strict=True):
        image[5 * (label // 2) : 5 * (label // 2) + 5, 5 * (label % 2) : 5 * (label % 2) + 5] += 1
    images /= 2
    model = adapter.build(scenario, check_weights(scenario, 1))
    history = [model.train_epoch(Arrays(images, labels), epoch, RecordingMeter()) for epoch in range(6)]
    assert history[-1].loss < history[0].loss / 4
    assert history[-1].correct > 140 > history[0].correct
    assert (model.logits(images).argmax(axis=1) == labels).mean() > 0.95


AUGMENT = Augment(shear=15.0, zoom=0.3, flip=True)


def test_photos_are_augmented_as_specified(adapter: Adapter, tmp_path: Path) -> None:
    """With many copies of one photo, all of one class, the weights show the mean of the augmented images.

    It is compared with the mean over maps drawn by the specification.
    """
    pixels = np.zeros((32, 32, 3), np.uint8)
    pixels[:3] = pixels[-3:] = 255  # repeated outside, if a zoom shows more of the picture
    pixels[8:24, 2:14] = (255, 160, 80)
    copies, batch = 384, 64
    path = save_photo(tmp_path / "photo.jpg", pixels)
    train = Photos([path] * copies, np.zeros(copies, np.int64), (32, 32), AUGMENT)
    scenario = toy(image=(32, 32, 3), optimizer=Sgd(1e-5), batch=batch, dataset="cats-dogs")
    model = adapter.build(scenario, zeros(scenario))

    def mean_image(photos: Photos, epoch: int) -> npt.NDArray[np.float64]:
        model.load(zeros(scenario))
        assert model.train_epoch(photos, epoch, RecordingMeter()).images == copies
        column = model.weights()["1/kernel"][:, 0].reshape(32, 32, 3)
        return np.asarray(column / (1e-5 * 0.75 * copies / batch), np.float64)

    shown = np.asarray(Image.open(path).convert("RGB"))
    assert mean_image(replace(train, augment=None), 0) == pytest.approx(shown / 255, abs=0.01)
    maps = draw_maps(AUGMENT, (32, 32), 2000, np.random.default_rng(0))
    expected = np.mean([warp(shown, matrix) for matrix in maps], axis=0) / 255
    first, second = mean_image(train, 0), mean_image(train, 1)
    for found in (first, second):
        assert np.abs(found - expected).max() < 0.12  # four standard errors of a mean of 384
        assert np.abs(found - expected).mean() < 0.02
    assert np.abs(first - second).max() > 1e-3, "two epochs drew the same"


# Heights and widths. Scaled to 48 x 100, some have positions exactly between two pixels.
PHOTO_SIZES = [(48, 100), (32, 168), (224, 312), (7, 600), (448, 33), (375, 500)]


@pytest.mark.parametrize("encoding", [{"quality": 95}, {"quality": 75, "progressive": True}])  # both subsample colors
def test_photos_are_decoded_in_full_and_scaled_by_nearest_neighbor(
    adapter: Adapter, tmp_path: Path, encoding: dict[str, Any]
) -> None:
    """Photos of noise, also gray ones, are within one gray level of Pillow's pixels."""
    generator, paths, expected = np.random.default_rng(0), list[Path](), []
    for index, (height, width) in enumerate(PHOTO_SIZES):
        shape = (height, width, 3) if index % 2 else (height, width)
        paths.append(tmp_path / f"{index}.jpg")
        Image.fromarray(generator.integers(0, 256, shape, dtype=np.uint8)).save(paths[-1], **encoding)
        pixels = np.asarray(Image.open(paths[-1]).convert("RGB"))
        rows, columns = ((2 * np.arange(n) + 1) * m // (2 * n) for m, n in ((height, 48), (width, 100)))
        expected.append(pixels[rows][:, columns])
    found = adapter.read_photos(Photos(paths, np.zeros(len(paths), np.int64), (48, 100), AUGMENT))
    assert (found.shape, found.dtype) == ((len(paths), 48, 100, 3), np.float32)
    assert np.abs(255 * found - np.stack(expected)).max() < 1.001


def test_an_unreadable_photo_is_named(adapter: Adapter, tmp_path: Path) -> None:
    photos = marked_photos(tmp_path)
    broken = photos.paths[17]
    broken.write_bytes(broken.read_bytes()[:300])
    with pytest.raises(DataProblem, match=broken.name):
        adapter.read_photos(photos)
    model = adapter.build(PHOTOS, zeros(PHOTOS))
    with pytest.raises(DataProblem, match=broken.name):
        model.train_epoch(photos, 0, RecordingMeter())
