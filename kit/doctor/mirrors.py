"""Whether the places that have a data set answer: the published mirrors, or KIT_DATA_MIRROR in their stead."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import requests

from kit.datasets.registry import SOURCES, RemoteFile
from kit.host.paths import named_folder

NO_HEAD = (405, 501)  # such a server is there and does not know HEAD


def questions(dataset: str, seconds: float) -> list[Callable[[], bool]]:
    """One question a place, each answered within about `seconds`: a folder is asked for all files, a server for the
    first, since it has all or none."""
    mirror = os.environ.get("KIT_DATA_MIRROR")
    files = SOURCES[dataset]
    if mirror and "://" not in mirror and (folder := named_folder("KIT_DATA_MIRROR")):
        return [partial(holds, folder, dataset, files)]
    first = files[0]
    folders = [f"{mirror.rstrip('/')}/{dataset}/", f"{mirror.rstrip('/')}/"] if mirror else first.mirrors
    return [partial(answers, folder + first.name, seconds) for folder in folders]


def holds(mirror: Path, dataset: str, files: tuple[RemoteFile, ...]) -> bool:
    """Whether the folder has all files, readable, in it or in one named like the data set."""
    return all(any(os.access(place / file.name, os.R_OK) for place in (mirror / dataset, mirror)) for file in files)


def answers(url: str, seconds: float) -> bool:
    """Whether a server offers the file."""
    try:
        status = requests.head(url, timeout=seconds, allow_redirects=True).status_code
    except (requests.RequestException, ValueError):  # ValueError: no URL
        return False
    return status < 400 or status in NO_HEAD
