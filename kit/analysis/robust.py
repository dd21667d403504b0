"""Statistics that a few odd values do not move: spread, outliers, trend. Pure, standard library only."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from itertools import combinations

MAD_TO_SD = 1.4826  # 1 / quantile(0.75) of the normal distribution: makes the MAD estimate its standard deviation
MEAN_TO_SD = 1.253314  # sqrt(pi / 2): the same for the mean absolute deviation


def relative_spread(values: Sequence[float]) -> float:
    """Standard deviation as estimated by the median absolute deviation, relative to the median (values above 0)."""
    middle = statistics.median(values)
    return MAD_TO_SD * statistics.median(abs(value - middle) for value in values) / middle


def modified_z_scores(values: Sequence[float]) -> list[float]:
    """Iglewicz and Hoaglin, How to Detect and Handle Outliers (1993): distance from the median in standard deviations
    estimated by the median absolute deviation, or, where more than half of the values are equal, by the mean one."""
    middle = statistics.median(values)
    distances = [abs(value - middle) for value in values]
    scale = MAD_TO_SD * statistics.median(distances) or MEAN_TO_SD * statistics.fmean(distances)
    return [(value - middle) / scale if scale else 0.0 for value in values]


def mann_kendall(values: Sequence[float]) -> float:
    """Two-sided p-value of the Mann-Kendall test of a trend over the order of the values (Kendall 1975): normal
    approximation with correction for ties and continuity, good from about eight values on. 1 where all are equal."""
    n = len(values)
    score = sum((later > earlier) - (later < earlier) for earlier, later in combinations(values, 2))
    ties = sum(t * (t - 1) * (2 * t + 5) for t in Counter(values).values())
    variance = (n * (n - 1) * (2 * n + 5) - ties) / 18
    if variance <= 0 or score == 0:
        return 1.0
    z = (abs(score) - 1) / math.sqrt(variance)
    return 2 * (1 - statistics.NormalDist().cdf(z))


def theil_sen(values: Sequence[float]) -> float:
    """Slope per place in the order: the median over all pairs (Theil 1950, Sen 1968). At least two values."""
    pairs = combinations(enumerate(values), 2)
    return statistics.median((later - earlier) / (j - i) for (i, earlier), (j, later) in pairs)
