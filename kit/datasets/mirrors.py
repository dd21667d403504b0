"""Find the places that hold a data set: the published mirrors, or KIT_DATA_MIRROR instead of them."""

import os
from pathlib import Path

from kit.datasets.registry import MIRRORS, RemoteFile
from kit.host.paths import named_folder


def mirror_folder() -> Path | None:
    """Return the folder that KIT_DATA_MIRROR names, or None if it is not set or is a URL."""
    return None if "://" in os.environ.get("KIT_DATA_MIRROR", "") else named_folder("KIT_DATA_MIRROR")


def mirror_files(folder: Path, dataset: str, file: RemoteFile) -> tuple[Path, Path]:
    """Return the two paths that the file may have in a local mirror: in a folder named after the data set, or not."""
    return folder / dataset / file.name, folder / file.name


def mirror_urls(dataset: str, file: RemoteFile) -> list[str]:
    """Return the URLs of a file in the order in which to try them."""
    mirror = os.environ.get("KIT_DATA_MIRROR", "").rstrip("/")
    folders = (f"{mirror}/{dataset}/", f"{mirror}/") if mirror else MIRRORS[dataset]
    return [folder + file.name for folder in folders]
