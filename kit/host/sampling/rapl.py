"""Sample the energy of the CPU packages: RAPL, counted by the CPU and shown by the kernel under powercap.

Intel, and AMD since Linux 5.8. Usually only root may read it (CVE-2020-8694), and virtual machines rarely have it.
"""

from dataclasses import dataclass
from pathlib import Path

from scenarios.linux.files import number, text


@dataclass
class Counter:
    """Turn a counter that wraps around after `range_uj` into one that never falls. Unit: microjoules."""

    range_uj: int
    last_uj: int
    total_uj: int = 0

    def advance(self, now_uj: int) -> None:
        """Add a new reading. A package of 1 kW passes a range of 262 kJ in four minutes, so the counter wraps around at
        most once between two samples."""
        self.total_uj += now_uj - self.last_uj + (self.range_uj if now_uj < self.last_uj else 0)
        self.last_uj = now_uj


class Packages:
    """`cpu_energy_j`: energy of all packages since the first reading, in joules."""

    def __init__(self, folder: Path = Path("/sys/class/powercap")) -> None:
        zones = [zone for zone in folder.glob("intel-rapl:[0-9]*") if _is_package(zone)]
        counters = {zone: _counter(zone) for zone in zones}
        self._counters = {zone: counter for zone, counter in counters.items() if counter is not None}
        if len(self._counters) < len(zones):
            self._counters = {}  # a part of the packages would look like all of them

    def read(self) -> dict[str, float]:
        """Return nothing if there is no such counter, or if one cannot be read."""
        now = {zone: number(zone / "energy_uj") for zone in self._counters}
        readings = {zone: reading for zone, reading in now.items() if reading is not None}
        if not readings or len(readings) < len(self._counters):
            return {}
        for zone, reading in readings.items():
            self._counters[zone].advance(reading)
        return {"cpu_energy_j": sum(counter.total_uj for counter in self._counters.values()) / 1e6}


def _is_package(zone: Path) -> bool:
    """Return whether this is a package (`package-0`), not a part of it or the whole computer (`psys`)."""
    return (text(zone / "name") or "").startswith("package")


def _counter(zone: Path) -> Counter | None:
    range_uj, now_uj = number(zone / "max_energy_range_uj"), number(zone / "energy_uj")
    return None if range_uj is None or now_uj is None else Counter(range_uj, now_uj)
