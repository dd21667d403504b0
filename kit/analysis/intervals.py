"""Compute confidence intervals from launches, and decide whether there are enough launches. No input or output.

The sample consists of launches, not of the windows of one launch (A. Georges, D. Buytaert, L. Eeckhout, Statistically
Rigorous Java Performance Evaluation, OOPSLA 2007).

A ratio of two cells of one run is computed from pairs: the launches of both in the same round ran directly one after
the other, so a machine that changes its speed in the course of a run changes both. The estimate is the geometric mean
of the ratios of the rounds, with Student's interval on their logarithms, because errors of speeds are ratios. Launches
of runs that were not measured together cannot be paired; their ratio gets Welch's interval.

The speed of one cell is the median of its launches: the speed of a typical launch. From MIN_LAUNCHES on, its interval
consists of order statistics (W. R. Thompson, On Confidence Ranges for the Median, Ann. Math. Stat. 7, 1936). It makes
no assumption about the distribution, which may have outliers on one side. It assumes independent launches.
`kit.analysis.correlation` tests this.

Launching stops once intervals are narrow. This rule tends to stop too early, when the first launches happen to agree.
Student's interval at that moment covers less than its nominal 95% (Y. S. Chow, H. Robbins, On the Asymptotic Theory of
Fixed-Width Sequential Confidence Intervals for the Mean, Ann. Math. Stat. 36, 1965; N. Starr, The Performance of a
Sequential Procedure, the same 37, 1966). The deficit falls with one over the number of launches, and a fixed number of
further launches makes up for it (G. Simons, On the Cost of Not Knowing the Variance, the same 39, 1968). `_widening`
expresses this correction as a factor. So the correction also holds if a budget ends the launches earlier, or if their
number was fixed in advance. `python -m benchmarks.coverage` repeats the simulations with the functions of this module.
docs/decisions/0009 and 0014 have the tables and the alternatives.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from scipy.special import bdtr, stdtr, stdtrit

CONFIDENCE = 0.95
MIN_LAUNCHES = 5
TARGET = 0.025  # half-width of the interval of a cell, relative to the estimate
RATIO_TARGET = 0.035  # of a ratio: two independent cells with TARGET
TIE_WIDTH = 0.1  # half-width of the interval of a ratio; a wider one also contains differences that matter

# Lowest confidence of the interval of a median. Its ends are values, so few confidences are possible: with 5 launches
# 93.75% (their range), with 11 launches 93.5% or 98.8%.
MEDIAN_CONFIDENCE = 0.93

# Chow and Robbins' rule lacks about this many launches if a cell has many. With few launches the rule has had few
# chances to stop too early. LARGEST_AT is the number of launches at which the correction is largest.
FURTHER_LAUNCHES = 5
LARGEST_AT = 14

MAX_LOGARITHM = 300.0  # e^300 is larger than any speed, and does not overflow


class Verdict(StrEnum):
    """The conclusion of comparing two cells.

    TIE: the interval of the ratio contains 1. UNKNOWN: there is no interval, because there is only one launch or pair.
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
    """A 95% confidence interval (CONFIDENCE), in images/s or ms for a cell, without unit for a ratio.

    That of a median has the confidence of `median_confidence`.
    """

    estimate: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Return the half-width relative to the estimate, on the longer side."""
        return max(self.high / self.estimate, 2 - self.low / self.estimate) - 1

    @property
    def inverse(self) -> Interval:
        """Return the interval of 1 divided by the value: of a time from a speed, or of a ratio the other way round."""
        return Interval(1 / self.estimate, 1 / self.high, 1 / self.low)

    def of_time(self, seconds: float) -> Interval:
        """Return the interval of a time that was computed from this speed. seconds: the time at the estimate."""
        return self.inverse.times(seconds * self.estimate)

    def times(self, factor: float) -> Interval:
        """Return the interval of the value multiplied by a number above 0."""
        return Interval(factor * self.estimate, factor * self.low, factor * self.high)

    @property
    def verdict(self) -> Verdict:
        """Return the verdict on a ratio of speeds: a tie if the interval contains 1."""
        if self.low > 1:
            return Verdict.FASTER
        return Verdict.SLOWER if self.high < 1 else Verdict.TIE

    @property
    def tied(self) -> bool:
        """Return whether both speeds of a ratio are equal for practical purposes, within TIE_WIDTH."""
        return self.verdict is Verdict.TIE and self.half_width <= TIE_WIDTH


@dataclass(frozen=True)
class _Mean:
    """A mean of logarithms. error: squared standard error. freedom: degrees of freedom of the error."""

    value: float
    error: float
    freedom: float


def t_interval(values: Sequence[float]) -> Interval | None:
    """Return Student's interval of the geometric mean, or None for fewer than 2 values.

    values: above 0. Their number must not depend on them. Raise ValueError if a value is not above 0.
    """
    return _interval(_mean(values)) if len(values) > 1 else None


def typical(values: Sequence[float]) -> float:
    """Return the value of a typical launch: the median; for an even number, the geometric mean of the middle two.

    values: at least one, not below 0.
    """
    low, high = statistics.median_low(values), statistics.median_high(values)
    return low if low == high else math.sqrt(low) * math.sqrt(high)


def cell_interval(values: Sequence[float]) -> Interval | None:
    """Return the interval of the typical value of a cell, or None for fewer than 2 values.

    Below MIN_LAUNCHES, no interval of order statistics reaches the confidence, so it is Student's interval. values:
    images/s or ms of independent launches, above 0. Raise ValueError if a value is not above 0.
    """
    count = len(values)
    if count < 2:
        return None
    if count < MIN_LAUNCHES:
        student = _interval(_mean(values))
        return Interval(typical(values), student.low, student.high)
    omitted = _omitted(count)
    ordered = sorted(values)
    return Interval(typical(values), ordered[omitted], ordered[-1 - omitted])


def paired_interval(ratios: Sequence[float]) -> Interval | None:
    """Return the interval of the ratio of two cells from the ratio in each round, or None for fewer than 2.

    It is Student's interval, widened to correct for the stopping rule. Raise ValueError if a ratio is not above 0.
    """
    return _interval(_widened_mean(ratios)) if len(ratios) > 1 else None


def paired_p_value(ratios: Sequence[float]) -> float:
    """Return the two-sided p value of the test that belongs to `paired_interval`: below 0.05 if it excludes 1.

    Return 1 for fewer than 2 ratios. Raise ValueError if a ratio is not above 0.
    """
    if len(ratios) < 2:
        return 1.0
    return _p_value(_widened_mean(ratios))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return adjusted p values that hold together: the chance of any false rejection stays below the level.

    Source: S. Holm, A Simple Sequentially Rejective Multiple Test Procedure, Scand. J. Statist. 6, 1979.
    """
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def ratio_interval(numerator: Sequence[float], denominator: Sequence[float]) -> Interval | None:
    """Return the interval of the ratio of two cells that were not measured in the same rounds.

    Return None if either has fewer than 2 values. It is Welch's t interval with Satterthwaite's degrees of freedom
    (B. L. Welch, Biometrika 34, 1947). The errors are widened as for pairs. Arguments as in `cell_interval`. Raise
    ValueError if a value is not above 0.

    The coverage is the nominal one from 5 independent launches on each side on. With 2 launches on one side and many on
    the other it is below 90%, because the degrees of freedom are then estimated from 2 values. With 2 on both sides it
    is 98%.
    """
    mean = _welch(numerator, denominator)
    return _interval(mean) if mean else None


