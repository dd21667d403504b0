"""Confidence intervals from independent launches, and the rule by which a cell has enough of them. Pure.

Speeds are treated by their logarithms, because errors of speeds are ratios: an estimate is a geometric mean, and the
interval of a ratio is that of a difference. Launches, not windows of one launch, are the sample (A. Georges,
D. Buytaert, L. Eeckhout, Statistically Rigorous Java Performance Evaluation, OOPSLA 2007), and taken as independent.

A cell gets launches until its interval is narrow. Such a rule stops too soon just where the first launches happen to
agree, so that Student's interval, reported at that moment, covers less than it says (Y. S. Chow, H. Robbins, On the
Asymptotic Theory of Fixed-Width Sequential Confidence Intervals for the Mean, Ann. Math. Stat. 36, 1965; N. Starr, The
Performance of a Sequential Procedure, the same 37, 1966): ratios of two such cells 90 % instead of 95 %. What is
missing falls with one over the number of launches, and a fixed number of further launches makes up for it (G. Simons,
On the Cost of Not Knowing the Variance, the same 39, 1968). `_widening` is that correction as a factor, so that it
holds also where a budget ends the launches first or their number was fixed in advance. The factor's constants come
from simulation, which `python -m benchmarks.coverage` repeats with the functions below; docs/decisions/0009 has the
table, and the alternatives.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from scipy.special import stdtrit

CONFIDENCE = 0.95
MIN_LAUNCHES = 5
TARGET = 0.025  # of the half-width, relative to the estimate

# What Chow and Robbins' rule lacks is worth about this many launches once there are many. With few there has been
# little occasion to stop too soon: with the second constant the correction is largest at that many launches.
FURTHER_LAUNCHES = 5
LARGEST_AT = 14

LARGEST_LOGARITHM = 300.0  # e^300 is wider than any speed, and overflows nothing


@dataclass(frozen=True)
class Interval:
    """A 95 % confidence interval (CONFIDENCE): of a cell in images/s, of a ratio without unit."""

    estimate: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Relative to the estimate; of the two sides the larger, which is the upper one."""
        return self.high / self.estimate - 1

    @property
    def verdict(self) -> Literal["faster", "slower", "tie"]:
        """Of a ratio of speeds: a tie where the interval holds 1."""
        if self.low > 1:
            return "faster"
        return "slower" if self.high < 1 else "tie"


@dataclass(frozen=True)
class _Mean:
    """Of logarithms. error: squared standard error. freedom: degrees of freedom of the error."""

    value: float
    error: float
    freedom: float


def t_interval(values: Sequence[float]) -> Interval | None:
    """Student's interval of the geometric mean of values above 0 whose number does not depend on them; None where
    fewer than 2. For launches take `cell_interval`. Raises ValueError for a value that is not above 0."""
    return _interval(_mean(values)) if len(values) > 1 else None


def cell_interval(values: Sequence[float]) -> Interval | None:
    """The interval of a cell: Student's, widened for the stopping rule. values: images/s of its launches, above 0;
    None where fewer than 2. Raises ValueError as `t_interval`."""
    return _interval(_widened_mean(values)) if len(values) > 1 else None


def ratio_interval(numerator: Sequence[float], denominator: Sequence[float]) -> Interval | None:
    """The interval of the ratio of two cells' estimates: Welch's t, with the errors widened as those of the cells and
    Satterthwaite's degrees of freedom (B. L. Welch, Biometrika 34, 1947). Arguments as of `cell_interval`; None where
    either has fewer than 2. Raises ValueError as `t_interval`.

    From 5 launches on each side on, coverage is what it says. With 2 on one side and many on the other it is below
    90 %: the degrees of freedom are then themselves guessed from 2 values. With 2 on both sides it is 98 %.
    """
    if len(numerator) < 2 or len(denominator) < 2:
        return None
    over, under = _widened_mean(numerator), _widened_mean(denominator)
    error = over.error + under.error
    parts = over.error**2 / over.freedom + under.error**2 / under.freedom
    freedom = error**2 / parts if parts > 0 else over.freedom + under.freedom
    return _interval(_Mean(over.value - under.value, error, freedom))


def is_narrow(values: Sequence[float]) -> bool:
    """The stopping rule: at least MIN_LAUNCHES, and a half-width of at most TARGET. values: as of
    `cell_interval`."""
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
    """The factor on the squared standard error: 1 + 5n / (n^2 + 14^2), which is 1.11 for 5 launches, 1.18 for 14, and
    1 + 5/n for many: n then meets the target where n - 5 would without it. 1 below the number at which launches may
    first have been stopped."""
    if launches < MIN_LAUNCHES:
        return 1.0
    return 1 + FURTHER_LAUNCHES * launches / (launches**2 + LARGEST_AT**2)


def _interval(mean: _Mean) -> Interval:
    half = float(stdtrit(mean.freedom, (1 + CONFIDENCE) / 2)) * math.sqrt(mean.error)
    high = math.exp(min(mean.value + half, LARGEST_LOGARITHM))
    return Interval(math.exp(mean.value), math.exp(mean.value - half), high)
