"""Read from the weights of a linear network what the timed loop trains on: order, images and augmentation.

Each image has its own label. One more output is no image's label. The weights start at zero and the learning rate is
tiny, so all outputs stay equal. Then each step adds to the difference between the column of an image's label and the
last column: rate / batch size * image, and rate / batch size to the bias.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from scenarios.adapter import Adapter, Arrays, Images, Photos, TrainSet
from scenarios.contract.cell import Precision
from scenarios.contract.result import Check
from scenarios.proof import photos
from scenarios.proof.distances import WRONG, judged
from scenarios.proof.loop import Steps
from scenarios.proof.reference import Array
from scenarios.spec import DATASETS, Augment, Conv, Dense, Dropout, Flatten, Layer, MaxPool, Scenario, Sgd, parameters
from scenarios.weights import Weights

RATE = 1e-6
BATCH, LAST = 32, 16  # powers of two, because 1 / batch size must be exact in bf16
# Height and width of an image. The feed does not depend on it, and larger images would take longer. Also, a product of
# 32 rows of 128 * 128 * 3 values ends PyTorch 2.13 with SIGFPE in bf16 on CPUs with AMX (oneDNN).
MAX_SIDE = 64
COUNT = 2 * BATCH + LAST
SHARES_TOLERANCE = {"fp32": 1e-2, "tf32": 1e-2, "bf16": 5e-2}  # relative
IMAGES_TOLERANCE = {"fp32": 2e-2, "tf32": 2e-2, "bf16": 4e-2}  # of full scale
# Relative. Five standard deviations of the root mean square of 160 uniform draws are 0.18. The rounding of colors adds
# up to 0.05 to the angles of photos of 48x48 pixels.
AUGMENT_TOLERANCE = 0.25
FLIP_TOLERANCE = 0.2  # five standard deviations of the mean of 160 draws
MAP_TOLERANCE = {"fp32": 3.5e-3, "tf32": 3.5e-3, "bf16": 7e-3}  # of full scale
EPOCHS = 2


def checks(adapter: Adapter, scenario: Scenario, seed: int, precision: Precision, folder: Path) -> Iterator[Check]:
    """Yield the checks of two epochs. folder: for photos, which are removed by the caller."""
    network = probe_network(scenario)
    start = _weights(network)
    model = adapter.build(network, start)
    train, shown = make_set(network, seed, folder)
    last, seen = list[frozenset[int]](), list[Array]()
    wrong_shares = 0.0
    for epoch in range(EPOCHS):
        model.load(start)
        model.train_epoch(train, epoch, Steps())
        shares, images = _read(network, model.weights())
        expected = np.repeat([1 / BATCH, 1 / LAST], [2 * BATCH, LAST])
        wrong_shares = max(wrong_shares, _error(np.sort(shares) / expected - 1))
        last.append(frozenset(np.argsort(shares)[-LAST:].tolist()))
        seen.append(images)
    yield judged("feed: each image once", wrong_shares, SHARES_TOLERANCE[precision])
    yield judged("feed: another order in each epoch", float(last[0] == last[1]), 0.0)
    if scenario.augment is None:
        yield judged(
            "feed: images",
            _error(np.concatenate(seen) - np.tile(shown, (EPOCHS, 1, 1, 1))),
            IMAGES_TOLERANCE[precision],
        )
    else:
        yield from _augmentation_checks(scenario.augment, np.concatenate(seen), precision)


def probe_network(scenario: Scenario) -> Scenario:
    """Return a linear network for images of this scenario, of at most MAX_SIDE rows and columns.

    It has one layer of each kind that the scenario has, so that the settings of the scenario apply. These change
    nothing: a convolution of one pixel with the unit matrix, a pool of one pixel and Dropout at rate 0.
    """
    neutral: dict[type[Layer], Layer] = {
        Conv: Conv(scenario.image[2], kernel=1),
        MaxPool: MaxPool(1),
        Dropout: Dropout(0.0),
    }
    kinds = dict.fromkeys(type(layer) for layer in scenario.layers)
    layers = tuple(neutral[kind] for kind in kinds if kind in neutral)
    head = Flatten(), Dense(COUNT + 1, activation="linear")
    height, width, channels = scenario.image
    return replace(
        scenario,
        image=(min(height, MAX_SIDE), min(width, MAX_SIDE), channels),
        layers=(*layers, *head),
        loss="categorical",
        optimizer=Sgd(RATE),
        batch=BATCH,
    )


def make_set(network: Scenario, seed: int, folder: Path) -> tuple[TrainSet, Images]:
    """Return COUNT images with the labels 0, 1, 2, ..., and their pixels without augmentation, (COUNT, H, W, C).

    Arrays are noise. In photos, red grows with the column and green with the row. Blue is the number of the photo. The
    files are larger, so the training loop has to scale them.
    """
    labels = np.arange(COUNT)
    if DATASETS[network.dataset].shape is not None:
        noise = np.random.default_rng(seed).random((COUNT, *network.image), dtype=np.float32)
        return Arrays(noise, labels), noise
    height, width = network.image[:2]
    pixels = np.zeros((COUNT, height, width, 3))
    pixels[..., 0] = np.linspace(0, 255, width)
    pixels[..., 1] = np.linspace(0, 255, height)[:, np.newaxis]
    pixels[..., 2] = _blue()[:, np.newaxis, np.newaxis]
    paths = [folder / f"{index}.jpg" for index in labels]
    for path, photo in zip(paths, pixels, strict=True):
        photos.save(path, photos.enlarge(np.rint(photo).astype(np.uint8)))
    shown = np.stack([photos.read(path, (height, width)) for path in paths])
    return Photos(paths, labels, (height, width), network.augment), np.divide(shown, np.float32(255))


def _weights(network: Scenario) -> Weights:
    weights = {p.name: np.zeros(p.shape, np.float32) for p in parameters(network)}
    for name, kernel in weights.items():
        if kernel.ndim == 4:
            weights[name] = np.eye(kernel.shape[2], dtype=np.float32)[np.newaxis, np.newaxis]
    return weights


def _read(network: Scenario, weights: Weights) -> tuple[Array, Array]:
    """Return 1 / batch size of each image's batch, (COUNT,), summed if it was in several, and the images."""
    last = len(network.layers) - 1
    kernel, bias = (weights[f"{last}/{part}"].astype(np.float64) for part in ("kernel", "bias"))
    shares = (bias[:-1] - bias[-1]) / RATE
    with np.errstate(divide="ignore", invalid="ignore"):
        images = (kernel[:, :-1] - kernel[:, -1:]) / RATE / shares
    return shares, images.T.reshape(COUNT, *network.image)


