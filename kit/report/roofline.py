"""Make the roofline chart of a device (Williams, Waterman, Patterson, Roofline, CACM 52, 2009)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kit.analysis.ceilings import ceiling_value
from kit.analysis.diagnosis import Diagnosis
from kit.analysis.summaries import CellSummary
from kit.report import text
from kit.report.rows import configuration_words
from kit.report.scales import Scale, log_scale
from kit.report.section import ReportInput
from kit.report.strips import Dot, Tick, ticks

HEIGHT = 280  # px, of the plot
NUMBERS_HEIGHT = 42  # px, below the dots for three lines of numbers
MAX_DOTS = 150
KERNELS = {"convolution": "convolution", "matmul": "matrix product"}


@dataclass(frozen=True)
class Roof:
    """One ceiling. x1, x2: in percent. y1, y2: in pixels. text: its name and value."""

    x1: float
    y1: float
    x2: float
    y2: float
    text: str


@dataclass(frozen=True)
class Roofline:
    """The chart of one device. y_ticks: positions in pixels.

    numbers: position, pixels from the top, and number of each network. networks: numbers with their names. omitted:
    cells that are not drawn.
    """

    title: str
    label: str
    roofs: tuple[Roof, ...]
    dots: tuple[Dot, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    numbers: tuple[tuple[float, int, int], ...]
    networks: tuple[tuple[int, str], ...]
    omitted: int
    height: int = HEIGHT + NUMBERS_HEIGHT


def roofline(source: ReportInput, device: str, title: str) -> Roofline | None:
    """Return the chart, or None if a ceiling or all cells are missing. Cells on several devices count for one."""
    diagnoses = {d.key: d for d in source.analysis.diagnoses}
    cells = [
        (summary, diagnosis, diagnosis.intensity, diagnosis.flops_per_s / summary.cell.devices)
        for summary in source.measured
        if summary.cell.device == device
        and (diagnosis := diagnoses.get(summary.key))
        and diagnosis.intensity
        and diagnosis.flops_per_s
    ]
    memory = ceiling_value(source.analysis.ceilings, device, "memory")
    used = {summary.cell.precision for summary, *_ in cells}
    flat = {
        f"{KERNELS[name]} {precision}": ceiling.value
        for (on, name, precision), ceiling in sorted(source.analysis.ceilings.items())
        if on == device and name in KERNELS and precision in used
    }
    if not cells or not memory or not flat:
        return None
    top = max(flat.values())
    x = log_scale([*(intensity for _, _, intensity, _ in cells), top / memory])
    y = log_scale([*(flops for *_, flops in cells), *flat.values()])
    names = list(dict.fromkeys(source.network(summary.cell) for summary, *_ in cells))
    drawn = cells[:MAX_DOTS]
    return Roofline(
        title=title,
        label=f"{title}. " + " ".join(_words(source, s, i, f) for s, _, i, f in drawn),
        roofs=tuple(_roofs(x, y, memory, flat)),
        dots=tuple(_dot(source, x, y, s, i, f) for s, _, i, f in drawn),
        x_ticks=ticks(x, text.number_short, 5),
        y_ticks=tuple((y.from_top(value, HEIGHT), text.rate(value, "FLOP/s")) for value in y.ticks(5)),
        numbers=tuple(_numbers(source, x, [(s, d) for s, d, _, _ in drawn], names)),
        networks=tuple(enumerate(names, start=1)),
        omitted=len(cells) - len(drawn),
    )


def _roofs(x: Scale, y: Scale, memory: float, flat: dict[str, float]) -> list[Roof]:
    """Return the horizontal ceilings of arithmetic, and the ceiling of memory up to the highest of them."""
    top = max(flat.values())
    start, ridge = max(x.low, y.low / memory), top / memory
    found = [
        Roof(
            x.at(start),
            y.from_top(start * memory, HEIGHT),
            x.at(ridge),
            y.from_top(top, HEIGHT),
            f"memory {text.rate(memory, 'B/s')}",
        )
    ]
    for name, value in flat.items():
        left = max(x.low, value / memory)
        found.append(
            Roof(
                x.at(left),
                y.from_top(value, HEIGHT),
                100.0,
                y.from_top(value, HEIGHT),
                f"{name} {text.rate(value, 'FLOP/s')}",
            )
        )
    return found


def _words(source: ReportInput, summary: CellSummary, intensity: float, flops: float) -> str:
    cell = summary.cell
    name = f"{source.network(cell)}, {source.framework_title(cell.framework)}, {configuration_words(cell)}"
    return f"{name}: {text.rate(flops, 'FLOP/s')} at {text.number(intensity)} FLOP/B."


def _dot(source: ReportInput, x: Scale, y: Scale, summary: CellSummary, intensity: float, flops: float) -> Dot:
    words = _words(source, summary, intensity, flops)
    return Dot(summary.cell.framework, summary.cell.device, x.at(intensity), round(y.from_top(flops, HEIGHT)), words)


def _numbers(
    source: ReportInput, x: Scale, cells: Sequence[tuple[CellSummary, Diagnosis]], names: Sequence[str]
) -> list[tuple[float, int, int]]:
    """Return the number of each network at its intensity, on three lines so that neighbors do not overlap."""
    places: dict[int, float] = {}
    for summary, diagnosis in cells:
        places.setdefault(names.index(source.network(summary.cell)) + 1, x.at(diagnosis.intensity or x.low))
    ordered = sorted(places.items(), key=lambda item: item[1])
    return [(at, HEIGHT + NUMBERS_HEIGHT - 6 - 13 * (place % 3), number) for place, (number, at) in enumerate(ordered)]
