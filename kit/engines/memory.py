"""Measure the memory of a launch: from the cgroup of its container, or from its processes."""

import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import psutil

from scenarios.linux.files import number, text

AT_LIMIT = 0.95  # share of the memory limit from which a SIGKILL of unknown origin counts as out of memory
DESCENDANTS_S = 1.0  # between searches for new processes; one search takes milliseconds


class MemoryWatch:
    """Figures that the kernel keeps about a cgroup.

    kills: how many processes of the group the kernel killed because memory ran out. peak_bytes: the group's peak use.
    Both are as of the last reading at which the group existed: it disappears with its last process. The files are
    those of Linux' Documentation/admin-guide/cgroup-v1/memory.rst and cgroup-v2.rst.
    """

    def __init__(self, folder: Path | None) -> None:
        """folder: the group's own. If None, nothing is ever seen."""
        self.kills = 0
        self.peak_bytes = 0
        self._folder = folder

    def over_limit(self) -> bool:
        """Read both figures. Return False: the kernel itself enforces this group's limit."""
        if self._folder is not None:
            for name in ("memory.events", "memory.oom_control"):
                if found := re.search(r"^oom_kill (\d+)$", text(self._folder / name) or "", re.MULTILINE):
                    self.kills = int(found[1])
            for name in ("memory.peak", "memory.max_usage_in_bytes"):
                self.peak_bytes = number(self._folder / name) or self.peak_bytes
        return False


class MemoryMeter:
    """Memory of a process and its descendants.

    Resident sizes count shared pages once per process. If workers are forked, their sum is an upper bound, and it is
    cheap to read. Proportional sizes count shared pages once, but reading them holds up the processes. They are read
    only if the bound exceeds the limit.
    """

    def __init__(self, pid: int, limit_bytes: int) -> None:
        self._root = psutil.Process(pid)
        self._limit = limit_bytes
        self._tree: list[psutil.Process] = []
        self._searched_at = -DESCENDANTS_S
        self.peak_bytes = 0

    def over_limit(self) -> bool:
        """Read the memory now and return whether it exceeds the limit. Keep the peak in `peak_bytes`."""
        now = time.monotonic()
        if now - self._searched_at >= DESCENDANTS_S:
            self._tree, self._searched_at = self._family(), now
        used = _total(self._tree, lambda process: process.memory_info().rss)
        if used > self._limit:
            used = _total(self._tree, lambda process: process.memory_full_info().pss)
        self.peak_bytes = max(self.peak_bytes, used)
        return used > self._limit

    def _family(self) -> list[psutil.Process]:
        try:
            return [self._root, *self._root.children(recursive=True)]
        except psutil.NoSuchProcess:  # the launch has ended, so it uses no memory
            return []


def _total(processes: Iterable[psutil.Process], read: Callable[[psutil.Process], int]) -> int:
    total = 0
    for process in processes:
        try:
            total += read(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):  # it has ended; the kernel may then deny access
            continue
    return total
