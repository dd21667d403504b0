"""Lay out the results of a run as tables of networks by frameworks, in plain text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from kit.analysis.answers import is_ahead, why_no_lead
from kit.analysis.summaries import ContestState
from kit.analysis.sweeps import value_of, value_words, values_of, varied_fields
from kit.model.formatting import DEVICES, format_number, format_percent, format_ratio, printable
from kit.report.marks import sort_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from kit.analysis.run_analysis import RunAnalysis
    from kit.analysis.summaries import CellSummary, Contest
    from kit.model.swept import SweptField
    from scenarios.catalog import Scenarios
    from scenarios.contract.cell import Cell

SINGLE, UNSTEADY, SYNTHETIC = "¹", "!", "*"
GAP = "  "
MISSING = "–"


class Marks(NamedTuple):
    """Keys of the cells with a mark. unsteady: cells with a doubtful training speed. synthetic: empty if all cells use
    synthetic data. disturbed: cells with a doubtful latency."""

    unsteady: frozenset[str]
    synthetic: frozenset[str]
    disturbed: frozenset[str]

    def of(self, key: str) -> str:
        """Return the marks after a speed."""
        return UNSTEADY * (key in self.unsteady) + SYNTHETIC * (key in self.synthetic)


class _Names(NamedTuple):
    """What names rows. varied: what varies in each network, by its label."""

    scenarios: Scenarios
    varied: Mapping[str, Sequence[SweptField]]

    def of(self, cell: Cell) -> str:
        """Return the label of a cell, or its values if it is one row of a sweep: `  batch 32, 2 workers`."""
        fields = self.varied[cell.label]
        words = ", ".join(value_words(field, value_of(cell, field, self.scenarios)) for field in fields)
        return GAP + words if words else printable(cell.label)


@dataclass(frozen=True)
class Table:
    """A table of networks by frameworks.

    title: what is shown, in which unit. columns: titles of the frameworks. last: title of the last column, or "". rows:
    the name of a network, one text per framework, and the text of the last column. A row without texts is the heading
    of a network whose rows follow, one for each value of what varies.
    """

    title: str
    columns: tuple[str, ...]
    last: str
    rows: tuple[tuple[str, tuple[str, ...], str], ...]

    def lines(self, width: int) -> list[str]:
        """Return the lines of the table. If it is wider than `width`, each network gets lines of its own."""
        aligned = self._aligned()
        return aligned if max(map(len, aligned)) <= width else self._stacked()

    def _aligned(self) -> list[str]:
        columns = [_digits_aligned(column) for column in zip(*(values for _, values, _ in self.rows), strict=True)]
        values = zip(*columns, strict=True)
        rows = ((name, *own, last) for (name, _, last), own in zip(self.rows, values, strict=True))
        texts = [(self.title, *self.columns, self.last), *rows]
        widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
        lines = []
        for name, *own, last in texts:
            cells = [value.rjust(width) for value, width in zip(own, widths[1:-1], strict=True)]
            lines.append(GAP.join([name.ljust(widths[0]), *cells, last]).rstrip())
        rule = "─" * (sum(widths) + len(GAP) * (len(widths) - 1 - (not self.last)))
        return [lines[0], rule, *lines[1:]]

    def _stacked(self) -> list[str]:
        lines = [self.title, "─" * len(self.title)]
        widths = max(map(len, self.columns)), max((len(value) for _, values, _ in self.rows for value in values))
        for name, values, last in self.rows:
            lines.append(name)
            if not any(values):
                continue
            lines += [
                f"{GAP}{column:<{widths[0]}}{GAP}{value:>{widths[1]}}"
                for column, value in zip(self.columns, values, strict=True)
            ]
            lines += [f"{GAP}{self.last}: {last}"] if last else []
        return lines


def _digits_aligned(values: Sequence[str]) -> list[str]:
    """Return the texts of a column with spaces for the marks that other texts have."""
    numbers = [value.rstrip(UNSTEADY + SYNTHETIC) for value in values]
    marks = max(len(value) - len(number) for value, number in zip(values, numbers, strict=True))
    return [number + value[len(number) :].ljust(marks) for value, number in zip(values, numbers, strict=True)]


def tables(
    analysis: RunAnalysis, titles: Mapping[str, str], marks: Marks, won: Mapping[str, Sequence[Contest]]
) -> list[Table]:
    """Return the tables of training speed, latency and accuracy, each one per device, lane and precision.

    titles: of the frameworks. won: the contests of the training speed and of the latency.
    """
    shown = [cell for cell in analysis.cells if _has_started(analysis, cell)]
    groups: dict[tuple[str, int, str, bool, str], list[CellSummary]] = {}
    scenarios, varied = analysis.scenarios, varied_fields((cell.cell for cell in shown), analysis.scenarios)
    for cell in sorted(shown, key=lambda c: (c.cell.scenario, c.cell.variant, values_of(c.cell, scenarios))):
        groups.setdefault(_group(cell.cell), []).append(cell)
    ordered = [groups[key] for key in sorted(groups)]
    found = []
    kinds: tuple[tuple[str, str, frozenset[str], Callable[[CellSummary], str]], ...] = (
        ("Training, images/s", "training", marks.unsteady, lambda cell: _speed(cell, marks)),
        ("Latency, ms, batch 1", "latency", marks.disturbed, lambda cell: _latency(cell, marks)),
        ("Test accuracy", "", frozenset(), _accuracy),
    )
    for title, measure, doubtful, text in kinds:
        for own in ordered:
            place = f", {_place(own[0].cell)}" if len(groups) > 1 else ""
            contests = {_network(contest.leader.cell): contest for contest in won.get(measure, ())}
            made = _table(title + place, own, titles, text, contests, doubtful, _Names(scenarios, varied))
            if any(value not in {"", MISSING, "failed"} for _, values, _ in made.rows for value in values):
                found.append(made)
    return found


def _table(
    title: str,
    cells: Sequence[CellSummary],
    titles: Mapping[str, str],
    text: Callable[[CellSummary], str],
    contests: Mapping[Cell, Contest],
    doubtful: frozenset[str],
    names: _Names,
) -> Table:
    frameworks = sorted({cell.cell.framework for cell in cells}, key=sort_key)
    rows: dict[Cell, dict[str, str]] = {}
    for cell in cells:
        rows.setdefault(_network(cell.cell), {})[cell.cell.framework] = text(cell)
    own = [contest for network, contest in contests.items() if network in rows]
    named = any(not contest.unknown for contest in own)
    shown: list[tuple[str, tuple[str, ...], str]] = []
    label = ""
    for network, values in rows.items():
        if set(values.values()) == {MISSING}:
            continue  # no framework has an accuracy: only the speed was measured, or the data is synthetic
        if network.label != label and names.varied[network.label]:
            shown.append((printable(network.label), ("",) * len(frameworks), ""))
        label = network.label
        texts = tuple(values.get(name, MISSING) for name in frameworks)
        leader = _leader(contests.get(network), titles, doubtful, single=SINGLE if named else "")
        shown.append((names.of(network), texts, leader))
    last = ("Fastest" if named else f"Ahead{SINGLE}") if own else ""
    return Table(title, tuple(printable(titles.get(name, name)) for name in frameworks), last, tuple(shown))


def _leader(contest: Contest | None, titles: Mapping[str, str], doubtful: frozenset[str], single: str) -> str:
    """Return which framework is the fastest and by which factor. doubtful: keys of cells with doubtful values. single:
    mark of a lead in a single launch."""
    if contest is None:
        return ""
    name = contest.leader.cell.framework
    lead = f"{titles.get(name, name)} {format_ratio(contest.second.ratio)}×"
    match contest.state:
        case ContestState.NAMED:
            return lead
        case ContestState.UNKNOWN:
            return lead + single if is_ahead(contest, doubtful) else why_no_lead([contest])
        case state:
            return str(state)


def _network(cell: Cell) -> Cell:
    """Return the cell without its framework, as the key of a row."""
    return replace(cell, framework="")


def _group(cell: Cell) -> tuple[str, int, str, bool, str]:
    """Return what the cells of a table have in common, in the order of the tables: the CPU, stock and fp32 first."""
    return cell.device, cell.devices, cell.lane, cell.precision != "fp32", cell.precision


def _place(cell: Cell) -> str:
    """Return where and how a group of cells was measured, for example `GPU`, or `CPU, tuned, bf16`."""
    devices = f"{cell.devices} × " if cell.devices > 1 else ""
    details = [part for part, usual in ((cell.lane, "stock"), (cell.precision, "fp32")) if part != usual]
    return ", ".join([devices + DEVICES[cell.device], *details])


def _has_started(analysis: RunAnalysis, cell: CellSummary) -> bool:
    """Return whether a launch of the cell was not skipped."""
    return any(record.status != "skipped" for record in analysis.run.by_cell[cell.key])


def _speed(cell: CellSummary, marks: Marks) -> str:
    return "failed" if cell.images_per_s is None else format_number(cell.images_per_s) + marks.of(cell.key)


def _latency(cell: CellSummary, marks: Marks) -> str:
    mark = UNSTEADY * (cell.key in marks.disturbed)
    return "failed" if cell.p50_ms is None else format_number(cell.p50_ms, 2) + mark


def _accuracy(cell: CellSummary) -> str:
    return MISSING if cell.test_accuracy is None or cell.synthetic else format_percent(cell.test_accuracy, 2)
