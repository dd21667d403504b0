"""Test the photo pipeline: the affine map against a float64 reference, random draws, threads, broken files."""

from __future__ import annotations

import math
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import ExifTags, Image

from scenarios.adapter import Photos
from scenarios.data.augment import Matrix, draw_maps, normalize_maps, warp
from scenarios.data.errors import DataCorrupt
from scenarios.data.photos import PhotoLoader, cache_photos, decode, decode_photos, read_photos, scale
from scenarios.spec import Augment

SIZE = (24, 32)
STRONG = Augment(shear=20.0, zoom=0.4, flip=True)


def reference_warp(image: npt.NDArray[np.uint8], matrix: Matrix) -> npt.NDArray[np.float64]:
    """Interpolate bilinearly by the definition, with edge pixels repeated outside."""
    height, width = image.shape[:2]
    rows, columns = np.mgrid[0:height, 0:width]
    x, y = np.tensordot(matrix[:, :2], np.stack([columns, rows]), 1) + matrix[:, 2, None, None]
    left, top = np.floor(x).astype(int), np.floor(y).astype(int)
    total = np.zeros(image.shape)
    for dy, dx in ((0, 0), (0, 1), (1, 0), (1, 1)):
        weight = (1 - abs(x - left - dx)) * (1 - abs(y - top - dy))
        total += weight[..., None] * image[(top + dy).clip(0, height - 1), (left + dx).clip(0, width - 1)]
    return total


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1000))
def test_warp_agrees_with_the_reference(seed: int) -> None:
    rng = np.random.default_rng(seed)
    image = rng.integers(0, 256, (*SIZE, 3), dtype=np.uint8)
    matrix = draw_maps(STRONG, SIZE, 1, rng)[0]
    assert np.abs(reference_warp(image, matrix) - warp(image, matrix)).max() < 0.51  # rounded to bytes


