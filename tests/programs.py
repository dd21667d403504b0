"""Programs for tests of what kit starts, and checks of what they leave."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from kit.model.progress import Silent

# A program that never ends, and a child of it.
HANG = """
sleep 1000 &
echo $$ $! > {pids}
echo hanging
wait
"""


def program(path: Path, script: str) -> Path:
    """Write a shell script that can be executed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}")
    path.chmod(0o755)
    return path


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
