"""Training speed over the batch size, the loader workers or the hidden layers, where a scenario has several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kit.analysis.pairing import Measure
from kit.analysis.sweeps import Curve, curves, value_of, value_words
from kit.model.formatting import format_range
from kit.model.swept import SWEPT, TITLES, SweptField
from kit.report import text
from kit.report.elements import Table
from kit.report.flattening import MEANING, flat_words, single_words
from kit.report.line_charts import LineChart, Series, value_chart
from kit.report.marks import sort_key
from kit.report.rows import configuration_key, configuration_words
from kit.report.section import ReportInput, Section

MAX_CHARTS = 12


@dataclass(frozen=True)
class SweepChart:
    """The lines over one field, and the same values as a table."""

    lines: LineChart
    table: Table


@dataclass(frozen=True)
class SweepsData:
    """The content. devices, whiskers: what the charts have. omitted: number of charts that are not drawn.

    flattening: what it means that a curve is flat, or "" if no curve is over a field whose larger values can help.
    single: whether a curve has too few launches for an interval.
    """

    heading: str
    charts: tuple[SweepChart, ...]
    devices: tuple[str, ...]
    whiskers: bool
    flattening: str
    single: bool
    omitted: int


def _data(source: ReportInput) -> SweepsData | None:
    groups = _groups(source)
    if not groups:
        return None
    shown = [curve for group in groups for curve in group]
    cells = [cell for curve in shown for cell in curve.cells]
    growing = [curve for curve in shown if curve.field != "hidden_layers"]
    return SweepsData(
        heading=_heading(shown),
        charts=tuple(_chart(source, group) for group in groups[:MAX_CHARTS]),
        devices=tuple(sorted({cell.cell.device for cell in cells})),
        whiskers=any(cell.interval for cell in cells),
        flattening=MEANING if growing else "",
        single=any(curve.single for curve in growing),
        omitted=max(0, len(groups) - MAX_CHARTS),
    )


def _groups(source: ReportInput) -> list[list[Curve]]:
    """Return the curves of each chart: of one scenario over one field, at the same values of the other fields.

    If several fields vary, one with the most values is drawn for each value of the others. The curves over another one
    are drawn only if they fit in one chart, because the rest would show the same cells again.
    """
    found: dict[tuple[str, SweptField], dict[tuple[object, ...], list[Curve]]] = {}
    rates = source.analysis.rates[Measure.TRAINING]
    for field in SWEPT:
        for curve in curves(source.measured, rates, source.analysis.scenarios, field):
            cell = curve.cells[0].cell
            others = tuple(value_of(cell, other, source.analysis.scenarios) or 0 for other in SWEPT if other != field)
            found.setdefault((cell.label, field), {}).setdefault(others, []).append(curve)
    groups = []
    for label in dict.fromkeys(label for label, _ in found):
        own = {field: charts for (name, field), charts in found.items() if name == label}
        main = max(own, key=lambda field: max(len(c.values) for group in own[field].values() for c in group))
        for field, charts in own.items():
            if field == main or len(charts) == 1:
                groups += [group for _, group in sorted(charts.items())]
    return groups


def _chart(source: ReportInput, group: Sequence[Curve]) -> SweepChart:
    field = group[0].field
    first = group[0].cells[0].cell
    ordered = sorted(group, key=lambda c: (*configuration_key(c.cells[0].cell), sort_key(c.cells[0].cell.framework)))
    others = [other for other in source.varied[first.label] if other not in (field, "hidden_layers")]
    title = ", ".join([_title(source, group[0]), *(value_words(o, getattr(first, o)) for o in others)])
    styles = list(dict.fromkeys((c.cells[0].cell.lane, c.cells[0].cell.precision) for c in ordered))
    series = [
        Series(
            name=_name(source, curve) + ("" if field == "hidden_layers" else f": {flat_words([curve])}"),
            points=[(value, cell.images_per_s or 0.0) for value, cell in zip(curve.values, curve.cells, strict=True)],
            framework=curve.cells[0].cell.framework,
            dash=styles.index((curve.cells[0].cell.lane, curve.cells[0].cell.precision)) % 4,
            device=curve.cells[0].cell.device,
            intervals=[cell.interval for cell in curve.cells],
        )
        for curve in ordered
    ]
    lines = value_chart(title, TITLES[field], series, text.number, doubling=field == "batch")
    return SweepChart(lines, _table(source, title, field, ordered))


def _title(source: ReportInput, curve: Curve) -> str:
    """Return the title of a network, which says its hidden layers. If a curve is over them, that of the scenario."""
    cell = curve.cells[0].cell
    if curve.field != "hidden_layers":
        return source.network(cell)
    scenario = source.analysis.scenarios.get(cell.scenario, {}).get(cell.variant)
    return scenario.title if scenario else cell.label


def _name(source: ReportInput, curve: Curve) -> str:
    cell = curve.cells[0].cell
    return f"{source.framework_title(cell.framework)} {configuration_words(cell)}"


def _table(source: ReportInput, title: str, field: SweptField, group: Sequence[Curve]) -> Table:
    columns = [dict(zip(curve.values, curve.cells, strict=True)) for curve in group]
    rows = []
    for value in sorted({value for curve in group for value in curve.values}):
        cells = [column.get(value) for column in columns]
        speeds = (text.estimate(cell.images_per_s, cell.interval) if cell else text.MISSING for cell in cells)
        rows.append((f"{value:,}", *speeds))
    return Table(
        caption=f"{title}: training images/s",
        headers=(TITLES[field].capitalize(), *(_name(source, curve) for curve in group)),
        rows=tuple(rows),
        numeric=tuple(range(1, len(group) + 1)),
    )


def _heading(shown: Sequence[Curve]) -> str:
    """Return what larger values bring, in one sentence without a period."""
    parts = []
    for field in SWEPT:
        if own := [curve for curve in shown if curve.field == field]:
            slower = field == "hidden_layers"
            parts.append(_slower(own) if slower else f"over the {TITLES[field]}, the speed is {flat_words(own)}")
    heading = "; ".join(parts)
    return heading[0].upper() + heading[1:]


def _slower(own: Sequence[Curve]) -> str:
    fewest, most = min(curve.values[0] for curve in own), max(curve.values[-1] for curve in own)
    ratios = [curve.whole.ratio for curve in own]
    extent = format_range(text.factor(min(ratios)), text.factor(max(ratios)))
    words = f"with {value_words('hidden_layers', most)}, training runs at {extent}× the speed with {fewest:,}"
    return words + single_words(own)


SECTION = Section(
    25, "sweeps", "Sweeps", _data, "sweeps.html", question="How does the speed depend on what was varied?"
)
