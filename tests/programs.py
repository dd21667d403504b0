"""Programs for tests of what kit starts, and checks of what they leave."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

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


def interrupt() -> None:
    """Do what Ctrl-C does."""
    raise KeyboardInterrupt


def at_line(start: str, stop: Callable[[], None]) -> Callable[[str], str]:
    """Return a replacement of `without_user_info`, which gets each line of a build. It calls `stop` at a line that
    starts like this."""

    def pass_on(line: str) -> str:
        if line.startswith(start):
            stop()
        return line

    return pass_on


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
