"""Judge whether a run is slower than another one by more than is allowed. No input or output."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean

from kit.analysis.comparison import CellStatus, Comparison, compare, measured_together
from kit.analysis.intervals import MIN_LAUNCHES, Verdict
from kit.analysis.losses import Change, Loss, change_of_launches, change_of_pairs, loss_of_all, losses_of_each
from kit.analysis.pairing import Measure
from kit.model.errors import UsageError
from kit.model.run import Run

INCONCLUSIVE_CODE = 7  # exit code


class GateOutcome(StrEnum):
    """The outcome of the gate for a cell of the base; see `gate`."""

    PASSED = "pass"
    INCONCLUSIVE = "inconclusive"
    REGRESSION = "regression"
    REFUSED = "refused"
    LOST = "lost"


UNUSABLE = {GateOutcome.REFUSED, GateOutcome.LOST}  # the base can be judged, but the new run cannot
FAILING = {GateOutcome.REGRESSION, *UNUSABLE}


@dataclass(frozen=True)
class JudgedCell:
    """A cell of the base. loss: None if it has too few launches for a test."""

    comparison: Comparison
    outcome: GateOutcome
    loss: Loss | None = None


@dataclass(frozen=True)
class Whole:
    """All cells together.

    ratio: geometric mean of the cells' ratios, new over base. cells: their number. allowed: loss of the mean, as a
    share.
    """

    ratio: float
    cells: int
    loss: Loss
    allowed: float

    @property
    def regression(self) -> bool:
        """Return whether all together are slower than allowed, beyond the noise."""
        return self.loss.significant and self.ratio < 1 - self.allowed


@dataclass(frozen=True)
class GateResult:
    """The outcome of the gate.

    measure: what was judged. cells: the cells of the base. whole: None if no cell can be tested. paired: whether both
    runs were measured in the same rounds.
    """

    measure: Measure
    max_regression: float
    cells: tuple[JudgedCell, ...]
    whole: Whole | None
    paired: bool

    def count(self, *outcomes: GateOutcome) -> int:
        """Return the number of cells that have one of these outcomes."""
        return sum(cell.outcome in outcomes for cell in self.cells)

    @property
    def together(self) -> bool:
        """Return whether all cells together are a regression."""
        return self.whole is not None and self.whole.regression

    @property
    def alarm(self) -> bool:
        """Return whether a cell or all cells together are a regression."""
        return self.together or self.count(GateOutcome.REGRESSION) > 0

    @property
    def alarms(self) -> list[str]:
        """Return the keys of the cells to measure again to confirm a regression."""
        return [
            cell.comparison.key
            for cell in self.cells
            if cell.outcome is GateOutcome.REGRESSION or (self.together and cell.comparison.interval)
        ]

    @property
    def exit_code(self) -> int:
        """Return 1 for a regression, else 2 if a cell is refused or lost, else 7 if a cell is inconclusive, else 0."""
        return 1 if self.alarm else self.code_without_alarms

    @property
    def code_without_alarms(self) -> int:
        """Return the exit code if all regressions had passed."""
        if self.count(*UNUSABLE):
            return UsageError.exit_code
        return INCONCLUSIVE_CODE if self.count(GateOutcome.INCONCLUSIVE) else 0


def exit_code_after(first: GateResult, fresh: GateResult) -> int:
    """Return the exit code if the cells with an alarm were measured again: 1 only if the fresh rounds raise an alarm,
    too. Otherwise it is the more severe code of both results without the alarms."""
    codes = {first.code_without_alarms, fresh.code_without_alarms}
    return 1 if fresh.alarm else next(code for code in (UsageError.exit_code, INCONCLUSIVE_CODE, 0) if code in codes)


def gate(base: Run, new: Run, max_regression: float, measure: Measure) -> GateResult:
    """Judge the training or the inference of every cell that has an `ok` launch in the base.

    max_regression: the allowed loss of speed, as a share of the base's speed. A cell is a REGRESSION if its ratio is
    below 1 - max_regression, and if the loss is more than noise (`kit.analysis.losses`). If it is not, but the data
    would not have revealed a loss of max_regression, the cell is INCONCLUSIVE, as is a cell with fewer than
    MIN_LAUNCHES rounds or launches in a run. Fewer rounds would raise false alarms on a machine with two speeds.

    Many cells can each be slower within the noise, but together slower beyond it. So all n cells with enough rounds are
    together a regression if their mean loses more than max_regression / sqrt(n), beyond the noise. The noise of a mean
    is smaller by the same factor.

    On a simulated machine, at most 5% of unchanged runs raise an alarm if both runs were measured in the same rounds
    (`python -m benchmarks.gate_power`). If they were not, a machine that is slower during one run raises false alarms.
    This holds for each measure by itself. If training and inference are both judged, at most 10% raise an alarm.

    A cell does not pass if it is refused, has no `ok` launch in the new run, or lacks launches there that the base has.
    Otherwise the gate would pass a run that lost cells. Raise UsageError if the base has no cell with an ok launch.
    """
    comparisons = [comparison for comparison in compare(base, new, measure) if comparison.base.speeds]
    if not comparisons:
        raise UsageError("BASE has no cell with an ok launch.", "Name another run as BASE.")
    changes = {c.key: change for c in comparisons if (change := _change(c)) is not None}
    several = {c.key: changes[c.key] for c in comparisons if c.key in changes and _rounds(c) >= MIN_LAUNCHES}
    losses = dict(zip(several, losses_of_each([*several.values()]), strict=True)) if several else {}
    cells = tuple(_judged(c, changes.get(c.key), losses.get(c.key), max_regression) for c in comparisons)
    whole = judge_all([*several.values()], max_regression) if several else None
    return GateResult(measure, max_regression, cells, whole, measured_together(base, new))


def judge_all(changes: Sequence[Change], max_regression: float) -> Whole:
    """Judge all cells together, at least one."""
    ratio = math.exp(fmean(change.mean for change in changes))
    return Whole(ratio, len(changes), loss_of_all(changes), max_regression / math.sqrt(len(changes)))


def is_regression(change: Change, loss: Loss, max_regression: float) -> bool:
    """Return whether a cell is slower than allowed, beyond the noise."""
    return loss.significant and math.exp(change.mean) < 1 - max_regression


def _change(comparison: Comparison) -> Change | None:
    """Return the change of a comparable cell, or None if a run or the pairs have too few launches for a variance."""
    if comparison.interval is None:
        return None
    if comparison.pairs is not None:
        return change_of_pairs(comparison.pairs.ratios)
    return change_of_launches(comparison.new.speeds, comparison.base.speeds)


def _rounds(comparison: Comparison) -> int:
    if comparison.pairs is not None:
        return len(comparison.pairs.ratios)
    return min(len(comparison.new.speeds), len(comparison.base.speeds))


def _judged(comparison: Comparison, change: Change | None, loss: Loss | None, max_regression: float) -> JudgedCell:
    if change and loss and is_regression(change, loss, max_regression):  # even if some of its launches failed
        return JudgedCell(comparison, GateOutcome.REGRESSION, loss)
    if comparison.verdict is Verdict.REFUSED:
        return JudgedCell(comparison, GateOutcome.REFUSED)
    new, base = comparison.new, comparison.base
    if new.status < base.status or (new.status is CellStatus.PARTIAL and len(new.speeds) == 1 < len(base.speeds)):
        return JudgedCell(comparison, GateOutcome.LOST, loss)
    revealing = loss is not None and loss.revealed <= max_regression
    return JudgedCell(comparison, GateOutcome.PASSED if revealing else GateOutcome.INCONCLUSIVE, loss)
