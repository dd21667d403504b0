"""Format comparisons and the outcome of the gate for a terminal."""

import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from string import ascii_uppercase
from typing import NamedTuple

from kit.analysis.comparison import (
    ABSENT,
    MIN_CELLS,
    CellResult,
    CellStatus,
    Comparison,
    GroupMean,
    cell_names,
    group_means,
    overall,
)
from kit.analysis.differences import Difference, Severity
from kit.analysis.gate import FAILING, GateOutcome, GateResult, JudgedCell, exit_code_after
from kit.analysis.intervals import MIN_LAUNCHES, Interval, Verdict
from kit.analysis.pairing import Measure
from kit.cli.console import Column
from kit.cli.tables import SYNTHETIC
from kit.model.formatting import format_count, format_few, format_percent, shortened
from kit.model.run import Run
from kit.planning import catalog
from scenarios.contract.reasons import Status

WIDTH = 80
FLAGGED = "!"
MAX_SHOWN = 3  # pairs of values in one line; --json has all
MORE_ROUNDS = "Measure more rounds, or allow a larger loss."
LABELS = {Severity.REFUSED: "Refused", Severity.FLAGGED: f"{FLAGGED} Flagged", Severity.NOTED: "Also differs"}

Titles = tuple[str, str]  # names of base and new


def letters(count: int) -> list[str]:
    """Return the names of runs that have no label. A is the base."""
    return [ascii_uppercase[index] if index < len(ascii_uppercase) else f"R{index + 1}" for index in range(count)]


def legend(runs: Sequence[Run], labels: Sequence[str] = ()) -> list[str]:
    """Return a line per run with its label, id, profile and machine. labels: by default letters."""
    return _wrapped(
        f"{label}  {run.plan.run}, {run.plan.profile}: {run.machine.description}"
        for label, run in zip(labels or letters(len(runs)), runs, strict=True)
    )


class Section(NamedTuple):
    """A table and the notes below it."""

    columns: list[Column]
    rows: list[list[str]]
    notes: list[str]


def comparison_section(
    comparisons: Sequence[Comparison], runs: Sequence[Run], new: int, measure: Measure, labels: Sequence[str] = ()
) -> Section:
    """Return every cell that has an ok launch in the first run or in the run with the index `new`.

    The notes have counts, group means, differences, the reasons why cells are missing, and the overall ratio. labels:
    of the runs, by default letters.
    """
    named = labels or letters(new + 1)
    names, titles = _names(runs), (named[0], named[new])
    shown = [comparison for comparison in comparisons if comparison.base.speeds or comparison.new.speeds]
    counts = Counter(comparison.words for comparison in shown)
    verdicts = ", ".join(f"{n} {verdict}" for verdict, n in counts.most_common())
    lines = [f"{format_count(len(shown), 'cell')}: {verdicts}"] if shown else []
    if counts[Verdict.UNKNOWN]:
        lines.append("unknown: a single launch or round has no interval. Measure more --rounds.")
    lines += [_mean(mean) for mean in group_means(comparisons)]
    lines += _pairing(shown)
    lines += _shared_notes(shown, names, titles)
    if neither := [comparison for comparison in comparisons if comparison not in shown]:
        skipped = sum(map(_skipped, neither))
        whole = f", {'all' if skipped == len(neither) else skipped} of them skipped" if skipped else ""
        lines.append(f"Ok in neither run: {format_count(len(neither), 'cell')}{whole}")
    lines += _overall(comparisons, titles)
    rows = {comparison.key: _row(comparison, comparison.words, names) for comparison in shown}
    return Section(
        _columns(measure, *titles, f"{titles[1]}/{titles[0]}", "Verdict"), _ordered(rows, names), _wrapped(lines)
    )


def gate_section(result: GateResult, runs: Sequence[Run]) -> Section:
    """Return every cell that has an ok launch in the base.

    The notes have differences, the reasons why cells are lost, what the data could reveal, the rule, and the outcome.
    """
    names, titles = _names(runs), ("BASE", "NEW")
    lines = _shared_notes([cell.comparison for cell in result.cells], names, titles)
    allowed = f"{100 * result.max_regression:.3g}%"
    lines += _inconclusive(result, names, allowed)
    lines.append(
        f"The gate fails with exit code 1 if a cell loses more than {allowed} of its speed in {result.measure} "
        "(NEW/BASE), or all cells together more than their share, beyond the noise. It fails with exit code 2 if a "
        "cell is refused (not comparable) or lost (launches that were ok in BASE are not ok in NEW). Exit code 7: "
        "inconclusive."
    )
    if not result.paired:
        lines.append(
            "These runs were not measured in the same rounds. If the machine was slower during one of them, the gate "
            "may fail for that reason. `kit run --against BASE` measures both in the same rounds. --confirm measures "
            "again what raises an alarm."
        )
    lines += _whole(result)
    rows = {cell.comparison.key: _gate_row(cell, names) for cell in result.cells}
    columns = [*_columns(result.measure, *titles, "Ratio", "Gate")]
    columns.insert(-1, Column("Reveals", number=True))
    return Section(columns, _ordered(rows, names), _wrapped([*lines, _verdict(result)]))


