"""Make unusual pictures: color modes, depths, orientations, sizes and faults that users' files have."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

SIZE = (80, 60)  # width, height
FAULTY = {
    "truncated.jpg": "It is damaged: ",
    "text.png": "It is not a JPEG, PNG or WebP file.",
    "bomb.png": "It has more than 178 million pixels.",
    "empty.webp": "It is not a JPEG, PNG or WebP file.",
    "other.jpg": "It is not a JPEG, PNG or WebP file.",
}


def gradient() -> Image.Image:
    """Return an RGB picture whose red grows to the right and whose green grows downwards."""
    width, height = SIZE
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[..., 0] = np.linspace(0, 255, width)
    pixels[..., 1] = np.linspace(0, 255, height)[:, np.newaxis]
    return Image.fromarray(pixels)


def make_unusual(folder: Path) -> list[Path]:
    """Write ten pictures that every kind of prediction must read."""
    picture, paths = gradient(), []

    def save(name: str, image: Image.Image, **options: object) -> None:
        image.save(folder / name, **options)
        paths.append(folder / name)

    exif = Image.Exif()
    exif[0x0112] = 6  # orientation: rotate by 90 degrees to see it upright
    gray = np.linspace(0, 65535, SIZE[0] * SIZE[1]).reshape(SIZE[1], SIZE[0]).astype(np.uint16)
    clear = picture.convert("RGBA")
    clear.putalpha(0)
    save("gray.jpg", picture.convert("L"))
    save("cmyk.jpg", picture.convert("CMYK"))
    save("rotated.jpg", picture, exif=exif)
    save("transparent.png", clear)
    save("gray16.png", Image.fromarray(gray))
    save("palette.png", picture.quantize(16))
    save("bits.png", picture.convert("1"))
    save("tiny.png", Image.new("RGB", (1, 1), (255, 0, 0)))
    save("large.jpg", picture.resize((6000, 4000)))
    frames = [Image.new("RGB", SIZE, color) for color in ("red", "blue")]
    save("animated.webp", frames[0], save_all=True, append_images=frames[1:], lossless=True)
    return paths


def make_faulty(folder: Path) -> list[Path]:
    """Write the files of FAULTY, which are no pictures or cannot be read."""
    whole = folder / "truncated.jpg"
    gradient().save(whole)
    whole.write_bytes(whole.read_bytes()[:-200])
    (folder / "text.png").write_text("This is not a picture.")
    Image.new("1", (20_000, 10_000)).save(folder / "bomb.png")
    (folder / "empty.webp").write_bytes(b"")
    gradient().save(folder / "other.jpg", "TIFF")
    return [folder / name for name in FAULTY]