def ratio_p_value(numerator: Sequence[float], denominator: Sequence[float]) -> float:
    """Return the two-sided p value of the test that belongs to `ratio_interval`: below 0.05 if it excludes 1.

    Return 1 if either has fewer than 2 values. Raise ValueError if a value is not above 0.
    """
    mean = _welch(numerator, denominator)
    return 1.0 if mean is None else _p_value(mean)


def is_narrow(values: Sequence[float]) -> bool:
    """Return whether a cell has enough launches: at least MIN_LAUNCHES, and a half-width of at most TARGET.

    values: as in `cell_interval`.
    """
    interval = cell_interval(values)
    return interval is not None and len(values) >= MIN_LAUNCHES and interval.half_width <= TARGET


def is_narrow_ratio(ratios: Sequence[float]) -> bool:
    """Return whether a pair has enough rounds: at least MIN_LAUNCHES, and a half-width of at most RATIO_TARGET.

    ratios: as in `paired_interval`.
    """
    interval = paired_interval(ratios)
    return interval is not None and len(ratios) >= MIN_LAUNCHES and interval.half_width <= RATIO_TARGET


def median_confidence(count: int) -> float:
    """Return the confidence of the interval of a median of so many values, at least MIN_LAUNCHES."""
    return float(1 - 2 * bdtr(_omitted(count), count, 0.5))


def _omitted(count: int) -> int:
    """Return how many of the smallest and of the largest values lie outside of the interval of a median.

    The number of values below the true median has a binomial distribution with probability 0.5.
    """
    omitted = 0
    while 1 - 2 * bdtr(omitted + 1, count, 0.5) >= MEDIAN_CONFIDENCE:
        omitted += 1
    return omitted


def _mean(values: Sequence[float]) -> _Mean:
    logarithms = [math.log(value) for value in values]
    count = len(logarithms)
    mean = math.fsum(logarithms) / count
    variance = math.fsum((x - mean) ** 2 for x in logarithms) / (count - 1)
    return _Mean(mean, variance / count, count - 1)


def _welch(numerator: Sequence[float], denominator: Sequence[float]) -> _Mean | None:
    """Return the logarithm of the ratio, or None if either side has fewer than 2 values."""
    if len(numerator) < 2 or len(denominator) < 2:
        return None
    over, under = _widened_mean(numerator), _widened_mean(denominator)
    error = over.error + under.error
    parts = over.error**2 / over.freedom + under.error**2 / under.freedom
    freedom = error**2 / parts if parts > 0 else over.freedom + under.freedom
    return _Mean(over.value - under.value, error, freedom)


def _p_value(mean: _Mean) -> float:
    """Return the two-sided p value of the hypothesis that the true mean is 1."""
    if mean.error == 0:
        return float(mean.value == 0)
    return 2 * float(stdtr(mean.freedom, -abs(mean.value) / math.sqrt(mean.error)))


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
