"""Processes found by a variable in their environment, which every descendant inherits: their memory and their end."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import psutil

from kit.model.errors import EngineError

TERM_S = 2
KILL_S = 20
POLL_S = 0.05


def marked(matches: Callable[[Mapping[str, str]], bool]) -> list[psutil.Process]:
    """This user's living processes whose environment at their start matches; never this process."""
    found = []
    for process in psutil.process_iter():
        try:
            mine = process.pid != os.getpid() and process.uids().real == os.getuid()
            if mine and matches(process.environ()):
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):  # ended meanwhile, or not ours to look at
            continue
    return found


def identity(pid: int) -> str:
    """A name for a running process that no later process gets, even where its number comes round again."""
    return f"{pid}@{_state_and_start(pid)[1]}"


def lives(name: str) -> bool:
    """Whether the process of this `identity` still runs; one that ended and was not collected does not."""
    pid, _, start = name.partition("@")
    try:
        state, found = _state_and_start(int(pid))
    except (ValueError, OSError):
        return False
    return found == start and state not in {"Z", "X"}


def _state_and_start(pid: int) -> tuple[str, str]:
    """State, and start in clock ticks since boot (which no correction of the clock moves): fields 3 and 22 of
    /proc/<pid>/stat, see proc(5)."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    return fields[0], fields[19]


def end(find: Callable[[], list[psutil.Process]], *, gently: bool) -> None:
    """End what `find` finds, and what is born meanwhile. gently: ask first (SIGTERM).

    Raises EngineError where something survives. Exit codes are left for the parents to collect.
    """
    if gently:
        _signal(find(), psutil.Process.terminate)
        _wait_until_none(find, TERM_S)
    deadline = time.monotonic() + KILL_S
    while left := find():
        if time.monotonic() > deadline:
            raise EngineError(
                f"The processes {', '.join(str(process.pid) for process in left)} could not be killed.",
                "They hang in the kernel, often in a GPU driver or a network disk: restart the machine.",
            )
        _signal(left, psutil.Process.kill)
        _wait_until_none(find, POLL_S)


def _signal(processes: list[psutil.Process], send: Callable[[psutil.Process], None]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            send(process)


def _wait_until_none(find: Callable[[], list[psutil.Process]], patience_s: float) -> None:
    deadline = time.monotonic() + patience_s
    while find() and time.monotonic() < deadline:
        time.sleep(POLL_S)


class MemoryMeter:
    """Memory of a process and its descendants.

    Resident sizes count shared pages once a process, forked loader workers in full: an upper bound, and cheap. The
    proportional size counts them once, but reading it holds up the process; it is read only where the bound is over
    the limit.
    """

    def __init__(self, pid: int, limit_bytes: int) -> None:
        self._root = psutil.Process(pid)
        self._limit = limit_bytes
        self._tree = [self._root]
        self.peak_bytes = 0

    def find_descendants(self) -> None:
        """Look for new ones; looks at every process of the machine."""
        try:
            self._tree = [self._root, *self._root.children(recursive=True)]
        except psutil.NoSuchProcess:
            self._tree = []

    def over_limit(self) -> bool:
        """Read, and keep the peak."""
        used = _total(self._tree, lambda process: process.memory_info().rss)
        if used > self._limit:
            used = _total(self._tree, lambda process: process.memory_full_info().pss)
        self.peak_bytes = max(self.peak_bytes, used)
        return used > self._limit


def _total(processes: Iterable[psutil.Process], read: Callable[[psutil.Process], int]) -> int:
    total = 0
    for process in processes:
        try:
            total += read(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):  # ended since it was found; the kernel then denies, too
            continue
    return total
