"""Evidence of memory limits, read from a process's control group while it lives.

The files are those of Linux' Documentation/admin-guide/cgroup-v1/memory.rst and cgroup-v2.rst.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")


class MemoryWatch:
    """kills: processes of the group that the kernel killed for want of memory; peak_bytes: the most it had in use.

    Both as of the last `read` at which the group was there: it goes with its last process.
    """

    def __init__(self, folder: Path | None) -> None:
        """folder: the group's own, None where this host does not show it (then nothing is ever seen)."""
        self.kills = 0
        self.peak_bytes = 0
        self._folder = folder

    @classmethod
    def of_process(cls, pid: int) -> MemoryWatch:
        """Watch the group that the process is in. pid: as this host counts, 0 where it is not known."""
        try:
            groups = Path(f"/proc/{pid}/cgroup").read_text(encoding="ascii")
        except OSError:  # it has ended already, or belongs to another host
            return cls(None)
        return cls(memory_folder(groups))

    def read(self) -> None:
        """Take both figures anew."""
        if self._folder is None:
            return
        for name in ("memory.events", "memory.oom_control"):
            if found := re.search(r"^oom_kill (\d+)$", self._text(name), re.MULTILINE):
                self.kills = int(found[1])
        for name in ("memory.peak", "memory.max_usage_in_bytes"):
            self.peak_bytes = int(self._text(name) or self.peak_bytes)

    def _text(self, name: str) -> str:
        assert self._folder is not None
        try:
            return (self._folder / name).read_text(encoding="ascii")
        except OSError:  # the other version's file, or the group is gone
            return ""


def memory_folder(groups: str) -> Path | None:
    """The memory group's folder. groups: the content of /proc/<pid>/cgroup, lines of `id:controllers:path`."""
    found = None
    for line in groups.splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            return ROOT / "memory" / path.lstrip("/")
        if not controllers:
            found = ROOT / path.lstrip("/")
    return found
