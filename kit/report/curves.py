"""Make the charts of accuracy over epochs, and the same values as tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kit.analysis.summaries import CellSummary
from kit.model.formatting import format_range
from kit.report import text
from kit.report.elements import Table
from kit.report.line_charts import LineChart, Series, line_chart
from kit.report.rows import cell_key, configuration_key, configuration_words, unusual_words
from kit.report.section import ReportInput
from scenarios.contract.cell import Cell

MAX_LINES = 12  # of a chart, two for each cell
MAX_EPOCHS = 30  # rows of a table


@dataclass(frozen=True)
class CurveChart:
    """The lines of one network in one lane and precision. table: their values after each epoch, or after some of
    many."""

    lines: LineChart
    table: Table


@dataclass(frozen=True)
class Curves:
    """One chart for each network, lane and precision.

    heading: the range of accuracies, also used as the summary of a folded section. omitted: cells that are not drawn.
    """

    heading: str
    charts: tuple[CurveChart, ...]
    omitted: int

    @property
    def summary(self) -> str:
        """Return the heading."""
        return self.heading


def make_curves(source: ReportInput, synthetic: bool) -> Curves | None:
    """Return the learning curves of the cells with this kind of data, or None if there are none."""
    charts, ends, omitted = [], [], 0
    for cells in source.rows.values():
        groups: dict[tuple[str, str], list[CellSummary]] = {}
        for each in sorted(cells, key=cell_key):
            if len(each.curve) > 1 and each.synthetic == synthetic:
                groups.setdefault((each.cell.lane, each.cell.precision), []).append(each)
        for own in groups.values():
            drawn = own[: MAX_LINES // 2]
            omitted += len(own) - len(drawn)
            charts.append(_chart(source, drawn))
            ends += [(c.curve[-1][2], _title(source, c.cell), c.curve[-1][0]) for c in own]
    if not charts:
        return None
    (low, network, _), (high, other, _) = min(ends), max(ends)
    epochs = sorted({count for _, _, count in ends})
    counted = f"{format_range(str(epochs[0]), str(epochs[-1]))} epochs"
    if len(charts) == 1:
        accuracy = format_range(text.percent(low, 1), text.percent(high, 1))
        return Curves(f"Test accuracy of {accuracy} after {counted} ({network})", tuple(charts), omitted)
    lowest, highest = f"{text.percent(low, 1)} ({network})", f"{text.percent(high, 1)} ({other})"
    return Curves(f"Test accuracy from {lowest} to {highest} after {counted}", tuple(charts), omitted)


def _title(source: ReportInput, cell: Cell) -> str:
    """Return the title of a network, with lane and precision if they are not the usual ones."""
    return ", ".join([source.row_title(cell), *unusual_words(cell)])


def _chart(source: ReportInput, cells: Sequence[CellSummary]) -> CurveChart:
    several = len({configuration_key(c.cell) for c in cells}) > 1
    names, series = [], []
    for summary in cells:
        cell = summary.cell
        names.append(" ".join([source.framework_title(cell.framework)] + [configuration_words(cell)] * several))
        gpu = 2 * (cell.device != "cpu" and several)
        for dash, part in enumerate(("test", "train")):
            points = [(epoch, (test, train)[dash]) for epoch, train, test in summary.curve]
            line = Series(f"{names[-1]}, {part}", points, cell.framework, gpu + dash, device=cell.device, ends=True)
            series.append(line)
    title = _title(source, cells[0].cell)
    lines = line_chart(title, "epochs", series, _percent, zero=False)
    return CurveChart(lines, _table(title, names, cells))


def _table(title: str, names: Sequence[str], cells: Sequence[CellSummary]) -> Table:
    columns = [{epoch: f"{_percent(test)} / {_percent(train)}" for epoch, train, test in c.curve} for c in cells]
    epochs = sorted({epoch for column in columns for epoch in column})
    step = -(-len(epochs) // MAX_EPOCHS)
    shown = epochs[::-1][::step][::-1]  # the last one is among them
    return Table(
        caption=f"{title}: accuracy, test / train",
        headers=("Epoch", *names),
        rows=tuple((f"{epoch:,}", *(column.get(epoch, text.MISSING) for column in columns)) for epoch in shown),
        numeric=tuple(range(1, len(names) + 1)),
    )


def _percent(accuracy: float) -> str:
    return text.percent(accuracy, 1)
