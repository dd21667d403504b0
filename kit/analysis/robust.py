"""Compute the spread of values, outlier scores, and tests for a trend or a jump in a series. No input or output."""

import math
import statistics
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri, stdtr

MAD_TO_SD = 1.4826  # 1 / quantile(0.75) of the normal distribution: turns its MAD into its standard deviation
MEAN_TO_SD = 1.253314  # sqrt(pi / 2): the same for the mean absolute deviation
MIN_SEGMENT = 3  # values before and after a change point: a single stall is not a change
MAX_AUTOCORRELATION = 0.95
ALL_SLOPES = 1000  # values: up to so many, all slopes between them are kept
SAMPLED = 100  # one slope in so many belongs to the sample

Series = npt.NDArray[np.float64]
Positions = npt.NDArray[np.intp]


def relative_spread(values: Sequence[float]) -> float:
    """Return the standard deviation, estimated by the median absolute deviation (MAD), relative to the median.

    values: above 0.
    """
    middle = statistics.median(values)
    return MAD_TO_SD * statistics.median(abs(value - middle) for value in values) / middle


def modified_z_scores(values: Sequence[float]) -> list[float]:
    """Return the distance of each value from the median, in standard deviations.

    The standard deviation is estimated by the median absolute deviation, or by the mean absolute deviation if more than
    half of the values are equal (Iglewicz and Hoaglin, How to Detect and Handle Outliers, 1993).
    """
    middle = statistics.median(values)
    distances = [abs(value - middle) for value in values]
    scale = MAD_TO_SD * statistics.median(distances) or MEAN_TO_SD * statistics.fmean(distances)
    return [(value - middle) / scale if scale else 0.0 for value in values]


def variance_factor(residuals: Sequence[float]) -> float:
    """Return by how much autocorrelation increases the variance of a mean or of Kendall's S: 1 if there is none.

    residuals: of a series after a line or a step was fitted, more than five. A trend or a jump in the series itself
    would look like autocorrelation. The factor is that of a first-order autoregressive process,

        1 + 2 * sum of (1 - k / n) * rho^k over k = 1 .. n - 1

    (Yue and Wang, The Mann-Kendall test modified by effective sample size to detect trend in serially correlated
    hydrological series, Water Resources Management 18, 2004, equations 5 and 6). rho is the sample's lag-1
    autocorrelation, corrected for a bias of -(2 + 4 rho) / n. A fitted mean has the bias -(1 + 4 rho) / n (Kendall,
    Biometrika 41, 1954; Marriott and Pope, in the same volume), and a second fitted parameter adds 1 / n. Negative
    values count as 0, because alternating noise must not make a test more sensitive.
    """
    n, squares = len(residuals), sum(value * value for value in residuals)
    if not squares:
        return 1.0
    sampled = sum(before * after for before, after in pairwise(residuals)) / squares
    rho = min(MAX_AUTOCORRELATION, max(0.0, (n * sampled + 2) / (n - 4)))
    if not rho:
        return 1.0
    return 1 + 2 * math.fsum((1 - k / n) * rho**k for k in range(1, n))


