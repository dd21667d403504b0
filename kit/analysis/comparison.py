"""The same cells in two runs or on two machines: ratios with intervals, and the gate that a regression must not pass.
Pure: no input, no output.

A ratio is of training images/s, new over base, each side's speeds being those of its `ok` launches. What makes cells
comparable stands in `kit.comparison.differences`. An interval knows only what varied between the launches of each run:
two runs of a machine that was slower for an hour differ by more than their intervals say.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum

from kit.analysis.differences import Difference, Severity, differences
from kit.analysis.intervals import Interval, ratio_interval, t_interval
from kit.analysis.summaries import speeds
from kit.model.errors import UsageError
from kit.model.machine import Machine
from kit.model.plan import Plan
from kit.model.record import Record
from scenarios.contract.reasons import Status

MIN_CELLS = 3  # of a mean over cells: of two, the interval says next to nothing (t with one degree of freedom: 12.7)

ABSENT = "absent: there is no record of it"


@dataclass(frozen=True)
class Run:
    """A run as it lies in its folder."""

    plan: Plan
    machine: Machine
    records: Sequence[Record]


class Standing(IntEnum):
    """How far a cell came in a run. PARTLY: fewer launches ended `ok` than were planned."""

    NOT_OK = 0
    PARTLY = 1
    OK = 2


@dataclass(frozen=True)
class Side:
    """One cell in one run. speeds: training images/s of the `ok` launches, in the order of their numbers. failures:
    `status: message` of the others, each once; ABSENT of a cell without any record. synthetic: so was some data."""

    standing: Standing
    speeds: tuple[float, ...]
    failures: tuple[str, ...]
    synthetic: bool

    @property
    def images_per_s(self) -> float | None:
        """Geometric mean over launches, as the intervals have it; None where none is ok."""
        return statistics.geometric_mean(self.speeds) if self.speeds else None


class Verdict(StrEnum):
    """What is to be said of a cell. TIE: the interval holds 1. UNKNOWN: no interval, because a side has one launch.
    REFUSED: not comparable. MISSING: not ok on a side."""

    FASTER = "faster"
    SLOWER = "slower"
    TIE = "tie"
    UNKNOWN = "unknown"
    REFUSED = "refused"
    MISSING = "missing"


@dataclass(frozen=True)
class Comparison:
    """One cell in two runs. ratio: new over base, None where refused or missing; interval: of the ratio, None where a
    side has one launch, too."""

    key: str
    base: Side
    new: Side
    verdict: Verdict
    ratio: float | None
    interval: Interval | None
    differences: tuple[Difference, ...]

    @property
    def flagged(self) -> bool:
        """Compared, but something other than the machine differs."""
        return self.ratio is not None and any(d.severity is Severity.FLAGGED for d in self.differences)


@dataclass(frozen=True)
class Mean:
    """Geometric mean of the ratios of the cells that have an interval, of one framework, device, lane and precision
    (`cells`: how many). interval: Student's over the logarithms of the cells' ratios, so that cells stand for work of
    this kind; it is wide where the ratio depends on the work (J. R. Mashey, War of the Benchmark Means: Time
    for a Truce, ACM SIGARCH Computer Architecture News 32(4), 2004)."""

    group: str
    cells: int
    interval: Interval


def compare(base: Run, new: Run) -> list[Comparison]:
    """Every cell that either run planned or has records of, in the order of the base's plan, then of the new one's."""
    keys: dict[str, None] = {}
    for run in (base, new):
        keys |= dict.fromkeys(launch.key for launch in run.plan.launches)
        keys |= dict.fromkeys(record.key for record in run.records)
    return [_compare_cell(key, base, new) for key in keys]


def means(comparisons: Sequence[Comparison]) -> list[Mean]:
    """One mean a group of at least MIN_CELLS cells."""
    groups: dict[str, list[float]] = {}
    for comparison in comparisons:
        if comparison.interval:
            group = "/".join(comparison.key.split("/")[1:-1])
            groups.setdefault(group, []).append(comparison.interval.estimate)
    found = []
    for group, ratios in groups.items():
        interval = t_interval(ratios)
        if interval and len(ratios) >= MIN_CELLS:
            found.append(Mean(group, len(ratios), interval))
    return found


def _compare_cell(key: str, base: Run, new: Run) -> Comparison:
    old, now = _side(key, base), _side(key, new)
    if not (old.speeds and now.speeds):
        return Comparison(key, old, now, Verdict.MISSING, None, None, ())
    found = tuple(differences(_ok(key, base), _ok(key, new)))
    if any(difference.severity is Severity.REFUSED for difference in found):
        return Comparison(key, old, now, Verdict.REFUSED, None, None, found)
    interval = ratio_interval(now.speeds, old.speeds)
    if interval is None:
        ratio = statistics.geometric_mean(now.speeds) / statistics.geometric_mean(old.speeds)
        return Comparison(key, old, now, Verdict.UNKNOWN, ratio, None, found)
    return Comparison(key, old, now, Verdict(interval.verdict), interval.estimate, interval, found)


def _ok(key: str, run: Run) -> list[Record]:
    return [record for record in run.records if record.key == key and record.status is Status.OK]


def _side(key: str, run: Run) -> Side:
    ok = _ok(key, run)
    others = [record for record in run.records if record.key == key and record.status is not Status.OK]
    failures = dict.fromkeys(_failure(record) for record in others)
    planned = sum(launch.key == key for launch in run.plan.launches)
    if 0 < len(ok) + len(others) < planned:
        failures[f"interrupted: {planned - len(ok) - len(others)} of {planned} planned launches have no record"] = None
    return Side(
        _standing(len(ok), planned),
        tuple(speeds(ok)),
        tuple(failures) if ok or others else (ABSENT,),
        any(record.request.data == "synthetic" for record in ok),
    )


def _standing(ok: int, planned: int) -> Standing:
    if not ok:
        return Standing.NOT_OK
    return Standing.PARTLY if ok < planned else Standing.OK


def _failure(record: Record) -> str:
    words = record.status.replace("_", " ")
    return f"{words}: {record.reason.message}" if record.reason else words


class GateOutcome(StrEnum):
    """What the gate says of a cell of the base; see `gate`."""

    PASSED = "pass"
    NOISY = "noisy"
    NOT_JUDGED = "not judged"
    REGRESSION = "regression"
    REFUSED = "refused"
    LOST = "lost"


UNFIT = {GateOutcome.REFUSED, GateOutcome.LOST}  # to be judged, although the base is
FAILING = {GateOutcome.REGRESSION, *UNFIT}
JUDGED = {GateOutcome.PASSED, GateOutcome.NOISY, GateOutcome.REGRESSION}


@dataclass(frozen=True)
class Gate:
    """cells: of the base, each with its outcome. groups: means over cells that are slower than allowed, taken
    together."""

    most: float
    cells: tuple[tuple[Comparison, GateOutcome], ...]
    groups: tuple[Mean, ...]

    def count(self, outcomes: set[GateOutcome]) -> int:
        """How many cells have one of these outcomes."""
        return sum(outcome in outcomes for _, outcome in self.cells)

    @property
    def exit_code(self) -> int:
        """1 where a cell or a group is slower beyond the noise, else 2 where a cell could not be judged that should,
        else 0."""
        if self.count({GateOutcome.REGRESSION}) or self.groups:
            return 1
        return UsageError.exit_code if self.count(UNFIT) else 0


def gate(base: Run, new: Run, most: float) -> Gate:
    """Judge every cell that is ok in the base. most: the regression that is let pass, as a share of the base's speed.

    A cell fails where it is slower than allowed (ratio below 1 - most) and that is no noise (the whole interval lies
    below 1). Slower than allowed within the noise is NOISY and passes: more launches would tell. That the whole
    interval lie below 1 - most would let a true regression of just over `most` pass, however many launches there are;
    the estimate alone would fail one unchanged noisy cell in every few runs. Of many cells some interval excludes 1 by
    chance (18 unchanged cells: 1 - 0.975^18 = 37 % that one lies wholly below); that it must be slower than allowed,
    too, guards against it as long as `most` is beyond the noise: where both runs reached the standard profile's 2.5 %,
    a ratio is known to 3.5 %, and an unchanged cell falls 5 % by chance at most once in 400.

    Many cells that are each slower within the noise are together slower beyond it: a mean over cells (`means`) fails by
    the same rule.

    A cell that is refused, that has no `ok` launch in the new run, or lacks some of them there and not in the base,
    does not pass either: a gate that loses cells is none. Cells with one launch on a side are not judged. Raises
    UsageError where no cell is judged and none fails.
    """
    cells = tuple((c, _outcome(c, most)) for c in compare(base, new) if c.base.speeds)
    slower = (mean for mean in means([c for c, _ in cells]) if mean.interval.verdict == "slower")
    judged = Gate(most, cells, tuple(mean for mean in slower if mean.interval.estimate < 1 - most))
    if not judged.count(JUDGED | FAILING):
        if not cells:
            raise UsageError("BASE has no cell that ended ok.", "Name a run as BASE that has.")
        raise UsageError(
            "No cell can be judged: each has only one launch on a side, which says nothing about the noise.",
            "Measure both runs anew with --profile standard.",
        )
    return judged


def _outcome(comparison: Comparison, most: float) -> GateOutcome:
    slower = comparison.interval is not None and comparison.interval.estimate < 1 - most
    if slower and comparison.verdict is Verdict.SLOWER:  # also where some of its launches failed
        return GateOutcome.REGRESSION
    if comparison.verdict is Verdict.REFUSED:
        return GateOutcome.REFUSED
    new, base = comparison.new, comparison.base
    if new.standing < base.standing or (new.standing is Standing.PARTLY and len(new.speeds) == 1 < len(base.speeds)):
        return GateOutcome.LOST
    if comparison.interval is None:
        return GateOutcome.NOT_JUDGED
    return GateOutcome.NOISY if slower else GateOutcome.PASSED


def parse_share(text: str) -> float:
    """The share in `5%`, `5 %` or `0.05`: from 0 to below 1. Raises UsageError."""
    found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*(%?)", text.strip())
    share = float(found[1]) / (100 if found[2] else 1) if found else 1.0
    if share >= 1:
        raise UsageError(f"{text!r} is not a share.", "Write a percentage or a number below 1: 5% or 0.05.")
    return share
