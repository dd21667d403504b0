"""Faults and programs for tests of builds, and checks of what they leave."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import requests

from kit.model.errors import DiskError, EngineError, ImageError, KitError
from kit.model.progress import Silent
from tests import faults
from tests.fakes_daemon import Killed

OS_ERRORS: dict[str, Callable[[], OSError]] = {
    "disk full": lambda: OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
    "I/O error": lambda: OSError(errno.EIO, os.strerror(errno.EIO)),
    "no permission": lambda: OSError(errno.EACCES, os.strerror(errno.EACCES)),
}


def outcome(attempt: Callable[[], object], error: BaseException) -> str:
    """Return the outcome of an attempt with a fault. Fail if it is another one than the user needs."""
    try:
        attempt()
    except (KeyboardInterrupt, Killed, KitError) as caught:
        return _described(caught, error)
    return "no effect"


def _described(caught: BaseException, error: BaseException) -> str:
    if not isinstance(caught, KitError):
        assert type(caught) is type(error)
        return "interrupted" if isinstance(caught, KeyboardInterrupt) else "killed"
    assert isinstance(error, Exception)
    assert isinstance(caught, ImageError | DiskError | EngineError)
    assert caught.remedy
    assert "secret" not in str(caught)
    if "no space" in str(error) or (isinstance(error, OSError) and not isinstance(error, requests.RequestException)):
        assert isinstance(caught, DiskError) or "cannot be run" in str(caught)
    return f"{type(caught).__name__} (exit code {caught.exit_code})"


def first_calls(calls: faults.Calls) -> dict[str, int]:
    """Return the number of the first call at each place."""
    return {place: nth for nth, place in reversed(list(enumerate(calls.places, 1))) if not place.endswith("in tests")}


class Interrupting(Silent):
    """Raise KeyboardInterrupt when a step describes itself with this text."""

    def __init__(self, text: str) -> None:
        self._text = text

    @contextmanager
    def task(self, label: str, total: float | None = None, unit: str = "") -> Iterator[Any]:
        with super().task(label) as task:
            task.describe = self._describe  # type: ignore[method-assign]
            yield task

    def _describe(self, text: str) -> None:
        if text == self._text:
            raise KeyboardInterrupt


def program(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}")
    path.chmod(0o755)
    return path


# A program that never ends, and a child of it.
HANG = """
sleep 1000 &
echo $$ $! > {pids}
echo hanging
wait
"""


def require_ended(pids: Path) -> None:
    """Fail if a process of a program that hung does not end."""
    for pid in map(int, pids.read_text().split()):
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            for _ in range(1000):
                if process.status() == psutil.STATUS_ZOMBIE:
                    break
                time.sleep(0.01)
            else:
                raise AssertionError(process)
    pids.unlink()
