"""Sort folders of photos of cats and dogs, which may have various names, into `<part>/<class>/<name>.jpg`."""

import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from PIL import Image

from kit.datasets.files import portable_name
from kit.model.errors import DataError
from kit.model.progress import Progress

CLASSES = {"cats": ("cats", "cat"), "dogs": ("dogs", "dog")}
TRAIN_NAMES = ("train", "training", "training_set")
TEST_NAMES = ("test", "testing", "test_set", "validation", "valid", "val")
TRAIN_COUNT, TEST_COUNT = 4_000, 1_000  # per class, if the folder has no train and test parts
CHUNK = 500
MAX_DEPTH = 3  # levels of subfolders that are searched

Classes = dict[str, Path]
Place = Callable[[Path, Path], object]  # move or copy


def prepare_photos(root: Path, folder: Path, move: bool, progress: Progress) -> None:
    """Sort the JPEG files below `root` into `folder`. move: move the files instead of copying them.

    If `root` has a train and a test part, take both, and require that every file is readable. Otherwise take the
    readable files of each class in numeric order: the first TRAIN_COUNT for training, the next TEST_COUNT for the test.
    (The published archive has some broken files.) Raise DataError.
    """
    place: Place = Path.replace if move else shutil.copyfile
    for candidate in _folders(root):
        if parts := _parts(candidate):
            _place_parts(root, parts, folder, place, progress)
            return
        if classes := _classes(candidate):
            for name, source in classes.items():
                _place_first(source, name, folder, place, progress)
            return
    raise DataError(
        f"{root.name} has no photos in a known folder layout.",
        "Give a folder with `train` (or training_set) and `test` (or test_set, validation), each with a folder `cats` "
        "and a folder `dogs` of JPEG files, or with two folders `Cat` and `Dog` as in the published archive.",
    )


def find_fault(path: Path) -> str | None:
    """Return why not every framework can decode a photo, or None if it is a whole JPEG file, gray or RGB.

    Decode the whole file, at an eighth of its resolution if that is faster. Raise OSError if it cannot be read.
    """
    try:
        with Image.open(path, formats=["JPEG"]) as image:
            if image.mode not in ("L", "RGB"):
                return f"color mode {image.mode}"
            image.draft(image.mode, (1, 1))
            image.load()
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # a fault of the disk, not of the photo
        return f"{type(error).__name__}: {error}".replace(str(path), path.name)
    return None


def is_photo(name: str) -> bool:
    """Return whether a file has the name of a JPEG photo. Hidden files do not count: some systems add one per photo."""
    return name.lower().endswith((".jpg", ".jpeg")) and not name.startswith(".")


def _place_parts(root: Path, parts: dict[str, Classes], folder: Path, place: Place, progress: Progress) -> None:
    for part, classes in parts.items():
        for name, source in classes.items():
            photos = _photos(source)
            for path, problem in _check(photos, f"Check {part}/{name}", progress):
                if problem:
                    raise DataError(
                        f"{path.relative_to(root)} is not a readable photo ({problem}).",
                        "Replace or remove it, then add the folder again.",
                    )
            _place(photos, folder / part / name, place)


def _place_first(source: Path, name: str, folder: Path, place: Place, progress: Progress) -> None:
    photos = _photos(source)
    wanted = TRAIN_COUNT + TEST_COUNT
    good: list[Path] = []
    for start in range(0, len(photos), CHUNK):
        checked = _check(photos[start : start + CHUNK], f"Check {name} from {start:,}", progress)
        good += [path for path, problem in checked if problem is None]
        if len(good) >= wanted:
            break
    if len(good) < wanted:
        raise DataError(
            f"{source.name} has {len(good):,} readable photos. Without train and test folders, {wanted:,} are needed.",
            "Sort the photos into train/cats, train/dogs, test/cats and test/dogs. Any number of photos is allowed.",
        )
    _place(good[:TRAIN_COUNT], folder / "train" / name, place)
    _place(good[TRAIN_COUNT:wanted], folder / "test" / name, place)


def _place(photos: Iterable[Path], folder: Path, place: Place) -> None:
    """Move or copy photos to a folder. Workers find photos by `.jpg`, so it is added to other names."""
    folder.mkdir(parents=True)
    for path in photos:
        name = portable_name(path.name)
        target = folder / (name if path.suffix == ".jpg" else f"{name}.jpg")
        if target.exists():
            raise DataError(
                f"{path.parent.name}/{path.name} and another photo would both be stored as {target.name}.",
                "Rename one of them, then add the photos again.",
            )
        place(path, target)


def _check(photos: list[Path], label: str, progress: Progress) -> Iterator[tuple[Path, str | None]]:
    workers = len(os.sched_getaffinity(0))
    with progress.task(label, len(photos)) as task, ThreadPoolExecutor(workers) as pool:
        for path, problem in zip(photos, pool.map(find_fault, photos), strict=True):
            task.advance(1)
            yield path, problem


def _folders(root: Path) -> Iterator[Path]:
    """Yield `root` and the folders below it, level by level."""
    level = [root]
    for _ in range(MAX_DEPTH + 1):
        yield from level
        level = [child for folder in level for child in _subfolders(folder)]


def _subfolders(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith((".", "__MACOSX")))


def _parts(folder: Path) -> dict[str, Classes] | None:
    children = {path.name.lower(): path for path in _subfolders(folder)}
    found = {}
    for part, names in (("train", TRAIN_NAMES), ("test", TEST_NAMES)):
        options = (_classes(children[name]) for name in names if name in children)
        if (classes := next(filter(None, options), None)) is None:
            return None
        found[part] = classes
    return found


def _classes(folder: Path) -> Classes | None:
    children = {path.name.lower(): path for path in _subfolders(folder)}
    found = {}
    for label, names in CLASSES.items():
        source = next((children[name] for name in names if name in children), None)
        if source is None or not _photos(source):
            return None
        found[label] = source
    return found


def _photos(folder: Path) -> list[Path]:
    """Return the JPEG files sorted by the numbers in their names."""
    found = [path for path in folder.iterdir() if path.is_file() and is_photo(path.name)]
    return sorted(found, key=lambda path: _number_key(portable_name(path.name)))


def _number_key(name: str) -> tuple[list[int], str]:
    return [int(digits) for digits in re.findall(r"\d+", name)], name
