"""Compute confidence intervals from independent launches, and decide whether a cell has enough launches. No input or
output.

All estimates use the logarithms of speeds, because errors of speeds are ratios. So an estimate is a geometric mean, and
the interval of a ratio is the interval of a difference. The sample consists of launches, not of the windows of one
launch (A. Georges, D. Buytaert, L. Eeckhout, Statistically Rigorous Java Performance Evaluation, OOPSLA 2007). Launches
are assumed to be independent.

A cell is launched until its interval is narrow. This rule tends to stop too early, when the first launches happen to
agree. Student's interval at that moment covers less than its nominal 95 % (Y. S. Chow, H. Robbins, On the Asymptotic
Theory of Fixed-Width Sequential Confidence Intervals for the Mean, Ann. Math. Stat. 36, 1965; N. Starr, The Performance
of a Sequential Procedure, the same 37, 1966). The ratio of two such cells is covered in 90 % of the cases. The deficit
falls with one over the number of launches, and a fixed number of further launches makes up for it (G. Simons, On the
Cost of Not Knowing the Variance, the same 39, 1968). `_widening` expresses this correction as a factor. So the
correction also holds if a budget ends the launches earlier, or if their number was fixed in advance. The constants of
the factor come from a simulation. `python -m benchmarks.coverage` repeats it with the functions of this module.
docs/decisions/0009 has the table and the alternatives.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from scipy.special import stdtrit

CONFIDENCE = 0.95
MIN_LAUNCHES = 5
TARGET = 0.025  # half-width of the interval, relative to the estimate

# Chow and Robbins' rule lacks about this many launches if a cell has many. With few launches the rule has had few
# chances to stop too early. LARGEST_AT is the number of launches at which the correction is largest.
FURTHER_LAUNCHES = 5
LARGEST_AT = 14

MAX_LOGARITHM = 300.0  # e^300 is larger than any speed, and does not overflow


class Verdict(StrEnum):
    """The conclusion of comparing two cells.

    TIE: the interval of the ratio contains 1. UNKNOWN: there is no interval, because a side has only one launch.
    REFUSED: the cells are not comparable. MISSING: a side has no launch that is ok.
    """

    FASTER = "faster"
    SLOWER = "slower"
    TIE = "tie"
    UNKNOWN = "unknown"
    REFUSED = "refused"
    MISSING = "missing"


@dataclass(frozen=True)
class Interval:
    """A 95 % confidence interval (CONFIDENCE), in images/s for a cell, without unit for a ratio."""

    estimate: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Return the half-width relative to the estimate. The upper side counts, because it is the larger one."""
        return self.high / self.estimate - 1

    @property
    def verdict(self) -> Verdict:
        """Return the verdict on a ratio of speeds: a tie if the interval contains 1."""
        if self.low > 1:
            return Verdict.FASTER
        return Verdict.SLOWER if self.high < 1 else Verdict.TIE


@dataclass(frozen=True)
class _Mean:
    """A mean of logarithms. error: squared standard error. freedom: degrees of freedom of the error."""

    value: float
    error: float
    freedom: float


def t_interval(values: Sequence[float]) -> Interval | None:
    """Return Student's interval of the geometric mean, or None for fewer than 2 values.

    values: above 0. Their number must not depend on them: use `cell_interval` for launches. Raise ValueError if a value
    is not above 0.
    """
    return _interval(_mean(values)) if len(values) > 1 else None


def cell_interval(values: Sequence[float]) -> Interval | None:
    """Return the interval of a cell, or None for fewer than 2 values.

    It is Student's interval, widened to correct for the stopping rule. values: images/s of the launches, above 0. Raise
    ValueError if a value is not above 0.
    """
    return _interval(_widened_mean(values)) if len(values) > 1 else None


def ratio_interval(numerator: Sequence[float], denominator: Sequence[float]) -> Interval | None:
    """Return the interval of the ratio of two cells, or None if either has fewer than 2 values.

    It is Welch's t interval with Satterthwaite's degrees of freedom (B. L. Welch, Biometrika 34, 1947). The errors are
    widened as for the cells. Arguments as in `cell_interval`. Raise ValueError if a value is not above 0.

    The coverage is the nominal one from 5 launches on each side on. With 2 launches on one side and many on the other
    it is below 90 %, because the degrees of freedom are then estimated from 2 values. With 2 on both sides it is 98 %.
    """
    if len(numerator) < 2 or len(denominator) < 2:
        return None
    over, under = _widened_mean(numerator), _widened_mean(denominator)
    error = over.error + under.error
    parts = over.error**2 / over.freedom + under.error**2 / under.freedom
    freedom = error**2 / parts if parts > 0 else over.freedom + under.freedom
    return _interval(_Mean(over.value - under.value, error, freedom))


def is_narrow(values: Sequence[float]) -> bool:
    """Return whether launching can stop: at least MIN_LAUNCHES, and a half-width of at most TARGET.

    values: as in `cell_interval`.
    """
    interval = cell_interval(values)
    return interval is not None and len(values) >= MIN_LAUNCHES and interval.half_width <= TARGET


def _mean(values: Sequence[float]) -> _Mean:
    logarithms = [math.log(value) for value in values]
    count = len(logarithms)
    mean = math.fsum(logarithms) / count
    variance = math.fsum((x - mean) ** 2 for x in logarithms) / (count - 1)
    return _Mean(mean, variance / count, count - 1)


def _widened_mean(values: Sequence[float]) -> _Mean:
    mean = _mean(values)
    return _Mean(mean.value, mean.error * _widening(len(values)), mean.freedom)


def _widening(launches: int) -> float:
    """Return the factor for the squared standard error: 1 + 5n / (n^2 + 14^2).

    It is 1.11 for 5 launches, 1.18 for 14, and 1 + 5/n for many: n launches then meet the target if n - 5 would meet it
    without the factor. It is 1 below MIN_LAUNCHES, because the stopping rule cannot have stopped there.
    """
    if launches < MIN_LAUNCHES:
        return 1.0
    return 1 + FURTHER_LAUNCHES * launches / (launches**2 + LARGEST_AT**2)


def _interval(mean: _Mean) -> Interval:
    half = float(stdtrit(mean.freedom, (1 + CONFIDENCE) / 2)) * math.sqrt(mean.error)
    high = math.exp(min(mean.value + half, MAX_LOGARITHM))
    return Interval(math.exp(mean.value), math.exp(mean.value - half), high)
