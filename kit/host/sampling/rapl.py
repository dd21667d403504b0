"""Energy of the CPU packages: RAPL, counted by the CPU and shown by the kernel under powercap (Intel, and AMD since
Linux 5.8). Mostly root alone may read it (CVE-2020-8694), and virtual machines rarely have it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kit.host.sampling.files import number


@dataclass
class Counter:
    """A counter that starts again from zero after `range_uj`, made into one that never falls. Microjoules."""

    range_uj: int
    last_uj: int
    total_uj: int = 0

    def advance(self, now_uj: int) -> None:
        """Take a new reading. A package of 1 kW goes round a range of 262 kJ in four minutes, so that between two
        samples it comes round once at most."""
        self.total_uj += now_uj - self.last_uj + (self.range_uj if now_uj < self.last_uj else 0)
        self.last_uj = now_uj


class Packages:
    """`cpu_energy_j`: joules of all packages together since the first reading."""

    def __init__(self, folder: Path = Path("/sys/class/powercap")) -> None:
        zones = [zone for zone in folder.glob("intel-rapl:[0-9]*") if _is_package(zone)]
        counters = {zone: _counter(zone) for zone in zones}
        self._counters = {zone: counter for zone, counter in counters.items() if counter is not None}
        if len(self._counters) < len(zones):
            self._counters = {}  # some packages without the others would pass for the whole

    def read(self) -> dict[str, float]:
        """Nothing where there is no such counter, or one of them cannot be read."""
        now = {zone: number(zone / "energy_uj") for zone in self._counters}
        readings = {zone: reading for zone, reading in now.items() if reading is not None}
        if not readings or len(readings) < len(self._counters):
            return {}
        for zone, reading in readings.items():
            self._counters[zone].advance(reading)
        return {"cpu_energy_j": sum(counter.total_uj for counter in self._counters.values()) / 1e6}


def _is_package(zone: Path) -> bool:
    """Whether it is a whole package (`package-0`), not a part of one or the whole computer (`psys`)."""
    try:
        return (zone / "name").read_text().startswith("package")
    except OSError:
        return False


def _counter(zone: Path) -> Counter | None:
    range_uj, now_uj = number(zone / "max_energy_range_uj"), number(zone / "energy_uj")
    return None if range_uj is None or now_uj is None else Counter(range_uj, now_uj)