def _inconclusive(result: GateResult, names: Mapping[str, str], allowed: str) -> list[str]:
    """Return why cells are inconclusive: too few rounds for a judgment, or too much noise."""
    cells = [cell for cell in result.cells if cell.outcome is GateOutcome.INCONCLUSIVE]
    few = [cell.comparison.key for cell in cells if cell.loss is None]
    lines = []
    if few:
        lines.append(
            f"inconclusive ({_cells(few, names)}): a cell is judged from {MIN_LAUNCHES} rounds on. Measure more rounds."
        )
    if len(cells) > len(few):
        lines.append(f"inconclusive: the data would not have shown a loss of {allowed}. {MORE_ROUNDS}")
    return lines


def confirmation_lines(first: GateResult, fresh: GateResult) -> list[str]:
    """Return the outcome of the gate after the cells with an alarm were measured again."""
    counts = len(first.alarms), len(fresh.alarms)
    if fresh.alarm:
        return _wrap(f"Failed: the fresh rounds confirm {counts[1]} of {format_count(counts[0], 'alarm')}.")
    found = "Not failed" if exit_code_after(first, fresh) else "Passed"
    return _wrap(f"{found}: the fresh rounds do not confirm the alarm ({format_count(counts[0], 'cell')}).")


def _whole(result: GateResult) -> list[str]:
    whole = result.whole
    if whole is None:
        return []
    slower = ", slower than allowed" if whole.regression else ""
    line = (
        f"All cells together ({whole.cells}): {_number(whole.ratio)} times{slower}. They may lose "
        f"{format_percent(whole.allowed, 1)}. A loss of {format_percent(whole.loss.revealed, 1)} would have been found "
        "in 80% of cases."
    )
    return [line]


def _verdict(result: GateResult) -> str:
    counts = Counter(cell.outcome for cell in result.cells)
    failed = [f"{counts[outcome]} {outcome}" for outcome in GateOutcome if outcome in FAILING and counts[outcome]]
    failed += ["all cells together"] * result.together
    if failed:
        return f"Failed: {', '.join(failed)}."
    passed = f"{counts[GateOutcome.PASSED]} of {format_count(len(result.cells), 'cell')} passed."
    return f"Inconclusive: {passed}" if counts[GateOutcome.INCONCLUSIVE] else f"Passed: {passed}"


def _gate_row(cell: JudgedCell, names: Mapping[str, str]) -> list[str]:
    *row, outcome = _row(cell.comparison, cell.outcome, names)
    return [*row, format_percent(cell.loss.revealed, 1) if cell.loss else "", outcome]


def _columns(measure: Measure, base: str, new: str, ratio: str, last: str) -> list[Column]:
    numbers = [Column(title, number=True) for title in (base, new, ratio, "95%")]
    return [Column(f"{measure.capitalize()} images/s"), *numbers, Column(last)]


def _names(runs: Sequence[Run]) -> dict[str, str]:
    """Return short names by key, the same for all tables of a comparison, in the order of their rows."""
    return cell_names(runs, catalog.scenarios())


def _ordered(rows: Mapping[str, list[str]], names: Iterable[str]) -> list[list[str]]:
    return [rows[key] for key in names if key in rows]


def _row(comparison: Comparison, verdict: str, names: Mapping[str, str]) -> list[str]:
    return [
        names[comparison.key] + SYNTHETIC * _synthetic(comparison),
        _speed(comparison.base),
        _speed(comparison.new),
        "" if comparison.ratio is None else _number(comparison.ratio),
        _range(comparison.interval) if comparison.interval else "",
        verdict + f" {FLAGGED}" * comparison.flagged,
    ]


def _skipped(comparison: Comparison) -> bool:
    """Return whether a cell was skipped in both runs, or was skipped in one and is absent from the other."""
    failures = {*comparison.base.failures, *comparison.new.failures} - {ABSENT}
    return bool(failures) and all(failure.startswith(f"{Status.SKIPPED}:") for failure in failures)


def _synthetic(comparison: Comparison) -> bool:
    return comparison.base.synthetic or comparison.new.synthetic


def _speed(cell: CellResult) -> str:
    """Return the speed, or the status of the first launch if none is ok."""
    if cell.images_per_s is None:
        return cell.failures[0].partition(":")[0]
    return f"{cell.images_per_s:,.0f}" if cell.images_per_s >= 100 else f"{cell.images_per_s:.3g}"


