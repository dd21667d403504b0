"""Test whether launches that follow each other have similar errors. No input or output.

Then launches are not independent, and the interval of a cell describes only the period that was observed. The cause is
usually a shared machine that is slower for minutes at a time. Ratios of cells that were paired by round stay valid.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, pstdev

from kit.analysis.pairing import Measure, rates
from kit.model.record import Record

MIN_LAUNCHES = 6
CRITICAL = 1.645  # of the standard normal distribution, one-sided at 5%


@dataclass(frozen=True)
class Correlation:
    """The lag-1 autocorrelation of the errors of launches in the order of time.

    value: -1 to 1. launches: their number.
    """

    value: float
    launches: int

    @property
    def significant(self) -> bool:
        """Return whether independent launches would have such a value in at most 5% of runs.

        The standard error is 1 / sqrt(n) (M. S. Bartlett, On the Theoretical Specification and Sampling Properties of
        Autocorrelated Time-Series, Suppl. J. R. Statist. Soc. 8, 1946).
        """
        return self.value > CRITICAL / math.sqrt(self.launches)


def speeds_in_time(records: Sequence[Record]) -> list[tuple[str, float]]:
    """Return key and training images/s of the ok launches of a run, in the order in which they started."""
    found = [
        (record.started_at, record.key, rate)
        for record in records
        for rate in rates([record], Measure.TRAINING).values()
    ]
    return [(key, rate) for _, key, rate in sorted(found)]


def correlation(launches: Sequence[tuple[str, float]]) -> Correlation | None:
    """Return the autocorrelation, or None if fewer than MIN_LAUNCHES launches can be used.

    launches: key of the cell and speed of each launch, in the order of time. The error of a launch is the logarithm of
    its speed, relative to the mean and to the spread of its cell. So a cell needs two launches with different speeds.
    """
    cells: dict[str, list[float]] = {}
    for key, speed in launches:
        cells.setdefault(key, []).append(math.log(speed))
    scales = {key: (fmean(logarithms), pstdev(logarithms)) for key, logarithms in cells.items()}
    errors = [(math.log(speed) - scales[key][0]) / scales[key][1] for key, speed in launches if scales[key][1] > 0]
    if len(errors) < MIN_LAUNCHES:
        return None
    products = math.fsum(error * following for error, following in pairwise(errors))
    return Correlation(products / math.fsum(error**2 for error in errors), len(errors))
