"""What the worker can see of itself: CPU time and memory of its own process tree, throttling of its cgroup."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from scenarios.contract.result import Telemetry

BUSY_SHARE = 1 / 20

Thread = tuple[int, int]  # thread id and start in clock ticks: ids are used again


@dataclass(frozen=True)
class Reading:
    """What had been used up at `at` (monotonic). threads: CPU seconds of each thread of this process."""

    at: float
    cpu_s: float
    throttled_s: float | None
    threads: Mapping[Thread, float]


def read() -> Reading:
    """Read all counters now."""
    return Reading(time.monotonic(), tree_cpu_seconds(), throttled_seconds(), thread_cpu_seconds())


def between(start: Reading, end: Reading, gpu_peak_bytes: int | None) -> Telemetry:
    """What happened between two readings, and the peak of memory until now. Threads that have ended are not seen."""
    wall_s = end.at - start.at
    spent = [cpu_s - start.threads.get(thread, 0.0) for thread, cpu_s in end.threads.items()]
    throttled_s = None
    if start.throttled_s is not None and end.throttled_s is not None:
        throttled_s = end.throttled_s - start.throttled_s
    return Telemetry(
        from_at=start.at,
        to_at=end.at,
        peak_rss_bytes=peak_rss_bytes(),
        cpu_s=end.cpu_s - start.cpu_s,
        cpu_cores=(end.cpu_s - start.cpu_s) / wall_s,
        busy_threads=sum(cpu_s >= BUSY_SHARE * wall_s for cpu_s in spent),
        throttled_s=throttled_s,
        gpu_peak_bytes=gpu_peak_bytes,
    )


def thread_cpu_seconds(tasks: Path = Path("/proc/self/task")) -> dict[Thread, float]:
    """User and system time of each living thread of this process, to the kernel's clock tick (a hundredth of a
    second, as a rule)."""
    ticks = os.sysconf("SC_CLK_TCK")
    found: dict[Thread, float] = {}
    for task in tasks.iterdir():
        try:
            content = (task / "stat").read_text()
        except (FileNotFoundError, ProcessLookupError):  # ended since the listing
            continue
        fields = content.rpartition(")")[2].split()  # the name before it may hold anything; from field 3, see proc(5)
        utime, stime, started = (int(fields[number - 3]) for number in (14, 15, 22))
        found[int(task.name), started] = (utime + stime) / ticks
    return found


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
