"""Read what the worker uses: CPU time and memory of its own process tree, throttling of its cgroup."""

import os
import resource
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from scenarios.contract.result import Telemetry
from scenarios.linux import cgroup
from scenarios.linux.files import text

BUSY_SHARE = 1 / 20

Thread = tuple[int, int]  # thread id and start in clock ticks, because ids are used again


@dataclass(frozen=True)
class Reading:
    """What the worker had used by `at` (monotonic clock). threads: CPU seconds of each thread of this process."""

    at: float
    cpu_s: float
    throttled_s: float | None
    threads: Mapping[Thread, float]


def read() -> Reading:
    """Read all counters now."""
    return Reading(time.monotonic(), tree_cpu_seconds(), throttled_seconds(), thread_cpu_seconds())


def between(start: Reading, end: Reading, gpu_peak_bytes: int | None) -> Telemetry:
    """Return what happened between two readings, and the peak memory until now. Threads that have ended are missing."""
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
    """Return user and system time of each living thread of this process, in seconds. The resolution is the kernel's
    clock tick, usually 0.01 s."""
    ticks = os.sysconf("SC_CLK_TCK")
    found: dict[Thread, float] = {}
    for task in tasks.iterdir():
        try:
            content = (task / "stat").read_text()
        except (FileNotFoundError, ProcessLookupError):  # ended since the listing
            continue
        fields = content.rpartition(")")[2].split()  # the name before it may have spaces; from field 3, see proc(5)
        utime, stime, started = (int(fields[number - 3]) for number in (14, 15, 22))
        found[int(task.name), started] = (utime + stime) / ticks
    return found


def tree_cpu_seconds() -> float:
    """Return user and system time of this process, its finished children and its living descendants, in seconds."""
    own = psutil.Process()
    times = own.cpu_times()
    total = times.user + times.system + times.children_user + times.children_system
    for child in own.children(recursive=True):
        try:
            spent = child.cpu_times()
        except psutil.NoSuchProcess:  # ended since the listing; it now counts as a finished child
            continue
        total += spent.user + spent.system
    return float(total)


def peak_rss_bytes() -> int:
    """Return the peak resident set of this process plus that of its largest finished child, in bytes.

    For the process itself this reads VmHWM. getrusage's ru_maxrss survives fork and exec, so it would count the
    orchestrator's memory.
    """
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            own = int(line.split()[1]) * 1024
            return own + resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    raise RuntimeError("/proc/self/status has no VmHWM line")


def throttled_seconds() -> float | None:
    """Return the seconds for which the CPU quota of this process's cgroup held it back, None if no file shows them.

    If the cgroup itself does not count them, the nearest parent that does is used.
    """
    for folder in cgroup.own_folders("cpu")[1]:
        fields = dict(pair.split() for pair in (text(folder / "cpu.stat") or "").splitlines())
        for name, per_second in (("throttled_usec", 1e6), ("throttled_time", 1e9)):
            if name in fields:
                return int(fields[name]) / per_second
    return None