def _number(ratio: float) -> str:
    if ratio < 10:
        return f"{ratio:.3f}" if ratio >= 0.1 else f"{ratio:.3g}"
    return f"{ratio:.1f}" if ratio < 10_000 else f"{ratio:.1e}"


def _range(interval: Interval) -> str:
    return f"{_number(interval.low)}-{_number(interval.high)}"


def _mean(mean: GroupMean) -> str:
    return (
        f"{mean.group}: {_number(mean.interval.estimate)} times ({_range(mean.interval)}), geometric mean of "
        f"{format_count(mean.cells, 'cell')}"
    )


def _overall(comparisons: Sequence[Comparison], titles: Titles) -> list[str]:
    """Return the overall ratio. Its interval is over cells, not over rounds."""
    mean = overall(comparisons)
    if mean is None:
        return []
    what = f"{titles[1]} is {_number(mean.ratio)} times as fast as {titles[0]}"
    unknown = sum(comparison.ratio is not None and comparison.interval is None for comparison in comparisons)
    cells = f"geometric mean of {format_count(mean.cells, 'cell')}{f', {unknown} of them unknown' if unknown else ''}"
    if mean.interval is None:
        return [f"Overall: {what} ({cells}; an interval needs {MIN_CELLS} cells)."]
    why = "it shows how much the ratio differs between cells, not the noise of one cell"
    return [f"Overall: {what}, interval {_range(mean.interval)} ({cells}). The interval is over cells: {why}."]


def _shared_notes(comparisons: Sequence[Comparison], names: Mapping[str, str], titles: Titles) -> list[str]:
    lines = [f"{SYNTHETIC} measured on synthetic data"] if any(map(_synthetic, comparisons)) else []
    if few := [
        comparison.key for comparison in comparisons if comparison.interval and comparison.launches < MIN_LAUNCHES
    ]:
        cells = _cells(few, names)
        lines.append(f"Fewer than {MIN_LAUNCHES} launches or rounds ({cells}): too few to decide small differences.")
    return lines + _difference_notes(comparisons, names, titles) + _failure_notes(comparisons, names, titles)


def _pairing(comparisons: Sequence[Comparison]) -> list[str]:
    """Return whether the runs are paired, and how many rounds were dropped."""
    paired = [comparison.pairs for comparison in comparisons if comparison.pairs is not None]
    if not comparisons:
        return []
    if not paired:
        return ["Not measured in the same rounds: an interval does not cover a change of the machine between the runs."]
    dropped = sum(pairs.dropped for pairs in paired)
    return [f"{format_count(dropped, 'pair')} dropped: one of both launches is missing or not ok."] if dropped else []


def _difference_notes(comparisons: Sequence[Comparison], names: Mapping[str, str], titles: Titles) -> list[str]:
    """Return one line per field that differs, with its cells, values and meaning, refusals first."""
    found: dict[tuple[Severity, str, str], list[tuple[str, Difference]]] = {}
    for comparison in comparisons:
        for difference in comparison.differences:
            where = (difference.severity, difference.field, difference.why)
            found.setdefault(where, []).append((comparison.key, difference))
    lines = []
    for (severity, field, why), places in sorted(found.items(), key=lambda item: list(Severity).index(item[0][0])):
        values = list(dict.fromkeys(difference.values(*titles) for _, difference in places))
        more = f" and {len(values) - MAX_SHOWN} more" if len(values) > MAX_SHOWN else ""
        cells = _cells([key for key, _ in places], names)
        lines.append(f"{LABELS[severity]} ({cells}): {field}: {'; '.join(values[:MAX_SHOWN])}{more}. {why}")
    return lines


def _failure_notes(comparisons: Sequence[Comparison], names: Mapping[str, str], titles: Titles) -> list[str]:
    found: dict[tuple[str, str], list[str]] = {}
    for comparison in comparisons:
        for title, cell in zip(titles, (comparison.base, comparison.new), strict=True):
            for failure in cell.failures if cell.status is not CellStatus.OK else ():
                found.setdefault((title, failure), []).append(comparison.key)
    return [
        f"Not in {title}: {_cells(keys, names)}"
        if failure == ABSENT
        else f"Not ok in {title} ({_cells(keys, names)}): {failure}"
        for (title, failure), keys in found.items()
    ]


def _cells(keys: Sequence[str], names: Mapping[str, str]) -> str:
    return format_few([names[key] for key in keys], "cell")


def _wrap(line: str) -> list[str]:
    return textwrap.wrap(shortened(line), WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def _wrapped(lines: Iterable[str]) -> list[str]:
    return [part for line in lines for part in _wrap(line)]
