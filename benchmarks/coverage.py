"""Simulate how often the kit's intervals contain the true value if launches stop once the interval is narrow.

`python -m benchmarks.coverage` prints two lines of JSON for each condition: one for the intervals of cells, one for
those of ratios. It uses the functions that runs use. A simulated launch has its own speed, and windows that vary around
it. The value of a launch is the median of its windows, as in a real launch. All spreads are standard deviations of
logarithms.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.pairs import print_line
from kit.analysis.intervals import MIN_LAUNCHES, Interval, cell_interval, is_narrow, ratio_interval

SPEED = 1000.0  # true images/s of every cell
WINDOWS = 80  # per launch: 20 s of steady training in windows of 0.25 s
POOL = 20_000  # precomputed medians of windows, from which launches draw
SEED = 0

REPETITIONS = 6000  # cells per condition
SPREADS = (0.01, 0.02, 0.03, 0.04, 0.05, 0.08)
WINDOW_SPREADS = (0.01, 0.1)
# Beyond 0.5 a distribution counts as moderately skewed (M. G. Bulmer, Principles of Statistics).
SKEWNESSES = (0.0, 0.5)
SMALL_BUDGET = 10  # launches
FIXED_LAUNCHES = (2, 3, 5, 10, 30)


@dataclass(frozen=True)
class Condition:
    """What is simulated.

    sd: spread between launches. windows_sd: spread within a launch. skewness: of the launches' speeds, from a gamma
    distribution whose long tail is on the slow side. max_launches: number of launches that the budget allows. fixed:
    make that number of launches; otherwise the stopping rule decides."""

    sd: float
    windows_sd: float
    skewness: float = 0.0
    max_launches: int = 100
    fixed: bool = False


@dataclass(frozen=True)
class Finding:
    """The result for a condition. kind: cell or ratio. coverage: share of intervals that contain the true value.
    launches_mean: mean number of launches per cell. n: number of intervals."""

    kind: str
    coverage: float
    launches_mean: float
    n: int


def simulate(condition: Condition, repetitions: int, generator: np.random.Generator) -> tuple[Finding, Finding]:
    """Return the findings for the intervals of cells, and for those of ratios of two cells of the same speed.
    repetitions: number of cells. Each cell is the numerator of one ratio and the denominator of another."""
    speeds = _speeds(condition, repetitions, generator).tolist()
    cells = [_made(row, condition) for row in speeds]
    mean = sum(map(len, cells)) / len(cells)
    pairs = [(cell, cells[index - 1]) for index, cell in enumerate(cells)]
    covered = sum(_contains(cell_interval(cell), SPEED) for cell in cells)
    covered_ratios = sum(_contains(ratio_interval(*pair), 1.0) for pair in pairs)
    return (
        Finding("cell", covered / len(cells), mean, len(cells)),
        Finding("ratio", covered_ratios / len(pairs), mean, len(pairs)),
    )


def conditions() -> list[Condition]:
    """Return all conditions: the stopping rule with a large and a small budget, and fixed numbers of launches."""
    stopped = [
        Condition(sd, windows_sd, skewness)
        for skewness in SKEWNESSES
        for windows_sd in WINDOW_SPREADS
        for sd in SPREADS
    ]
    early = [Condition(sd, 0.03, skewness, SMALL_BUDGET) for skewness in SKEWNESSES for sd in SPREADS]
    fixed = [Condition(0.03, 0.03, skewness, n, fixed=True) for skewness in SKEWNESSES for n in FIXED_LAUNCHES]
    return stopped + early + fixed


def lines() -> Iterator[dict[str, Any]]:
    """Yield the lines to print."""
    generator = np.random.default_rng(SEED)
    for condition in conditions():
        for finding in simulate(condition, REPETITIONS, generator):
            yield {"bench": "coverage", **asdict(condition), **asdict(finding)}


def _speeds(condition: Condition, cells: int, generator: np.random.Generator) -> npt.NDArray[np.float64]:
    """Return the values of launches in images/s, shape (cells, max_launches)."""
    size = (cells, condition.max_launches)
    if condition.skewness:
        shape = 4 / condition.skewness**2  # the skewness of a gamma distribution is 2 / sqrt(shape)
        deviations = (shape - generator.standard_gamma(shape, size)) / math.sqrt(shape)
    else:
        deviations = generator.standard_normal(size)
    pool = np.median(generator.normal(0.0, condition.windows_sd, (POOL, WINDOWS)), axis=1)
    values: npt.NDArray[np.float64] = SPEED * np.exp(condition.sd * deviations + generator.choice(pool, size))
    return values


def _made(speeds: Sequence[float], condition: Condition) -> Sequence[float]:
    """Return the launches that are made."""
    if not condition.fixed:
        for count in range(MIN_LAUNCHES, condition.max_launches):
            if is_narrow(speeds[:count]):
                return speeds[:count]
    return speeds


def _contains(interval: Interval | None, truth: float) -> bool:
    return interval is not None and interval.low <= truth <= interval.high


if __name__ == "__main__":
    argparse.ArgumentParser(prog="benchmarks.coverage", description=__doc__).parse_args()  # --help only
    for line in lines():
        print_line(line)
