"""Compare the same cells in two runs or on two machines: ratios with intervals. No input or output.

A ratio is the images/s of the new run over those of the base, in training or in inference (`Measure`), from the `ok`
launches of each run.
`kit.analysis.differences` defines which cells are comparable. If both runs were measured in the same rounds
(`kit run --against`), ratios are computed from pairs. Otherwise an interval covers only the variation between the
launches of each run. If the machine was slower during a whole run, the runs differ by more than the interval says.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from statistics import geometric_mean

from kit.analysis.differences import Difference, Severity, differences
from kit.analysis.intervals import Interval, Verdict, paired_interval, ratio_interval, t_interval, typical
from kit.analysis.measured_launch import measured_launches
from kit.analysis.pairing import Measure, Pairs, Rates, pair, rates
from kit.analysis.summaries import ContestState, short_names
from kit.analysis.sweeps import in_order
from kit.model.record import Record
from kit.model.run import Run
from scenarios.catalog import Scenarios
from scenarios.contract.cell import Cell

MIN_CELLS = 3  # of a group mean: with two cells the interval says almost nothing (t with one degree of freedom: 12.7)

ABSENT = "absent: it has no record"


class CellStatus(IntEnum):
    """How complete a cell is in a run. PARTIAL: fewer launches are `ok` than were planned."""

    NOT_OK = 0
    PARTIAL = 1
    OK = 2


@dataclass(frozen=True)
class CellResult:
    """One cell in one run.

    rates: images/s of the `ok` launches by round, in training or in inference. failures: `status: message` of the other
    launches without duplicates, or ABSENT if the cell has no record. synthetic: whether a launch used synthetic data.
    """

    status: CellStatus
    rates: Rates
    failures: tuple[str, ...]
    synthetic: bool

    @property
    def speeds(self) -> tuple[float, ...]:
        """Return the images/s of the `ok` launches, in the order of the rounds."""
        return tuple(self.rates.values())

    @property
    def images_per_s(self) -> float | None:
        """Return the speed of a typical launch, or None if no launch is ok."""
        return typical(self.speeds) if self.rates else None


@dataclass(frozen=True)
class Comparison:
    """One cell in two runs.

    ratio: new over base, None if the verdict is REFUSED or MISSING. interval: of the ratio, None also if a run has only
    one launch, or if there is only one pair. pairs: None if the runs were not measured in the same rounds.
    """

    cell: Cell
    base: CellResult
    new: CellResult
    verdict: Verdict
    ratio: float | None
    interval: Interval | None
    differences: tuple[Difference, ...]
    pairs: Pairs | None = None

    @property
    def key(self) -> str:
        """Return the key of the cell."""
        return self.cell.key

    @property
    def words(self) -> str:
        """Return the verdict for people: `undecided` instead of `tie` if the interval is wide."""
        wide = self.verdict is Verdict.TIE and self.interval is not None and not self.interval.tied
        return ContestState.UNDECIDED if wide else str(self.verdict)

    @property
    def launches(self) -> int:
        """Return the number of pairs, or else of launches in the run that has fewer."""
        return len(self.pairs.ratios) if self.pairs else min(len(self.base.speeds), len(self.new.speeds))

    @property
    def flagged(self) -> bool:
        """Return whether the cell was compared although something other than the machine differs."""
        return self.ratio is not None and any(d.severity is Severity.FLAGGED for d in self.differences)


@dataclass(frozen=True)
class GroupMean:
    """The geometric mean of the ratios of a group of cells: one framework, device, lane and precision, for example
    `torch/cpu/stock/fp32`.

    cells: number of cells in the group that have an interval. interval: Student's interval over the logarithms of the
    ratios of the cells. It treats the cells as a sample of similar work, so it is wide if the ratio depends on the work
    (J. R. Mashey, War of the Benchmark Means: Time for a Truce, ACM SIGARCH Computer Architecture News 32(4), 2004).
    """

    group: str
    cells: int
    interval: Interval


def compare(base: Run, new: Run, measure: Measure) -> list[Comparison]:
    """Compare every cell that a run planned or recorded, in the order of the base's plan, then of the new one."""
    cells: dict[Cell, None] = {}
    for run in (base, new):
        cells |= dict.fromkeys(launch.cell for launch in run.plan.launches)
        cells |= dict.fromkeys(record.cell for record in run.records)
    planned = [Counter(launch.key for launch in run.plan.launches) for run in (base, new)]
    return [_compare_cell(cell, base, new, measure, (planned[0][cell.key], planned[1][cell.key])) for cell in cells]


