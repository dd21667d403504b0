"""Load data sets in the worker: real ones from the data folder, or synthetic ones that it makes itself.

Each launch compares the content of all files of a real set with the checksums that its preparation wrote.
"""

import hashlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from scenarios.adapter import Arrays, Photos, TrainSet
from scenarios.contract import checksums
from scenarios.contract.request import DataKind
from scenarios.data import readers, synthetic
from scenarios.data.errors import DataUnavailable
from scenarios.data.integrity import hash_files, require_prepared
from scenarios.data.readers import Bytes
from scenarios.spec import DATASETS, Dataset, Scenario


@dataclass(frozen=True)
class DataSet:
    """Train and test set of one launch. digest: SHA-256 (hex) over the whole content of both parts, even if `test` is a
    sample; for photos, over names and SHA-256 of all files, as in SHA256SUMS."""

    train: TrainSet
    test: TrainSet
    kind: DataKind
    digest: str


def load(scenario: Scenario, kind: DataKind, folder: Path | None, scratch: Path, test_images: int | None) -> DataSet:
    """Return the data set of a scenario, with values divided by 255.

    folder: holds one folder per prepared real set. scratch: folder for synthetic photos. test_images: number of test
    images to use. They are the first of a fixed random order, so their class frequencies are about those of the whole
    set. None, or a number above the size of the set, uses all. Raise DataUnavailable or DataCorrupt.
    """
    dataset = DATASETS[scenario.dataset]
    if kind == "real":
        if folder is None:
            raise DataUnavailable(
                f"Real data was requested ({dataset.title}), but there is no data folder.",
                "Give the folder with the prepared data sets, or measure with `--data synthetic`.",
            )
    else:
        folder = scratch / "synthetic"
    if dataset.shape is None:
        if kind == "synthetic":
            synthetic.write_photos(dataset, folder / dataset.name)
        return _load_photos(scenario, dataset, kind, folder / dataset.name, test_images)
    parts = synthetic.images(dataset) if kind == "synthetic" else _read_images(folder / dataset.name, dataset)
    digest = _digest(array for part in ("train", "test") for array in parts[part])
    test, test_labels = parts["test"]
    chosen = choose(len(test), test_images)
    return DataSet(_arrays(*parts["train"]), _arrays(test[chosen], test_labels[chosen]), kind, digest)


def _read_images(folder: Path, dataset: Dataset) -> dict[str, tuple[Bytes, Bytes]]:
    """Return images and labels of both parts of a real set. A thread hashes the files, so that this takes no longer."""
    with ThreadPoolExecutor(1) as pool:
        digests = pool.submit(hash_files, folder, readers.image_files(folder, dataset))
        parts = {part: readers.read_images(folder, dataset, part) for part in ("train", "test")}
    require_prepared(folder, digests.result())
    return parts


def _load_photos(
    scenario: Scenario, dataset: Dataset, kind: DataKind, folder: Path, test_images: int | None
) -> DataSet:
    size = scenario.image[:2]
    paths, labels = readers.list_photos(folder, dataset, "train")
    test_paths, test_labels = readers.list_photos(folder, dataset, "test")
    digests = hash_files(folder, (*paths, *test_paths))
    if kind == "real":
        require_prepared(folder, digests)
    digest = hashlib.sha256(checksums.to_text(digests).encode())
    chosen = choose(len(test_paths), test_images)
    test = Photos([test_paths[i] for i in chosen], test_labels[chosen], size)
    return DataSet(Photos(paths, labels, size, scenario.augment), test, kind, digest.hexdigest())


def part_of(images: TrainSet, count: int) -> TrainSet:
    """Return `count` images of a set, or all if it has fewer, see `choose`."""
    chosen = choose(len(images), count)
    if isinstance(images, Photos):
        return replace(images, paths=[images.paths[i] for i in chosen], labels=images.labels[chosen])
    return Arrays(images.images[chosen], images.labels[chosen])


def choose(available: int, wanted: int | None) -> npt.NDArray[np.int64]:
    """Return the indices of `wanted` images of a set, or of all if it has fewer or if `wanted` is None.

    They are the first of a fixed random order. The first images of a set would not be representative, because photos
    are sorted by class.
    """
    if wanted is None or wanted >= available:
        return np.arange(available)
    return np.random.default_rng(0).permutation(available)[:wanted]


def _arrays(images: Bytes, labels: Bytes) -> Arrays:
    return Arrays(np.divide(images, np.float32(255), dtype=np.float32), labels.astype(np.int64))


def _digest(arrays: Iterable[Bytes]) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
