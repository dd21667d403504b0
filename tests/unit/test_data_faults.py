"""Test that interrupts and faults of the disk while a data set is made leave nothing, or what the next attempt mends.

Each function of kit that calls the operating system gets each kind of fault once.
"""

from __future__ import annotations

import errno
import gzip
import hashlib
import itertools
import os
import shutil
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from PIL import Image

from kit.datasets import service
from kit.datasets.manifest import Manifest
from kit.datasets.registry import SOURCES, RemoteFile
from kit.model.errors import DataError, DiskError
from kit.model.progress import Progress, Silent
from tests import faults

FILES = {f"file{number}.gz": gzip.compress(bytes([number]) * 999, mtime=1) for number in range(2)}


class NobodyWaits(Silent):
    def line(self, text: str) -> None:
        raise AssertionError(text)  # "Waiting for another kit process": a lock was left


@pytest.fixture
def inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with files of MNIST, in SOURCES too, and with a folder, a zip and a tar file of photos."""
    folder = tmp_path / "inputs"
    for part in ("train", "test"):
        for name in ("cats", "dogs"):
            (folder / "photos" / part / name).mkdir(parents=True)
            Image.new("RGB", (8, 8)).save(folder / "photos" / part / name / "0.jpg")
    shutil.make_archive(str(folder / "photos"), "zip", folder / "photos")
    shutil.make_archive(str(folder / "photos"), "gztar", folder / "photos")
    (folder / "mirror").mkdir()
    for name, content in FILES.items():
        (folder / "mirror" / name).write_bytes(content)
    remote = [RemoteFile(name, len(content), hashlib.sha256(content).hexdigest()) for name, content in FILES.items()]
    monkeypatch.setitem(SOURCES, "mnist", tuple(remote))
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # the power is never cut
    return folder


class Handler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@pytest.fixture
def url(inputs: Path) -> Iterator[str]:
    """Return the URL of a server of the mirror folder."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(inputs / "mirror"))) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def make(way: str, inputs: Path, progress: Progress | None = None) -> Manifest:
    """Make a data set in one of several ways."""
    progress = progress or NobodyWaits()
    if way in ("copy", "download"):
        return service.fetch("mnist", progress)
    return service.add("mnist" if way == "mirror" else "cats-dogs", inputs / way, progress)


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("way", ["copy", "download", "mirror", "photos", "photos.zip", "photos.tar.gz"])
def test_after_every_fault_the_next_attempt_succeeds(
    tmp_path: Path, inputs: Path, url: str, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setenv("KIT_DATA_MIRROR", url if way == "download" else str(inputs / "mirror"))
    for folder in ("first", "clean"):  # the first attempt imports modules
        monkeypatch.setenv("KIT_DATA_DIR", str(tmp_path / folder))
        with faults.record() as calls:
            expected = make(way, inputs)
    assert len(calls.places) > 20
    for nth, (place, fault) in enumerate(itertools.product(calls.places, faults.ERRORS)):
        data = tmp_path / str(nth)
        monkeypatch.setenv("KIT_DATA_DIR", str(data))
        outcome = end_with_fault(way, inputs, faults.ERRORS[fault](), place, expected)
        assert make(way, inputs) == expected, place
        assert service.verify(expected.name) == expected
        assert files(data) == files(tmp_path / "clean"), place
        assert list((data / "work").glob("*")) == [], place
        faults.note(fault, f"data set: {place}", outcome)


@pytest.mark.parametrize("fault", faults.ERRORS)
def test_after_every_fault_while_a_set_is_replaced_the_old_or_the_new_one_is_whole(
    tmp_path: Path, inputs: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    monkeypatch.setenv("KIT_DATA_DIR", str(tmp_path / "data"))
    shutil.copyfile(inputs / "photos" / "test" / "cats" / "0.jpg", inputs / "photos" / "test" / "cats" / "1.jpg")
    old = make("photos", inputs)
    functions = ("os.chmod", "os.mkdir", "os.replace", "os.rmdir", "os.unlink")
    with faults.record(functions) as calls:
        new = make("photos.zip", inputs)
    assert make("photos", inputs) == old
    for nth in range(1, calls.places.total() + 1):  # a folder is replaced by several calls at one place
        outcome = end_with_fault("photos.zip", inputs, faults.ERRORS[fault](), nth, new, functions)
        assert service.verify("cats-dogs") in (old, new), nth
        assert make("photos", inputs) == old
        faults.note(fault, "data set: replacement", outcome)


def end_with_fault(
    way: str,
    inputs: Path,
    error: BaseException,
    place: str | int,
    expected: Manifest,
    functions: Sequence[str] = faults.FILE_OPERATIONS,
) -> str:
    """Make a data set with a fault. Return how it ended. Fail unless it is the expected one, or the user gets a
    DataError about the user's files, and a DiskError about all others."""

    def work() -> None:
        with faults.at(place, error, functions):
            made = make(way, inputs, Silent())  # it may wait: flock means by EACCES that another process has the lock
            assert made == expected

    ended = faults.attempt(work, error, DataError, DiskError)
    # Reads and writes of open files do not name them.
    if isinstance(error, OSError) and error.filename and error.errno != errno.ENOSPC and ended.caught:
        users = Path(error.filename).is_relative_to(inputs)
        assert isinstance(ended.caught, DataError if users else DiskError), error.filename
    return ended.outcome