def cell_names(runs: Sequence[Run], scenarios: Scenarios) -> dict[str, str]:
    """Return the short name of each cell that the runs recorded, by its key, in the order of rows."""
    cells = in_order((own[0].cell for run in runs for own in run.by_cell.values()), scenarios)
    return dict(zip((cell.key for cell in cells), short_names(cells), strict=True))


def group_means(comparisons: Sequence[Comparison]) -> list[GroupMean]:
    """Return one mean per group that has at least MIN_CELLS cells."""
    groups: dict[str, list[float]] = {}
    for comparison in comparisons:
        if comparison.interval:
            groups.setdefault(comparison.cell.configuration, []).append(comparison.interval.estimate)
    return [
        GroupMean(group, len(ratios), interval)
        for group, ratios in groups.items()
        if len(ratios) >= MIN_CELLS and (interval := t_interval(ratios))
    ]


@dataclass(frozen=True)
class Overall:
    """The geometric mean of the ratios of all compared cells. interval: over cells as in `GroupMean`, None for fewer
    than MIN_CELLS cells."""

    cells: int
    ratio: float
    interval: Interval | None


def overall(comparisons: Sequence[Comparison]) -> Overall | None:
    """Return the mean of all cells that have a ratio, None if there is none."""
    return mean_ratio([comparison.ratio for comparison in comparisons if comparison.ratio is not None])


def mean_ratio(ratios: Sequence[float]) -> Overall | None:
    """Return the geometric mean of the ratios of cells, None if there is none. ratios: above 0."""
    if not ratios:
        return None
    return Overall(len(ratios), geometric_mean(ratios), t_interval(ratios) if len(ratios) >= MIN_CELLS else None)


def _compare_cell(cell: Cell, base: Run, new: Run, measure: Measure, planned: tuple[int, int]) -> Comparison:
    """Compare one cell. planned: number of its launches in the plan of each run."""
    key = cell.key
    old, now = _cell_result(key, base, measure, planned[0]), _cell_result(key, new, measure, planned[1])
    if not (old.speeds and now.speeds):
        return Comparison(cell, old, now, Verdict.MISSING, None, None, ())
    found = tuple(differences(measured_launches(_ok(key, base)), measured_launches(_ok(key, new)), measure))
    if any(difference.severity is Severity.REFUSED for difference in found):
        return Comparison(cell, old, now, Verdict.REFUSED, None, None, found)
    pairs = pair(now.rates, old.rates) if measured_together(base, new) else None
    interval = paired_interval(pairs.ratios) if pairs else ratio_interval(now.speeds, old.speeds)
    if interval:
        return Comparison(cell, old, now, interval.verdict, interval.estimate, interval, found, pairs)
    ratio = pairs.ratios[0] if pairs and pairs.ratios else geometric_mean(now.speeds) / geometric_mean(old.speeds)
    return Comparison(cell, old, now, Verdict.UNKNOWN, ratio, None, found, pairs)


def measured_together(base: Run, new: Run) -> bool:
    """Return whether one run was measured against the other one, in the same rounds."""
    return new.plan.against == base.plan.run or base.plan.against == new.plan.run


def _ok(key: str, run: Run) -> list[Record]:
    return [record for record in run.by_cell.get(key, []) if record.ok]


def _cell_result(key: str, run: Run, measure: Measure, planned: int) -> CellResult:
    ok = _ok(key, run)
    others = [record for record in run.by_cell.get(key, []) if not record.ok]
    failures = dict.fromkeys(_failure(record) for record in others)
    if 0 < len(ok) + len(others) < planned:
        failures[f"interrupted: {planned - len(ok) - len(others)} of {planned} planned launches have no record"] = None
    partial_or_ok = CellStatus.PARTIAL if len(ok) < planned else CellStatus.OK
    failed = tuple(failures) if ok or others else (ABSENT,)
    return CellResult(
        partial_or_ok if ok else CellStatus.NOT_OK,
        rates(ok, measure),
        failed,
        any(record.synthetic for record in ok),
    )


def _failure(record: Record) -> str:
    return f"{record.status.words}: {record.reason.message}" if record.reason else record.status.words
