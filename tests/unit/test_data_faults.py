"""Test that interrupts and faults of the disk while a data set is made leave nothing, or what the next attempt mends.

Each function of kit that calls the operating system gets each kind of fault once.
"""

from __future__ import annotations

import errno
import gzip
import hashlib
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from PIL import Image

from kit.datasets import service
from kit.datasets.manifest import Manifest
from kit.datasets.registry import SOURCES, RemoteFile
from kit.model.errors import DataError, DiskError
from kit.model.progress import Silent
from tests import faults

FILES = {f"file{number}.gz": gzip.compress(bytes([number]) * 999, mtime=1) for number in range(2)}
ERRORS: dict[str, Callable[[], BaseException]] = {
    "interrupt": KeyboardInterrupt,
    "disk full": lambda: OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
    "I/O error": lambda: OSError(errno.EIO, os.strerror(errno.EIO)),
    "no permission": lambda: OSError(errno.EACCES, os.strerror(errno.EACCES)),
}
OS_ERRORS = list(ERRORS)[1:]


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


def make(attempt: str, inputs: Path) -> Manifest:
    """Make a data set in one of several ways."""
    if attempt in ("copy", "download"):
        return service.fetch("mnist", NobodyWaits())
    return service.add("mnist" if attempt == "mirror" else "cats-dogs", inputs / attempt, NobodyWaits())


def first_calls(calls: faults.Calls) -> dict[str, int]:
    """Return the number of the first call at each place."""
    return {place: nth for nth, place in reversed(list(enumerate(calls.places, 1)))}


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("attempt", ["copy", "download", "mirror", "photos", "photos.zip", "photos.tar.gz"])
def test_after_every_fault_the_next_attempt_succeeds(
    tmp_path: Path, inputs: Path, url: str, monkeypatch: pytest.MonkeyPatch, attempt: str
) -> None:
    monkeypatch.setenv("KIT_DATA_MIRROR", url if attempt == "download" else str(inputs / "mirror"))
    monkeypatch.setenv("KIT_DATA_DIR", str(tmp_path / "clean"))
    with faults.at(0, KeyboardInterrupt()) as calls:
        expected = make(attempt, inputs)
    assert len(first_calls(calls)) > 20
    for number, (place, nth) in enumerate(first_calls(calls).items()):
        for fault in ("interrupt", OS_ERRORS[number % len(OS_ERRORS)]):
            data = tmp_path / f"{fault}{number}"
            monkeypatch.setenv("KIT_DATA_DIR", str(data))
            error = ERRORS[fault]()
            outcome = "no effect"
            try:
                with faults.at(nth, error):
                    assert make(attempt, inputs) == expected
            except (KeyboardInterrupt, DataError, DiskError) as caught:
                outcome = describe(caught, error, inputs)
            faults.note(fault, f"{attempt}: {place}", outcome)
            assert make(attempt, inputs) == expected, place
            assert service.verify(expected.name) == expected
            assert files(data) == files(tmp_path / "clean"), place


@pytest.mark.parametrize("fault", ERRORS)
def test_after_every_fault_while_a_set_is_replaced_the_old_or_the_new_one_is_whole(
    tmp_path: Path, inputs: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    monkeypatch.setenv("KIT_DATA_DIR", str(tmp_path / "data"))
    new = make("photos", inputs)
    shutil.copyfile(inputs / "photos" / "test" / "cats" / "0.jpg", inputs / "photos" / "test" / "cats" / "1.jpg")
    functions = ("os.chmod", "os.mkdir", "os.replace", "os.rmdir", "os.unlink")
    with faults.at(0, KeyboardInterrupt(), functions) as calls:
        old = make("photos", inputs)
    for place, nth in first_calls(calls).items():
        with suppress(KeyboardInterrupt, DiskError), faults.at(nth, ERRORS[fault](), functions):
            make("photos.zip", inputs)
        assert service.verify("cats-dogs") in (old, new), place
        assert make("photos", inputs) == old


def describe(caught: BaseException, error: BaseException, inputs: Path) -> str:
    """Return the outcome of a fault for the table. Fail if it is another one than the user needs: a DataError about the
    user's files, a DiskError about all others."""
    if isinstance(error, KeyboardInterrupt):
        assert caught is error
        return "interrupted"
    assert isinstance(caught, DataError | DiskError)
    assert isinstance(error, OSError)
    if error.filename and error.errno != errno.ENOSPC:  # reads and writes of open files do not name them
        users = Path(error.filename).is_relative_to(inputs)
        assert isinstance(caught, DataError if users else DiskError), error.filename
    assert caught.remedy
    return f"{type(caught).__name__} (exit code {caught.exit_code})"
