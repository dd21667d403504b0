"""Compute statistics that a few outliers do not change: spread, outlier scores, trend. No input or output."""

import math
import statistics
from collections.abc import Sequence

MAD_TO_SD = 1.4826  # 1 / quantile(0.75) of the normal distribution: turns its MAD into its standard deviation
MEAN_TO_SD = 1.253314  # sqrt(pi / 2): the same for the mean absolute deviation


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


def mann_kendall(values: Sequence[float]) -> float:
    """Return the two-sided p-value of the Mann-Kendall test for a trend over the order of the values (Kendall 1975).

    It is the p-value of Kendall's tau-b between the values and their positions. `scipy.stats.kendalltau` computes it
    exactly if there are no ties and at most 33 values (or at most one pair out of order). Otherwise it uses the normal
    approximation with a correction for ties and no continuity correction. This is good for about eight or more values.
    Return 1 if all values are equal.
    """
    from scipy.stats import kendalltau  # takes long to import

    p = float(kendalltau(range(len(values)), values).pvalue)
    return 1.0 if math.isnan(p) else p


def theil_sen(values: Sequence[float]) -> float:
    """Return the slope per position: the median over all pairs (Theil 1950, Sen 1968). values: at least two."""
    from scipy.stats import theilslopes  # takes long to import

    return float(theilslopes(values).slope)
