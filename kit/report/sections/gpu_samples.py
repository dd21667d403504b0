"""Power, temperature, clock and utilization of the GPUs over time, with the means of each network."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kit.analysis.gpu_use import gpu_mean
from kit.analysis.measured_launch import MeasuredLaunch
from kit.report import text
from kit.report.elements import Table
from kit.report.host_lines import HostChart, host_charts
from kit.report.line_charts import LineChart
from kit.report.section import ReportInput, Section

CHARTS = (
    HostChart("Utilization, % of the time with a kernel", {"gpu#_use": "GPU #"}, lambda v: f"{100 * v:.0f}%", top=1.0),
    HostChart("Power, W", {"gpu#_power_w": "GPU #"}, lambda v: f"{v:,.0f} W"),
    HostChart("Temperature, °C", {"gpu#_temperature_c": "GPU #"}, lambda v: f"{v:.0f} °C"),
    HostChart("Clock, MHz", {"gpu#_sm_mhz": "GPU #"}, lambda v: f"{v:,.0f}"),
)
# Header of a column to its series without the GPU, and the form of a mean.
COLUMNS: Mapping[str, tuple[str, Callable[[float], str]]] = {
    "Busy": ("use", text.percent),
    "Power": ("power_w", lambda value: f"{text.number(value)} W"),
    "Temperature": ("temperature_c", lambda value: f"{value:.0f} °C"),
    "Clock": ("sm_mhz", lambda value: f"{value:,.0f} MHz"),
    "Memory": ("memory_gib", lambda value: f"{text.number(value)} GiB"),
}


@dataclass(frozen=True)
class SamplesData:
    """The content. means: of the samples in training, for each network."""

    heading: str
    charts: tuple[LineChart, ...]
    means: Table


def _data(source: ReportInput) -> SamplesData | None:
    records = [record for record in source.run.records if record.cell.device == "cuda"]
    charts = host_charts(records, CHARTS)
    if not charts:
        return None
    networks: dict[str, list[MeasuredLaunch]] = {}
    for launches in source.analysis.launches.values():
        cell = launches[0].request.cell
        if cell.device == "cuda":
            networks.setdefault(source.row_title(cell), []).extend(launches)
    return SamplesData(busy_heading(_busy(networks)), charts, _means(networks))


def _busy(networks: Mapping[str, Sequence[MeasuredLaunch]]) -> dict[str, float]:
    """Return the mean busy share of each network, over its launches."""
    found = {name: [gpu_mean(launch, "use") for launch in launches] for name, launches in networks.items()}
    known = {name: [share for share in shares if share is not None] for name, shares in found.items()}
    return {name: statistics.fmean(shares) for name, shares in known.items() if shares}


def busy_heading(busy: Mapping[str, float]) -> str:
    """Return how busy the GPU was. busy: mean share of the time for each network."""
    if not busy:
        return "Its utilization was not sampled while it trained"
    low, high = min(busy, key=lambda name: busy[name]), max(busy, key=lambda name: busy[name])
    if low == high:
        return f"The GPU ran kernels during {text.percent(busy[low])} of the training of {low}"
    return (
        f"The GPU ran kernels during {text.percent(busy[low])} ({low}) to {text.percent(busy[high])} ({high}) of the "
        f"training time"
    )


def _means(networks: Mapping[str, Sequence[MeasuredLaunch]]) -> Table:
    columns: dict[str, list[str]] = {}  # only those that the driver reports
    for header, (series, form) in COLUMNS.items():
        found = [
            [m for launch in launches if (m := gpu_mean(launch, series)) is not None] for launches in networks.values()
        ]
        if any(found):
            columns[header] = [form(statistics.fmean(means)) if means else text.MISSING for means in found]
    columns["Launches"] = [str(len(launches)) for launches in networks.values()]
    return Table(
        caption="Means while the network trained, over its GPU launches",
        headers=("Network", *columns),
        rows=tuple(zip(networks, *columns.values(), strict=True)),
        numeric=tuple(range(1, 1 + len(columns))),
    )


SECTION = Section(70, "gpu-samples", "GPU over time", _data, "gpu_samples.html", question="What did the GPU do?")
