"""Read prepared data sets: IDX files, the binary version of CIFAR-10, folders of photos. Never unpickle anything.

Each function reads whole files and checks them strictly. It raises DataCorrupt if a file is too short, too long or
otherwise wrong, and DataUnavailable if it is missing.
"""

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt

from scenarios.data.errors import DataCorrupt, DataUnavailable
from scenarios.spec import Dataset

Bytes = npt.NDArray[np.uint8]

IDX_FILES = {
    "train": ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"),
    "test": ("t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"),
}
CIFAR_FILES = {
    "train": tuple(f"data_batch_{n}.bin" for n in range(1, 6)),
    "test": ("test_batch.bin",),
}
IDX_UBYTE = 0x08  # IDX type code of unsigned bytes


def image_files(folder: Path, dataset: Dataset) -> list[Path]:
    """Return the files of both parts of a set of images of one shape."""
    names = CIFAR_FILES if dataset.name == "cifar-10" else IDX_FILES
    return [folder / name for part in names.values() for name in part]


def read_images(folder: Path, dataset: Dataset, part: str) -> tuple[Bytes, Bytes]:
    """Return images (N, H, W, C) and labels (N,) of one part, "train" or "test", of a set of images of one shape."""
    count = dataset.train if part == "train" else dataset.test
    assert dataset.shape is not None
    if dataset.name == "cifar-10":
        names = CIFAR_FILES[part]
        parts = [read_cifar(folder / name, count // len(names)) for name in names]
        images, labels = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    else:
        image_file, label_file = IDX_FILES[part]
        images = read_idx(folder / image_file, (count, *dataset.shape[:2]))[..., np.newaxis]
        labels = read_idx(folder / label_file, (count,))
    if labels.max() >= len(dataset.classes):
        raise _corrupt(folder, f"it has the label {labels.max()}, but there are only {len(dataset.classes)} classes")
    return images, labels


def read_idx(path: Path, shape: tuple[int, ...]) -> Bytes:
    """Read a gzip'ed IDX file of unsigned bytes that has exactly this shape.

    Format: two zero bytes, the type code, the number of dimensions, each dimension as a big-endian 32-bit number, then
    the data.
    """
    size = math.prod(shape)
    try:
        with gzip.open(path) as file:
            header = file.read(4 + 4 * len(shape))
            body = file.read(size + 1)
    except FileNotFoundError as error:
        raise _missing(path) from error
    except (OSError, EOFError, zlib.error) as error:
        raise _corrupt(path, f"it is not a complete gzip file ({error})") from error
    expected = struct.pack(f">BBBB{len(shape)}I", 0, 0, IDX_UBYTE, len(shape), *shape)
    if header != expected:
        raise _corrupt(path, f"the IDX header is {header.hex()}, expected {expected.hex()} for {shape}")
    if len(body) != size:
        raise _corrupt(path, f"it has {'fewer' if len(body) < size else 'more'} than {size:,} bytes of data")
    return np.frombuffer(body, np.uint8).reshape(shape)


def read_cifar(path: Path, count: int) -> tuple[Bytes, Bytes]:
    """Read one file of CIFAR-10's binary version: images (count, 32, 32, 3), labels (count,).

    Format: records of one label byte and 3072 pixel bytes, which are the red, green and blue planes, each 32 x 32 by
    rows.
    """
    try:
        size = path.stat().st_size
        if size != count * 3073:
            raise _corrupt(path, f"it has {size:,} bytes, expected {count * 3073:,}")
        records = np.fromfile(path, np.uint8, count * 3073).reshape(count, 3073)
    except FileNotFoundError as error:
        raise _missing(path) from error
    except (OSError, ValueError) as error:  # ValueError: it became shorter
        raise _corrupt(path, f"it cannot be read ({error})") from error
    return records[:, 1:].reshape(count, 3, 32, 32).transpose(0, 2, 3, 1), records[:, 0]


def list_photos(folder: Path, dataset: Dataset, part: str) -> tuple[list[Path], npt.NDArray[np.int64]]:
    """Return the JPEG files of `folder/part/<class>`, sorted by class, then by name, and their labels (N,)."""
    paths: list[Path] = []
    labels: list[int] = []
    for label, name in enumerate(dataset.classes):
        found = sorted((folder / part / name).glob("*.jpg"))
        if not found:
            raise _missing(folder / part / name / "*.jpg")
        paths += found
        labels += [label] * len(found)
    return paths, np.array(labels, np.int64)


def short(path: Path) -> str:
    """Return the last three parts of a path. They identify the file but do not reveal the user's folders."""
    return "/".join(path.parts[-3:])


def _missing(path: Path) -> DataUnavailable:
    return DataUnavailable(
        f"{short(path)} is missing.", "Get the data set with `kit data fetch`, or measure with `--data synthetic`."
    )


def _corrupt(path: Path, what: str) -> DataCorrupt:
    return DataCorrupt(
        f"{short(path)}: {what}.",
        "Check the data set with `kit data verify`. If it is damaged, remove it and run `kit data fetch`.",
    )
