"""Test the reading of users' pictures: color modes, depths, orientation, sizes and faults."""

from __future__ import annotations

import io
import struct

import numpy as np
import pytest
from PIL import Image, ImageOps

from scenarios import prediction
from scenarios.catalog.catdog_cnn import SCENARIO
from scenarios.data import photos
from scenarios.data.photos import decode
from scenarios.data.pictures import (
    THUMBNAIL,
    UnreadablePicture,
    make_thumbnail,
    read_picture,
    scale,
    to_pixels,
    to_rgb,
)
from tests.pictures import FAULTY, gradient, make_faulty, make_unusual

SHAPE = (6, 8, 3)


@pytest.fixture
def unusual(tmp_path):
    return {path.name: path for path in make_unusual(tmp_path)}


def pixels(path, shape=SHAPE):
    return to_pixels(read_picture(path), shape).astype(int)


def test_each_unusual_picture_has_the_shape_of_the_network(unusual):
    assert len(unusual) == 10
    for path in unusual.values():
        for shape in (SHAPE, (28, 28, 1), (128, 128, 3)):
            found = to_pixels(read_picture(path), shape)
            assert (found.shape, found.dtype) == (shape, np.uint8)


@pytest.mark.parametrize("size", [(3_000_000, 1), (1, 3_000_000)])
def test_a_strip_of_a_pixel_in_height_or_width_is_scaled_in_little_memory(size, tmp_path):
    """Pillow refuses a crop of too many pixels, so the longer side must be scaled first."""
    Image.new("L", size, 7).save(tmp_path / "strip.png")
    found = pixels(tmp_path / "strip.png", (128, 128, 3))
    assert set(np.unique(found)) == {7}
    assert make_thumbnail(read_picture(tmp_path / "strip.png"))


@pytest.mark.parametrize("kind", ["jpg", "png", "webp"])
@pytest.mark.parametrize("exif", [b"Exif\0\0XX*\0not a TIFF header", b"Exif\0\0II"])
def test_damaged_exif_data_does_not_make_a_picture_unreadable(tmp_path, kind, exif):
    plain, damaged = tmp_path / f"plain.{kind}", tmp_path / f"damaged.{kind}"
    gradient().save(plain)
    gradient().save(damaged, exif=exif)
    assert np.array_equal(pixels(damaged), pixels(plain))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_picture_is_turned_as_by_pillow_also_if_another_part_of_its_exif_data_is_damaged(tmp_path, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    gradient().save(tmp_path / "whole.png", exif=exif)
    found = read_picture(tmp_path / "whole.png")
    with Image.open(tmp_path / "whole.png") as image:
        assert np.array_equal(np.asarray(found), np.asarray(ImageOps.exif_transpose(image)))
    bad = struct.pack("<HHIf", 0x010E, 11, 1, 1.0)  # a description that is a number
    good = struct.pack("<HHIHH", 0x0112, 3, 1, orientation, 0)
    tags = b"II*\0" + struct.pack("<IH", 8, 2) + bad + good + struct.pack("<I", 0)
    gradient().save(tmp_path / "damaged.png", exif=tags)
    assert np.array_equal(np.asarray(read_picture(tmp_path / "damaged.png")), np.asarray(found))


def test_color_modes_mean_the_same_colors(unusual):
    plain = to_pixels(gradient(), SHAPE).astype(int)
    assert np.abs(pixels(unusual["cmyk.jpg"]) - plain).max() < 16  # JPEG loses a little
    assert np.abs(pixels(unusual["palette.png"]) - plain).max() < 64
    assert np.ptp(pixels(unusual["gray.jpg"]), axis=2).max() == 0
    assert set(np.unique(pixels(unusual["bits.png"]))) == {0, 255}
    assert np.all(pixels(unusual["transparent.png"]) == 255)  # white shows through
    assert np.all(pixels(unusual["tiny.png"]) == (255, 0, 0))
    assert np.all(pixels(unusual["animated.webp"]) == (255, 0, 0))  # the first frame


def test_16_bits_are_scaled_to_8_bits(unusual):
    deep = np.asarray(Image.open(unusual["gray16.png"]), np.float64)
    found = np.asarray(to_rgb(read_picture(unusual["gray16.png"])))
    np.testing.assert_array_equal(found[..., 0], np.rint(deep * 255 / 65535))
    assert found.min() == 0
    assert found.max() == 255


def test_a_rotated_picture_is_turned_upright(unusual):
    upright = read_picture(unusual["rotated.jpg"])
    assert upright.size == (60, 80)
    corners = np.asarray(upright)[[0, 0, -1, -1], [0, -1, 0, -1], :2] > 128
    assert corners.tolist() == [[False, True], [False, False], [True, True], [True, False]]


@pytest.mark.parametrize("size", [SHAPE[:2], (64, 64), (97, 131)])
def test_a_picture_is_scaled_like_a_photo_of_the_training_set(unusual, size):
    photo = decode(unusual["large.jpg"], size).astype(int)
    assert np.abs(pixels(unusual["large.jpg"], (*size, 3)) - photo).max() <= 1  # the decoders round differently
    gray = np.asarray(Image.open(unusual["gray16.png"]))
    np.testing.assert_array_equal(np.asarray(scale(Image.fromarray(gray), size)), photos.scale(gray, size))


def test_a_file_that_is_no_picture_has_a_clear_fault(tmp_path):
    for path in make_faulty(tmp_path):
        with pytest.raises(UnreadablePicture) as raised:
            read_picture(path)
        assert str(raised.value).startswith(FAULTY[path.name])
        assert str(tmp_path) not in str(raised.value)


def test_a_thumbnail_is_small_and_has_no_metadata(unusual, tmp_path):
    exif = Image.Exif()
    exif[0x010E] = "secret"
    gradient().resize((3000, 2000)).save(tmp_path / "own.jpg", exif=exif, comment=b"secret")
    for path in (tmp_path / "own.jpg", *unusual.values()):
        small = make_thumbnail(read_picture(path))
        with Image.open(io.BytesIO(small), formats=["JPEG"]) as found:
            assert max(found.size) <= THUMBNAIL
            assert not found.getexif()
        assert b"secret" not in small


@pytest.mark.parametrize("step", ["read_picture", "to_pixels", "make_thumbnail"])
@pytest.mark.parametrize("error", [MemoryError(), ZeroDivisionError("x"), RecursionError("deep"), OSError(5, "codec")])
def test_whatever_a_decoder_raises_is_a_fault_of_its_picture(unusual, tmp_path, monkeypatch, step, error):
    def fail(*arguments):
        raise error

    monkeypatch.setattr(prediction, step, fail)
    found = prediction._read(unusual["gray.jpg"], SCENARIO, tmp_path / "thumbnail")
    assert found == f"It cannot be read ({type(error).__name__})."
    assert not (tmp_path / "thumbnail").exists()


def test_a_thumbnail_that_cannot_be_written_is_no_fault_of_its_picture(unusual, tmp_path):
    (tmp_path / "full").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left on device"):
        prediction._read(unusual["gray.jpg"], SCENARIO, tmp_path / "full")