def change_point(values: Sequence[float]) -> tuple[int, float]:
    """Return the most likely position of a single jump of the mean, and the p-value against no jump.

    The position is the index of the first value after the jump. It maximizes Student's t of the difference between
    both segments of at least MIN_SEGMENT values. The p-value is the two-sided one of the maximum, times the number of
    possible positions (Bonferroni), for as many values as the series has independent ones (see `variance_factor`).
    values: at least 2 * MIN_SEGMENT.

    Hawkins (1977), Testing a sequence of observations for a shift in location, Journal of the American Statistical
    Association 72, 180-186. Worsley (1979), On the likelihood ratio test for a shift in location of normal populations,
    in the same journal 74, 365-367. Rank tests such as Pettitt's cannot reach a small p-value for a jump in the last
    few of a dozen values, however large it is.
    """
    n, mean = len(values), statistics.fmean(values)
    centered = [value - mean for value in values]
    sums = [0.0, *accumulate(centered)]
    positions = range(MIN_SEGMENT, n - MIN_SEGMENT + 1)
    # The centered sum before k gives the difference of both means: -sums[k] * n / (k * (n - k)).
    at = max(positions, key=lambda k: sums[k] ** 2 / (k * (n - k)))
    before, after = sums[at] / at, -sums[at] / (n - at)
    residuals = [value - (before if k < at else after) for k, value in enumerate(centered)]
    factor = variance_factor(residuals)
    freedom = max(1.0, n / factor - 2)
    variance = sum(value * value for value in residuals) / (n - 2) * factor * n / (at * (n - at))
    if not variance:
        return at, 1.0 if before == after else 0.0
    t = abs(after - before) / math.sqrt(variance)
    return at, min(1.0, len(positions) * 2 * float(stdtr(freedom, -t)))


def mann_kendall(values: Sequence[float], factor: float = 1.0) -> float:
    """Return the two-sided p-value of the Mann-Kendall test for a trend over the order of the values (Kendall 1975).

    factor: how much larger the variance of S is than for independent values, see `variance_factor`.

    It is the p-value of Kendall's tau-b between the values and their positions. `scipy.stats.kendalltau` computes it
    exactly if there are no ties and at most 33 values (or at most one pair out of order). Otherwise it uses the normal
    approximation with a correction for ties and no continuity correction. This is good for about eight or more values.
    Return 1 if all values are equal.
    """
    from scipy.stats import kendalltau  # takes long to import

    p = float(kendalltau(range(len(values)), values).pvalue)
    if math.isnan(p):
        return 1.0
    return p if factor == 1 else 2 * float(ndtr(ndtri(p / 2) / math.sqrt(factor)))


def theil_sen(values: Sequence[float]) -> float:
    """Return the slope per position: the median over all pairs (Theil 1950, Sen 1968). values: at least two.

    All slopes of a long series would take gigabytes. So only those near the median of a sample are kept, and the others
    are counted.
    """
    series = np.asarray(values, dtype=float)
    if len(series) <= ALL_SLOPES:
        first, second = _pairs(len(series))
        return _median((series[second] - series[first]) / (second - first))
    some = [
        (series[lag + lag % SAMPLED :: SAMPLED] - series[lag % SAMPLED : -lag : SAMPLED]) / lag
        for lag in range(1, len(series))
    ]
    median = _median_slope(series, *np.quantile(np.concatenate(some), (0.49, 0.51)))
    return _median(np.concatenate([*_slopes(series)])) if median is None else median


def _median(values: Series) -> float:
    """Return the median. `numpy.median` takes many times as long for the few values of a launch."""
    middle = [(len(values) - 1) // 2, len(values) // 2]
    return float(np.partition(values, middle)[middle].mean())


@lru_cache(maxsize=16)  # many launches have the same number of windows; an entry has up to 8 MB
def _pairs(count: int) -> tuple[Positions, Positions]:
    """Return the positions of all pairs of different values, the earlier one first."""
    first, second = np.triu_indices(count, 1)
    return first, second


def _slopes(series: Series) -> Iterator[Series]:
    """Yield the slopes between all values with the same distance, for each distance from 1 on."""
    for lag in range(1, len(series)):
        yield (series[lag:] - series[:-lag]) / lag


def _median_slope(series: Series, low: float, high: float) -> float | None:
    """Return the median of all slopes if it lies between `low` and `high`, else None."""
    below, near = 0, []
    for slopes in _slopes(series):
        below += int(np.count_nonzero(slopes < low))
        near.append(slopes[(low <= slopes) & (slopes <= high)])
    candidates, pairs = np.sort(np.concatenate(near)), len(series) * (len(series) - 1) // 2
    middle = [(pairs - 1) // 2 - below, pairs // 2 - below]
    return float(np.mean(candidates[middle])) if middle[0] >= 0 and middle[1] < len(candidates) else None