def test_normalized_maps_are_the_same_maps() -> None:
    def normalized_point(point: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return 2 * point / (np.array(SIZE[::-1]) - 1) - 1

    rng = np.random.default_rng(0)
    maps = draw_maps(STRONG, SIZE, 20, rng)
    for matrix, moved in zip(maps, normalize_maps(maps, SIZE), strict=True):
        point = rng.uniform(0, 30, 2)
        expected = normalized_point(matrix @ [*point, 1])
        np.testing.assert_allclose(moved @ [*normalized_point(point), 1], expected, atol=1e-12)


def keras_matrix(shear: float, zx: float, zy: float, height: int, width: int) -> Matrix:
    """Return the matrix of Keras' `apply_affine_transform` for an image with rows first, rewritten to (column, row)."""
    s = np.deg2rad(shear)
    matrix = np.array([[1, -np.sin(s), 0], [0, np.cos(s), 0], [0, 0, 1]]) @ np.diag([zx, zy, 1])
    cx, cy = width / 2 - 0.5, height / 2 - 0.5
    there = np.array([[1, 0, cx], [0, 1, cy], [0, 0, 1]])
    back = np.array([[1, 0, -cx], [0, 1, -cy], [0, 0, 1]])
    return (there @ matrix @ back)[:2]


def test_maps_are_those_of_keras_within_the_ranges() -> None:
    maps = draw_maps(STRONG, SIZE, 4000, np.random.default_rng(0))
    linear = maps[:, :, :2]
    zoom_x = np.abs(linear[:, 0, 0])
    shear = np.rad2deg(np.arctan2(-linear[:, 0, 1], linear[:, 1, 1]))
    zoom_y = np.hypot(linear[:, 0, 1], linear[:, 1, 1])
    for values, low, high in ((zoom_x, 0.6, 1.4), (zoom_y, 0.6, 1.4), (shear, -20, 20)):
        assert low <= values.min() < low + 0.01 * (high - low)
        assert high - 0.01 * (high - low) < values.max() <= high
    assert abs(np.corrcoef(zoom_x, zoom_y)[0, 1]) < 0.06
    mirrored = linear[:, 0, 0] < 0
    assert 0.46 < mirrored.mean() < 0.54
    for index in (int(np.argmax(mirrored)), int(np.argmin(mirrored))):
        expected = keras_matrix(shear[index], zoom_x[index], zoom_y[index], *SIZE)
        if mirrored[index]:  # Keras flips the result: the column of the output is counted from the other side
            expected = expected @ np.array([[-1, 0, SIZE[1] - 1], [0, 1, 0], [0, 0, 1]])
        np.testing.assert_allclose(maps[index], expected, atol=1e-9)


def test_without_zoom_and_shear_an_image_is_kept_or_mirrored() -> None:
    image = np.random.default_rng(0).integers(0, 256, (*SIZE, 3), dtype=np.uint8)
    seen = {warp(image, m).tobytes() for m in draw_maps(Augment(0, 0, flip=True), SIZE, 20, np.random.default_rng(0))}
    assert seen == {image.tobytes(), image[:, ::-1].tobytes()}


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Photos:
    folder = tmp_path_factory.mktemp("photos")
    rng = np.random.default_rng(0)
    paths = []
    for index in range(11):
        paths.append(folder / f"{index}.jpg")
        Image.fromarray(rng.integers(0, 256, (3, 4, 3), dtype=np.uint8)).resize((50, 40)).save(paths[-1])
    return Photos(paths, np.arange(11) % 2, SIZE, STRONG)


def test_batches_do_not_depend_on_the_threads(photos: Photos) -> None:
    one, four = (list(PhotoLoader(photos, 4, seed=1, epoch=2, workers=n)) for n in (1, 4))
    assert [len(labels) for _, labels in one] == [4, 4, 3]
    for (images, labels), (other_images, other_labels) in zip(one, four, strict=True):
        np.testing.assert_array_equal(images, other_images)
        np.testing.assert_array_equal(labels, other_labels)
    assert len(PhotoLoader(photos, 4, seed=1, epoch=2, workers=1)) == 3


@pytest.mark.parametrize("augment", [None, STRONG, Augment()])
def test_cached_photos_give_the_same_batches(photos: Photos, augment: Augment | None) -> None:
    some = replace(photos, augment=augment)
    cache = cache_photos(some, decode_photos(some, 2))
    for epoch in range(20):
        loaded, cached = (PhotoLoader(some, 4, 0, epoch, 2, known) for known in (None, cache))
        for (images, labels), (others, other_labels) in zip(loaded, cached, strict=True):
            np.testing.assert_array_equal(images, others)
            np.testing.assert_array_equal(labels, other_labels)


def test_every_photo_once_an_epoch_in_another_order_and_with_its_label(photos: Photos) -> None:
    plain = Photos(photos.paths, photos.labels, photos.size)
    whole = read_photos(plain, workers=2)
    assert whole.shape == (11, *SIZE, 3)
    assert whole.dtype == np.float32
    assert 0.5 < whole.max() <= 1
    orders = []
    for seed, epoch in ((0, 0), (0, 1), (1, 0)):
        order = []
        for images, labels in PhotoLoader(plain, 4, seed, epoch, workers=2):
            for image, label in zip(images, labels, strict=True):
                (index,) = np.flatnonzero((whole == image).all(axis=(1, 2, 3)))
                assert plain.labels[index] == label
                order.append(int(index))
        assert sorted(order) == list(range(11))
        orders.append(order)
    assert len({tuple(order) for order in orders}) == 3


def test_a_photo_is_augmented_differently_each_epoch(photos: Photos) -> None:
    one = Photos(photos.paths[:1], photos.labels[:1], SIZE, STRONG)
    first, second = (next(iter(PhotoLoader(one, 1, 0, epoch, 1)))[0] for epoch in (0, 1))
    assert np.abs(first - second).mean() > 0.01


def test_orientation_is_ignored(tmp_path: Path) -> None:
    upright = Image.fromarray(np.tile(np.arange(0, 256, 8, dtype=np.uint8), (24, 1))).convert("RGB")
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6  # rotate by 90 degrees
    upright.save(tmp_path / "plain.jpg")
    upright.save(tmp_path / "turned.jpg", exif=exif)
    np.testing.assert_array_equal(*(decode(tmp_path / f"{name}.jpg", SIZE) for name in ("plain", "turned")))


def test_an_unreadable_photo_is_named(photos: Photos, tmp_path: Path) -> None:
    broken = tmp_path / "train" / "dogs" / "dog.7.jpg"
    broken.parent.mkdir(parents=True)
    broken.write_bytes(Path(photos.paths[0]).read_bytes()[:-200])
    mixed = Photos([*photos.paths, broken], np.zeros(12, np.int64), SIZE)
    with pytest.raises(DataCorrupt, match=r"train/dogs/dog\.7\.jpg is not a readable JPEG"):
        list(PhotoLoader(mixed, 4, 0, 0, 3))
    with pytest.raises(DataCorrupt, match=r"dog\.7\.jpg"):
        read_photos(mixed, 2)
    broken.write_bytes(b"GIF89a")
    with pytest.raises(DataCorrupt, match=r"dog\.7\.jpg"):
        decode(broken, SIZE)


def test_a_read_that_returns_less_than_the_file_is_completed(photos: Photos, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, read = decode(photos.paths[0], SIZE), os.read
    monkeypatch.setattr(os, "read", lambda descriptor, count: read(descriptor, count // 2))
    assert np.array_equal(decode(photos.paths[0], SIZE), whole)


def test_a_closed_iterator_stops_its_threads(photos: Photos) -> None:
    batches = iter(PhotoLoader(photos, 1, 0, 0, 2))
    next(batches)
    assert any(thread.name.startswith("photos") for thread in threading.enumerate())
    batches.close()  # type: ignore[attr-defined]
    assert not any(thread.name.startswith("photos") for thread in threading.enumerate())


def test_at_most_two_batches_per_worker_are_loaded_in_advance(photos: Photos, monkeypatch: pytest.MonkeyPatch) -> None:
    submitted = []
    genuine = ThreadPoolExecutor.submit
    monkeypatch.setattr(
        ThreadPoolExecutor, "submit", lambda self, *call: submitted.append(call) or genuine(self, *call)
    )
    batches = iter(PhotoLoader(photos, 1, 0, 0, 2))
    next(batches)
    assert len(submitted) == 2 * 2
    next(batches)
    assert len(submitted) == 2 * 2 + 1
    batches.close()  # type: ignore[attr-defined]


@settings(max_examples=60, deadline=None)
@given(length=st.integers(1, 700), scaled=st.integers(1, 300))
@example(length=500, scaled=150)  # positions between two pixels, which float32 and accumulated sums round down
@example(length=168, scaled=100)
def test_scaling_takes_the_nearest_pixel_in_exact_arithmetic(length: int, scaled: int) -> None:
    expected = [math.floor((i + Fraction(1, 2)) * Fraction(length, scaled)) for i in range(scaled)]
    numbers = np.arange(length, dtype=np.uint16)
    pixels = np.stack([numbers % 256, numbers // 256], axis=-1).astype(np.uint8)
    for image, size in ((pixels[None], (1, scaled)), (pixels[:, None], (scaled, 1))):
        found = scale(image, size).reshape(scaled, 2).astype(int)
        assert (found[:, 0] + 256 * found[:, 1]).tolist() == expected


@pytest.mark.parametrize("size", [(64, 64), (128, 128)])
def test_photos_are_those_of_pillow_at_the_sizes_of_the_catalog(tmp_path: Path, size: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    for height, width in [(375, 500), (499, 333), (64, 128), (50, 41), (768, 1050)]:
        Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8)).save(tmp_path / "noise.jpg")
        exact = np.asarray(Image.open(tmp_path / "noise.jpg").resize(size[::-1], Image.Resampling.NEAREST)).astype(int)
        assert np.abs(decode(tmp_path / "noise.jpg", size) - exact).max() <= 1