def _error(differences: Array) -> float:
    return float(np.abs(differences).max()) if np.isfinite(differences).all() else WRONG


# ---- augmentation ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Maps:
    """The maps of several photos.

    residual: root mean square distance of the colors from those of affine maps, of full scale. shear: in degrees.
    zoom: (2, N), of columns and rows. flipped: (N,).
    """

    residual: float
    shear: Array
    zoom: Array
    flipped: Array


def _augmentation_checks(augment: Augment, images: Array, precision: Precision) -> Iterator[Check]:
    """Yield a check for each parameter. If values are uniform in +-limit, their root mean square is limit / sqrt(3)."""
    numbers = images[..., 2].mean(axis=(1, 2)) - np.tile(_blue(), EPOCHS) / 255
    yield judged("feed: photos", _error(numbers), IMAGES_TOLERANCE[precision])
    if not np.isfinite(images).all():
        yield judged("augmentation", WRONG, MAP_TOLERANCE[precision])
        return
    maps = fit_maps(augment, images)
    yield judged("augmentation: affine", maps.residual, MAP_TOLERANCE[precision])
    for name, found, limit in (
        ("degrees of shear", maps.shear, augment.shear),
        ("zoom of columns", maps.zoom[0] - 1, augment.zoom),
        ("zoom of rows", maps.zoom[1] - 1, augment.zoom),
    ):
        error = abs(float(np.sqrt(3 * np.mean(found**2))) - limit)
        yield judged(f"augmentation: {name}", error, AUGMENT_TOLERANCE * limit)
    flips = abs(float(maps.flipped.mean()) - augment.flip / 2)
    yield judged("augmentation: flips", flips, FLIP_TOLERANCE if augment.flip else 0.0)


def fit_maps(augment: Augment, images: Array) -> Maps:
    """Fit the affine map of each photo (N, H, W, 3) to its colors by least squares, about the center.

    The fit leaves out a margin, where the photo may show repeated edge pixels. See `scenarios.data.augment.draw_maps`.
    """
    height, width = images.shape[1:3]
    shift = np.sin(np.deg2rad(augment.shear)) * max(height / width, width / height)
    inside = 0.98 / ((1 + augment.zoom) * (1 + shift))
    half_width, half_height = (width - 1) / 2, (height - 1) / 2
    columns, rows = np.meshgrid(np.arange(width) - half_width, np.arange(height) - half_height)
    chosen = (np.abs(columns) <= inside * half_width) & (np.abs(rows) <= inside * half_height)
    design = np.stack([columns[chosen], rows[chosen]], axis=1)
    positions = (images[:, chosen, :2] * 2 - 1) * [half_width, half_height]  # (N, pixels, column and row)
    flat = positions.transpose(1, 0, 2).reshape(len(design), -1)
    found, *_ = np.linalg.lstsq(design, flat, rcond=None)
    distances = (design @ found - flat).reshape(-1, 2) / [width - 1, height - 1]
    residual = float(np.sqrt(np.mean(distances**2)))
    by_column, by_row = found.reshape(2, len(images), 2)  # each (N, column and row of the original)
    return Maps(
        residual,
        shear=np.rad2deg(np.arctan2(-by_row[:, 0], by_row[:, 1])),
        zoom=np.stack([np.abs(by_column[:, 0]), np.hypot(by_row[:, 0], by_row[:, 1])]),
        flipped=by_column[:, 0] < 0,
    )


def _blue() -> Array:
    return 255 * np.arange(1.0, COUNT + 1) / (COUNT + 1)
