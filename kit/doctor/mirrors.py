"""Check whether the places that hold a data set answer: the published mirrors, or KIT_DATA_MIRROR instead of them."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import requests

from kit.datasets.mirrors import mirror_files, mirror_folder, mirror_urls
from kit.datasets.registry import SOURCES, RemoteFile
from kit.host.pip_config import certificates

NO_HEAD = (405, 501)  # the server answers but does not support HEAD


def questions(dataset: str, seconds: float) -> list[Callable[[], bool]]:
    """Return one check per place. Each answers within about `seconds`. A folder is checked for all files, a server for
    the first file only, since it has all files or none."""
    files = SOURCES[dataset]
    if folder := mirror_folder():
        return [partial(holds, folder, dataset, files)]
    return [partial(answers, url, seconds, certificates()) for url in mirror_urls(dataset, files[0])]


def holds(mirror: Path, dataset: str, files: tuple[RemoteFile, ...]) -> bool:
    """Return whether the local mirror has all files of the data set, and all are readable."""
    return all(any(os.access(path, os.R_OK) for path in mirror_files(mirror, dataset, file)) for file in files)


def answers(url: str, seconds: float, trusted: str | None) -> bool:
    """Return whether a server offers the file. trusted: as in `certificates`."""
    try:
        status = requests.head(url, timeout=seconds, allow_redirects=True, verify=trusted).status_code
    except (requests.RequestException, ValueError):  # ValueError: not a URL
        return False
    return status < 400 or status in NO_HEAD
