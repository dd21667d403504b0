"""The machine, the energy of training, and the host's samples over the run."""

import statistics
from collections.abc import Sequence

from kit.analysis.host_samples import joules_per_1000_images
from kit.model.formatting import format_count as counted
from kit.model.record import Record
from kit.report import text
from kit.report.elements import Point, Table
from kit.report.section import ReportInput, Section

# Title of a chart (with unit) to the series that it shows, each with its label. `#` stands for the number of a GPU.
CHARTS = {
    "CPUs busy": {"cpu_busy": "all programs", "cpu_steal": "stolen by the hypervisor"},
    "CPU clock, MHz": {"cpu_mhz": "mean of the cores"},
    "GPU use": {"gpu#_use": "GPU #"},
    "GPU memory, GiB": {"gpu#_memory_gib": "GPU #"},
    "GPU power, W": {"gpu#_power_w": "GPU #"},
    "GPU temperature, °C": {"gpu#_temperature_c": "GPU #"},
    "GPU clock, MHz": {"gpu#_sm_mhz": "GPU #"},
}
MAX_GPUS = 16
MAX_POINTS = 240  # of a line: about one per pixel


def _data(source: ReportInput) -> dict[str, object]:
    timelines = _timelines([*source.run.probes, *source.run.records])
    return {"machine": _machine(source), "energy": _energy(source), "timelines": timelines}


def _machine(source: ReportInput) -> Table:
    of = source.run.machine
    quota = f", quota {of.quota_cpus:g}" if of.quota_cpus else ""
    limit = f", limited to {text.size(of.memory_limit_bytes)}" if of.memory_limit_bytes else ""
    cores = (counted(of.sockets, "socket"), counted(of.physical_cores, "core"), counted(of.logical_cpus, "logical CPU"))
    rows = [
        ("CPU", f"{of.cpu_model} ({of.architecture})"),
        ("Cores", f"{', '.join(cores)}, {of.cpus} usable{quota}"),
        ("Caches", ", ".join(f"{level} {text.size(size)}" for level, size in of.caches.items()) or text.MISSING),
        ("Instruction sets", ", ".join(of.cpu_flags) or text.MISSING),
        ("Memory", text.size(of.memory_bytes) + limit),
    ]
    for gpu in of.gpus:
        power = f", power limit {gpu.power_limit_w:g} W" if gpu.power_limit_w else ""
        memory = "memory unknown" if gpu.memory_bytes is None else text.size(gpu.memory_bytes)
        capability = ".".join(map(str, gpu.compute_capability or ("unknown",)))
        rows.append((f"GPU {gpu.index}", f"{gpu.name}, {memory}, capability {capability}{power}"))
    if of.driver:
        rows.append(("NVIDIA driver", f"{of.driver} (CUDA {of.cuda_driver or 'unknown'})"))
    rows += [
        ("System", f"{of.os}, kernel {of.kernel}"),
        ("Virtualization", of.virtualization or "none found"),
        ("Engine", ", ".join(f"{k} {v}" for k, v in of.container_runtime.items())),
        ("Machine id", of.id),
    ]
    if of.hostname:
        rows.append(("Host", f"{of.hostname} ({of.user})"))
    return Table(headers=("", ""), rows=tuple(rows), wrap=True)


def _energy(source: ReportInput) -> Table:
    found: dict[str, dict[str, list[float]]] = {}
    for record in source.run.records:
        for part, joules in joules_per_1000_images(record).items() if record.ok else ():
            found.setdefault(record.key, {}).setdefault(part, []).append(joules)
    parts = sorted({part for joules in found.values() for part in joules})
    return Table(
        caption="Energy of training, joules per 1,000 images (median over launches; CPU packages, whole GPUs)",
        headers=("Cell", *parts),
        rows=tuple(
            (
                source.name(key),
                *(text.number(statistics.median(joules[part])) if part in joules else text.MISSING for part in parts),
            )
            for key, joules in found.items()
        ),
        numeric=tuple(range(1, 1 + len(parts))),
    )


def _timelines(records: Sequence[Record]) -> dict[str, tuple[Point, ...]]:
    """Return title and points of each chart of the host's samples over the time of all launches."""
    timelines = {}
    for title, series in CHARTS.items():
        numbers = range(MAX_GPUS) if any("#" in name for name in series) else range(1)
        points = tuple(
            point
            for number in map(str, numbers)
            for name, label in series.items()
            for point in _line(records, name.replace("#", number), label.replace("#", number))
        )
        if points:
            timelines[title] = points
    return timelines


def _line(records: Sequence[Record], name: str, label: str) -> list[Point]:
    """Return one series over all launches, in minutes since the first sample.

    Neighboring samples are averaged if there are more than MAX_POINTS.
    """
    points: list[tuple[float, float]] = []
    elapsed = 0.0
    for record in sorted(records, key=lambda r: r.started_at):
        samples = record.host_samples
        if samples is not None and samples.at:
            values = samples.series.get(name, [])
            points += [
                ((elapsed + at - samples.at[0]) / 60, value)
                for at, value in zip(samples.at, values, strict=False)
                if value is not None
            ]
        elapsed += record.seconds
    step = -(-len(points) // MAX_POINTS) or 1
    chunks = [points[i : i + step] for i in range(0, len(points), step)]
    return [Point(label, statistics.fmean(x for x, _ in c), statistics.fmean(y for _, y in c)) for c in chunks]


SECTION = Section(70, "machine", "Machine", _data, "machine.html")
