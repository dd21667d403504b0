"""What the worker can see of itself: CPU time and memory of its own process tree, throttling of its cgroup."""

from __future__ import annotations

import resource
from pathlib import Path

import psutil


def tree_cpu_seconds() -> float:
    """User and system time of this process, its finished children and its living descendants, in seconds."""
    own = psutil.Process()
    times = own.cpu_times()
    total = times.user + times.system + times.children_user + times.children_system
    for child in own.children(recursive=True):
        try:
            spent = child.cpu_times()
        except psutil.NoSuchProcess:  # ended since the listing: it now counts as a finished child
            continue
        total += spent.user + spent.system
    return float(total)


def peak_rss_bytes() -> int:
    """Peak resident set of this process plus that of its largest finished child.

    VmHWM rather than getrusage for the process itself: ru_maxrss survives fork and exec, and so would count the
    orchestrator's memory.
    """
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            own = int(line.split()[1]) * 1024
            return own + resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    raise RuntimeError("/proc/self/status has no VmHWM line")


def throttled_seconds(
    root: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")
) -> float | None:
    """Time for which this process' cgroup was held back by its CPU quota, in seconds; None where no file tells.

    Inside a container the cgroup is mounted as the root; on the host it lies below it.
    """
    for line in membership.read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            candidates = (root / path.lstrip("/") / "cpu.stat", root / "cpu.stat")
        elif "cpu" in controllers.split(","):
            base = root / "cpu"
            candidates = (base / path.lstrip("/") / "cpu.stat", base / "cpu.stat")
        else:
            continue
        for file in candidates:
            if file.is_file():
                fields = dict(pair.split() for pair in file.read_text().splitlines())
                if "throttled_usec" in fields:
                    return int(fields["throttled_usec"]) / 1e6
                if "throttled_time" in fields:
                    return int(fields["throttled_time"]) / 1e9
    return None
