"""Where a series of measurements leaves its initial transient: MSER, found from the samples alone.

Caches, allocators, clocks and thread pools settle during the first windows of training, after a time that depends on
machine, framework and network. Simulation knows the same problem, a start that is not typical of the rest, and MSER
(marginal standard error rule) is its standard answer.

White (1997), An effective truncation heuristic for bias reduction in simulation output, Simulation 69(6), 323-334;
White, Cobb and Spratt (2000), A comparison of five steady-state truncation heuristics for simulation, Proceedings of
the Winter Simulation Conference (MSER-m: the rule over means of batches of m observations; a window, the mean rate of
many steps, is such a batch); Hoad, Robinson and Davies (2010), Automating warm-up length estimation, Journal of the
Operational Research Society 61, 1389-1403 (no cut into the second half, which would mean that the series is too
short, and none that leaves fewer than five values, whose closeness would be chance).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

MIN_LEFT = 5


def truncation_point(values: Sequence[float]) -> int:
    """How many values at the start belong to the transient.

    The d that minimises, over d from 0 to n/2 with at least MIN_LEFT values left,

        MSER(d) = sum of (y_i - mean of y_d .. y_(n-1))^2 over i = d .. n-1, divided by (n - d)^2,

    the squared standard error of the mean of what is left, were it independent; the least such d. In effect it cuts
    where the transient falls below about 1.4 standard deviations of the noise. 0 for fewer than six values.
    """
    latest = min(len(values) // 2, len(values) - MIN_LEFT)
    best, found = math.inf, 0
    mean = squares = 0.0
    for index in range(len(values) - 1, -1, -1):  # Welford's update, from the end
        left = len(values) - index
        change = values[index] - mean
        mean += change / left
        squares += change * (values[index] - mean)
        if index <= latest and squares / left**2 <= best:
            best, found = squares / left**2, index
    return found
