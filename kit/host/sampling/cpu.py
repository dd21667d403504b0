"""Load of the CPUs, and how fast they run."""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from scenarios.linux.files import number, text

MIN_S = 0.1  # the kernel mostly counts in 0.01 s: over less time, one count more or less exceeds a tenth of a CPU
MAX_CORES = 16  # whose clocks are read; some kernels wait 10 ms for each (arch_freq_get_on_cpu, up to Linux 5.17)
CLOCKS_EVERY = 4  # samples
CPUINFO_BYTES = 32 << 10  # about 20 CPUs; the kernel generates the text only as far as it is read
ONLINE = Path("/sys/devices/system/cpu/online")


@dataclass(frozen=True)
class CpuTimes:
    """How one logical CPU spent its time, in seconds. idle: with waiting for storage. stolen: time that was wanted but
    given to another virtual machine."""

    busy: float = 0.0
    stolen: float = 0.0
    idle: float = 0.0

    @property
    def all(self) -> float:
        """All of its time."""
        return self.busy + self.stolen + self.idle

    def since(self, earlier: CpuTimes) -> CpuTimes:
        """Return the difference, never below zero: the kernel's counts of waiting and steal can fall a little."""
        pairs = (self.busy, earlier.busy), (self.stolen, earlier.stolen), (self.idle, earlier.idle)
        return CpuTimes(*(max(0.0, now - before) for now, before in pairs))


def cpu_times() -> dict[int, CpuTimes]:
    """Return the times since boot of each online logical CPU, by its number. Empty if the system does not show them
    (some sandboxes). Time of guests is part of the user time."""
    try:
        found = psutil.cpu_times(percpu=True)
    except OSError:
        return {}
    online = _online()
    numbers = online if len(online) == len(found) else range(len(found))  # some containers show only their own CPUs
    return {
        cpu: CpuTimes(
            times.user + times.nice + times.system + times.irq + times.softirq, times.steal, times.idle + times.iowait
        )
        for cpu, times in zip(numbers, found, strict=True)
    }


def _online() -> list[int]:
    """Return the numbers of the CPUs that are online. The file lists spans, for example 0-3,8."""
    spans = [span.partition("-") for span in (text(ONLINE) or "").split(",") if span]
    return [cpu for first, _, last in spans for cpu in range(int(first), int(last or first) + 1)]


def between(before: Mapping[int, CpuTimes], after: Mapping[int, CpuTimes]) -> dict[int, CpuTimes]:
    """Return how the CPUs of both readings spent the time between them."""
    return {cpu: times.since(before[cpu]) for cpu, times in after.items() if cpu in before}


class Load:
    """`cpu_busy` and `cpu_steal`: mean number of CPUs since the previous reading. The first reading has no values."""

    def __init__(self) -> None:
        self._first: dict[int, CpuTimes] | None = None
        self._last: dict[int, CpuTimes] = {}

    def read(self) -> dict[str, float]:
        """Return nothing within MIN_S of the previous reading, or if the system counts no time (some sandboxes)."""
        now = cpu_times()
        if self._first is None:
            self._first = self._last = now
        passed = between(self._last, now)
        if max((times.all for times in passed.values()), default=0.0) < MIN_S:
            return {}
        self._last = now
        counted = [times for times in passed.values() if times.all]
        return {
            "cpu_busy": sum(times.busy / times.all for times in counted),
            "cpu_steal": sum(times.stolen / times.all for times in counted),
        }

    def core_busy(self) -> list[float]:
        """Return the share of time that each logical CPU was busy between the first and the last reading, in the order
        of their numbers."""
        passed = between(self._first or {}, self._last)
        return [times.busy / times.all for _, times in sorted(passed.items()) if times.all]


def parse_clocks(cpuinfo: str) -> list[float]:
    """Return the MHz of each CPU in the part of /proc/cpuinfo that was read. Return nothing if the CPU does not count
    its cycles (aperfmperf): the kernel then writes the nominal clock, whatever the real one is."""
    if not re.search(r"^flags\s*:.*\baperfmperf\b", cpuinfo, re.MULTILINE):
        return []
    return [float(clock) for clock in re.findall(r"^cpu MHz\s*: ([\d.]+)\n", cpuinfo, re.MULTILINE)]


class Clocks:
    """`cpu_mhz`: mean over up to MAX_CORES logical CPUs. It is slow to read: every CLOCKS_EVERY-th reading has it."""

    def __init__(self, folder: Path = Path("/sys/devices/system/cpu"), cpuinfo: Path = Path("/proc/cpuinfo")) -> None:
        self._files = _spread(sorted(folder.glob("cpu[0-9]*/cpufreq/scaling_cur_freq")))
        self._cpuinfo = cpuinfo
        self._available = bool(self._files or self._from_cpuinfo())
        self._readings = 0

    def read(self) -> dict[str, float]:
        """Return nothing in between, or if the machine does not show its clocks (most virtual machines)."""
        due = self._available and self._readings % CLOCKS_EVERY == 0
        self._readings += 1
        if not due:
            return {}
        kilohertz = [clock for clock in map(number, self._files) if clock is not None]
        clocks = [clock / 1000 for clock in kilohertz] if self._files else self._from_cpuinfo()
        return {"cpu_mhz": statistics.fmean(clocks)} if clocks else {}

    def _from_cpuinfo(self) -> list[float]:
        try:
            with open(self._cpuinfo, encoding="utf-8", errors="replace") as file:
                return parse_clocks(file.read(CPUINFO_BYTES))
        except OSError:  # this process may not read it
            return []


def _spread(files: Sequence[Path]) -> list[Path]:
    """Return up to MAX_CORES of them, evenly spaced."""
    chosen = min(len(files), MAX_CORES)
    return [files[i * len(files) // chosen] for i in range(chosen)]
