"""Read pictures of strangers: any JPEG, PNG or WebP file, whatever its color mode, orientation and size.

Only the confined worker imports this module, because a file may attack the decoders.
"""

import io
import struct
import warnings
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import ExifTags, Image, UnidentifiedImageError

from scenarios.data.photos import source_indices
from scenarios.data.readers import Bytes

FORMATS = ("JPEG", "PNG", "WEBP")
THUMBNAIL = 256  # pixels of the longer side
WHITE = (255, 255, 255, 255)
# EXIF 2.3, tag 0x0112: how to turn the picture upright. 1: not at all.
TURNED = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
DAMAGE = (OSError, SyntaxError, ValueError, TypeError, LookupError, EOFError, struct.error)  # documented for decoders


class UnreadablePicture(ValueError):
    """A file is not a picture that can be read. The text says why, without the file's name."""


def read_picture(path: Path) -> Image.Image:
    """Decode a picture and turn it upright as its EXIF data says. Of an animation, return the first frame.

    Raise UnreadablePicture for each documented error of a decoder. Any other exception is a fault of the file, too, for
    example MemoryError.
    """
    assert Image.MAX_IMAGE_PIXELS is not None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow warns of pictures that it can read
            with Image.open(path, formats=FORMATS) as image:
                image.load()
                return _upright(image)
    except UnidentifiedImageError as error:
        raise UnreadablePicture("It is not a JPEG, PNG or WebP file.") from error
    except Image.DecompressionBombError as error:
        most = 2 * Image.MAX_IMAGE_PIXELS // 1_000_000
        raise UnreadablePicture(f"It has more than {most} million pixels. Scale it down.") from error
    except DAMAGE as error:
        raise UnreadablePicture(f"It is damaged: {error}.") from error


def _upright(image: Image.Image) -> Image.Image:
    """Turn a picture as its EXIF data says. If this data is damaged, leave the picture as it is, as viewers do.

    `ImageOps.exif_transpose` also writes all EXIF data again, and fails if another part of it is damaged.
    """
    try:
        turned = TURNED.get(image.getexif().get(ExifTags.Base.Orientation, 1))
    except DAMAGE:
        turned = None
    return image.copy() if turned is None else image.transpose(turned)


def scale(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    """Return the picture scaled to `size` (H, W) like a photo of the training set, in its own color mode.

    This only copies rows and columns, so it needs little memory, also for a large picture.
    """
    height, width = size
    if image.width > image.height:  # the longer side first, or a strip of a pixel in height would need much memory
        return _scale_height(_scale_width(image, width), height)
    return _scale_width(_scale_height(image, height), width)


def _scale_height(image: Image.Image, height: int) -> Image.Image:
    found = image.crop((0, 0, image.width, height))  # with the palette; all pixels are replaced
    for place, row in enumerate(source_indices(image.height, height).tolist()):
        found.paste(image.crop((0, row, image.width, row + 1)), (0, place))
    return found


def _scale_width(image: Image.Image, width: int) -> Image.Image:
    found = image.crop((0, 0, width, image.height))
    for place, column in enumerate(source_indices(image.width, width).tolist()):
        found.paste(image.crop((column, 0, column + 1, image.height)), (place, 0))
    return found


def to_pixels(image: Image.Image, shape: tuple[int, int, int]) -> Bytes:
    """Return the picture as a network sees it: scaled, 8 bits, (H, W, C) with three channels RGB or one of gray."""
    # Scaling first gives the same result, because it only copies pixels, and needs less memory.
    found = to_rgb(scale(image, shape[:2])).convert("L" if shape[2] == 1 else "RGB")
    return np.asarray(found, np.uint8).reshape(shape)


def to_rgb(image: Image.Image) -> Image.Image:
    """Return the picture in RGB with 8 bits per channel. What is transparent becomes white."""
    if image.mode.startswith("I"):  # gray with 16 bits; Pillow itself reduces colors with 16 bits
        gray: npt.NDArray[np.float64] = np.asarray(image, np.float64) / 257  # 65535 becomes 255
        image = Image.fromarray(np.rint(gray).clip(0, 255).astype(np.uint8))
    if image.has_transparency_data:
        colors = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", colors.size, WHITE), colors)
    return image.convert("RGB")


def make_thumbnail(image: Image.Image) -> bytes:
    """Return a small JPEG file of the picture, without its metadata."""
    shrink = max(1.0, max(image.size) / (4 * THUMBNAIL))
    height, width = (max(1, round(side / shrink)) for side in (image.height, image.width))
    small = to_rgb(scale(image, (height, width)))  # cheap, then smooth
    small.thumbnail((THUMBNAIL, THUMBNAIL), Image.Resampling.LANCZOS)
    file = io.BytesIO()
    Image.fromarray(np.asarray(small)).save(file, "JPEG", quality=85)  # without what `small.info` holds
    return file.getvalue()
