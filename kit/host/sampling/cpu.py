"""Load of the CPUs from /proc/stat, and how fast they run."""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kit.host.sampling.files import number

MIN_TICKS = 10  # of 10 ms: over less time, one tick more or less is more than a tenth of a CPU
MAX_CORES = 16  # the clocks of so many stand for all: some kernels wait 10 ms for each (arch_freq_get_on_cpu, to 5.17)
CLOCKS_EVERY = 4  # samples
CPUINFO_BYTES = 32 << 10  # about 20 CPUs; the kernel makes the text as far as it is read


@dataclass(frozen=True)
class Ticks:
    """How one logical CPU spent its time, in ticks (man 5 proc, /proc/stat; mostly of 10 ms). idle: with waiting for
    storage. stolen: wanted, but given to another virtual machine."""

    busy: int
    stolen: int
    idle: int

    @property
    def all(self) -> int:
        """All of its time."""
        return self.busy + self.stolen + self.idle

    def since(self, earlier: Ticks) -> Ticks:
        """What has come on top. Nothing is below zero: the kernel's counts of waiting and steal can fall a little."""
        return Ticks(
            max(0, self.busy - earlier.busy), max(0, self.stolen - earlier.stolen), max(0, self.idle - earlier.idle)
        )

    def __add__(self, other: Ticks) -> Ticks:
        return Ticks(self.busy + other.busy, self.stolen + other.stolen, self.idle + other.idle)


def parse_stat(text: str) -> dict[int, Ticks]:
    """/proc/stat: number of each logical CPU that is online to its ticks since boot. Guests' time is within user's."""
    found = {}
    for line in text.splitlines():
        name, *fields = line.split()
        if not name.startswith("cpu"):
            break  # the CPUs come first
        if name != "cpu":  # the sum over all
            user, nice, system, idle, waiting, interrupts, soft_interrupts, stolen = map(int, fields[:8])
            busy = user + nice + system + interrupts + soft_interrupts
            found[int(name.removeprefix("cpu"))] = Ticks(busy, stolen, idle + waiting)
    return found


def read_stat(file: Path) -> dict[int, Ticks]:
    """`parse_stat` of that file; nothing where it is not shown to this process (some sandboxes)."""
    try:
        return parse_stat(file.read_text())
    except OSError:
        return {}


class Load:
    """`cpu_busy` and `cpu_steal`: CPUs, as the mean over the time since the reading before; the first has none."""

    def __init__(self, stat: Path = Path("/proc/stat")) -> None:
        self._stat = stat
        self._last: dict[int, Ticks] | None = None
        self._spent: dict[int, Ticks] = {}

    def read(self) -> dict[str, float]:
        """Nothing too soon after the reading before, nor where the system counts no ticks (some sandboxes)."""
        now = read_stat(self._stat)
        if self._last is None:
            self._last = now
            return {}
        passed = {cpu: ticks.since(self._last[cpu]) for cpu, ticks in now.items() if cpu in self._last}
        if max((ticks.all for ticks in passed.values()), default=0) < MIN_TICKS:
            return {}
        self._last = now
        for cpu, ticks in passed.items():
            self._spent[cpu] = self._spent.get(cpu, Ticks(0, 0, 0)) + ticks
        counted = [ticks for ticks in passed.values() if ticks.all]
        return {
            "cpu_busy": sum(ticks.busy / ticks.all for ticks in counted),
            "cpu_steal": sum(ticks.stolen / ticks.all for ticks in counted),
        }

    def core_busy(self) -> list[float]:
        """Share of the time between the first reading and the last for which each logical CPU was busy, in the order
        of their numbers."""
        return [ticks.busy / ticks.all for _, ticks in sorted(self._spent.items()) if ticks.all]


def parse_clocks(cpuinfo: str) -> list[float]:
    """MHz of each CPU in /proc/cpuinfo as far as it was read. None where the CPU does not count its cycles
    (aperfmperf): the kernel then writes the nominal figure, which says nothing about how fast it runs."""
    if not re.search(r"^flags\s*:.*\baperfmperf\b", cpuinfo, re.MULTILINE):
        return []
    return [float(clock) for clock in re.findall(r"^cpu MHz\s*: ([\d.]+)\n", cpuinfo, re.MULTILINE)]


class Clocks:
    """`cpu_mhz`: mean over up to MAX_CORES logical CPUs, in every CLOCKS_EVERY-th reading: it is slow to read."""

    def __init__(self, folder: Path = Path("/sys/devices/system/cpu"), cpuinfo: Path = Path("/proc/cpuinfo")) -> None:
        self._files = _spread(sorted(folder.glob("cpu[0-9]*/cpufreq/scaling_cur_freq")))
        self._cpuinfo = cpuinfo
        self._told = bool(self._files or self._from_cpuinfo())
        self._readings = 0

    def read(self) -> dict[str, float]:
        """Nothing in between, and where the machine does not tell its clocks (most virtual machines)."""
        due = self._told and self._readings % CLOCKS_EVERY == 0
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
        except OSError:  # not shown to this process
            return []


def _spread(files: Sequence[Path]) -> list[Path]:
    """Up to MAX_CORES of them, evenly over the whole."""
    chosen = min(len(files), MAX_CORES)
    return [files[i * len(files) // chosen] for i in range(chosen)]
