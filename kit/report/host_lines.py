"""Make line charts of the host's samples over the time of all launches that have them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from kit.model.record import Record
from kit.report.line_charts import LineChart, Series, line_chart, thinned

MAX_GPUS = 16


@dataclass(frozen=True)
class HostChart:
    """A chart of samples.

    series: its name, with `#` for the number of a GPU, to its label. text: formats a value. top: end of the y axis, or
    None for a round value above all.
    """

    title: str
    series: Mapping[str, str]
    text: Callable[[float], str]
    top: float | None = None


def host_charts(records: Iterable[Record], charts: Sequence[HostChart], zero: bool = True) -> tuple[LineChart, ...]:
    """Return the charts whose series were sampled."""
    ordered = sorted((r for r in records if r.host_samples and r.host_samples.at), key=lambda r: r.started_at)
    sampled = {name for record in ordered if record.host_samples for name in record.host_samples.series}
    gpus = [number for number in range(MAX_GPUS) if any(name.startswith(f"gpu{number}_") for name in sampled)]
    found = []
    for chart in charts:
        numbers = gpus if any("#" in name for name in chart.series) else [0]
        lines = [
            (label.replace("#", str(number)), points)
            for number in numbers
            for name, label in chart.series.items()
            if (points := thinned(_points(ordered, name.replace("#", str(number)))))
        ]
        if lines:
            series = [Series(label, points, dash=index % 4) for index, (label, points) in enumerate(lines)]
            found.append(line_chart(chart.title, "minutes of measuring", series, chart.text, zero=zero, top=chart.top))
    return tuple(found)


def _points(records: Sequence[Record], name: str) -> list[tuple[float, float]]:
    """Return one series in minutes, as if the launches that have it ran one after the other without a pause."""
    points: list[tuple[float, float]] = []
    elapsed = 0.0
    for record in records:
        samples = record.host_samples
        if samples is None or name not in samples.series:
            continue
        points += [
            ((elapsed + at - samples.at[0]) / 60, value)
            for at, value in zip(samples.at, samples.series[name], strict=False)
            if value is not None
        ]
        elapsed += samples.at[-1] - samples.at[0]
    return points
