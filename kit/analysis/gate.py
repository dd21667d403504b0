"""Judge whether a run is slower than another one by more than is allowed. No input or output."""

from dataclasses import dataclass
from enum import StrEnum

from kit.analysis.comparison import CellStatus, Comparison, GroupMean, compare, group_means
from kit.analysis.intervals import Verdict
from kit.model.errors import UsageError
from kit.model.run import Run


class GateOutcome(StrEnum):
    """The outcome of the gate for a cell of the base; see `gate`."""

    PASSED = "pass"
    NOISY = "noisy"
    NOT_JUDGED = "not judged"
    REGRESSION = "regression"
    REFUSED = "refused"
    LOST = "lost"


UNUSABLE = {GateOutcome.REFUSED, GateOutcome.LOST}  # the base can be judged, but the new run cannot
FAILING = {GateOutcome.REGRESSION, *UNUSABLE}
JUDGED = {GateOutcome.PASSED, GateOutcome.NOISY, GateOutcome.REGRESSION}


@dataclass(frozen=True)
class GateResult:
    """The outcome of the gate.

    cells: the cells of the base, each with its outcome. groups: groups of cells that together are slower than allowed.
    """

    max_regression: float
    cells: tuple[tuple[Comparison, GateOutcome], ...]
    groups: tuple[GroupMean, ...]

    def count(self, outcomes: set[GateOutcome]) -> int:
        """Return the number of cells that have one of these outcomes."""
        return sum(outcome in outcomes for _, outcome in self.cells)

    @property
    def exit_code(self) -> int:
        """Return 1 if a cell or a group regressed, else 2 if a cell is refused or lost, else 0."""
        if self.count({GateOutcome.REGRESSION}) or self.groups:
            return 1
        return UsageError.exit_code if self.count(UNUSABLE) else 0


def gate(base: Run, new: Run, max_regression: float) -> GateResult:
    """Judge every cell that has an `ok` launch in the base.

    max_regression: the allowed loss of speed, as a share of the base's speed.

    A cell is a regression if both hold: its ratio is below 1 - max_regression, and its whole interval is below 1. If
    only the first holds, the cell is NOISY and passes: only more launches can decide.

    Other rules are worse. If the whole interval had to be below 1 - max_regression, a true regression just over
    max_regression would pass with any number of launches. If only the estimate counted, one unchanged noisy cell would
    fail in every few runs. If only the interval counted, some of many cells would fail by chance: with 18 unchanged
    cells, the probability that at least one interval lies below 1 is 1 - 0.975^18 = 37 %. To require both guards
    against this if max_regression exceeds the noise: if both runs reached the 2.5 % of the standard profile, a ratio is
    known to 3.5 %, and an unchanged cell falls by 5 % by chance at most once in 400 cases.

    Many cells can each be slower within the noise, but together slower beyond it. So a mean over cells (`group_means`)
    is a regression by the same rule.

    A cell does not pass if it is refused, has no `ok` launch in the new run, or lacks launches there that the base has.
    Otherwise the gate would pass a run that lost cells. A cell with only one launch in a run is not judged. Raise
    UsageError if no cell is judged and none fails.
    """
    cells = tuple((c, _outcome(c, max_regression)) for c in compare(base, new) if c.base.speeds)
    groups = tuple(
        mean
        for mean in group_means([comparison for comparison, _ in cells])
        if mean.interval.verdict is Verdict.SLOWER and mean.interval.estimate < 1 - max_regression
    )
    result = GateResult(max_regression, cells, groups)
    if not result.count(JUDGED | FAILING):
        if not cells:
            raise UsageError("BASE has no cell with an ok launch.", "Name another run as BASE.")
        raise UsageError(
            "No cell can be judged: each has only one launch in a run, so the noise is unknown.",
            "Measure both runs again with --profile standard.",
        )
    return result


def _outcome(comparison: Comparison, max_regression: float) -> GateOutcome:
    slower = comparison.interval is not None and comparison.interval.estimate < 1 - max_regression
    if slower and comparison.verdict is Verdict.SLOWER:  # even if some of its launches failed
        return GateOutcome.REGRESSION
    if comparison.verdict is Verdict.REFUSED:
        return GateOutcome.REFUSED
    new, base = comparison.new, comparison.base
    if new.status < base.status or (new.status is CellStatus.PARTIAL and len(new.speeds) == 1 < len(base.speeds)):
        return GateOutcome.LOST
    if comparison.interval is None:
        return GateOutcome.NOT_JUDGED
    return GateOutcome.NOISY if slower else GateOutcome.PASSED
