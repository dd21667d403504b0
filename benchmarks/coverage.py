"""How often the intervals hold the truth when launches are made until the interval is narrow: by simulation, with the
functions that runs use. `python -m benchmarks.coverage` prints one line of JSON a condition.

A simulated launch has a speed of its own and windows that vary around it, and its value is the median of the windows,
as in a real one. All spreads are standard deviations of logarithms.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.pairs import say
from kit.analysis.intervals import MIN_LAUNCHES, Interval, cell_interval, is_narrow, ratio_interval

SPEED = 1000.0  # images/s in truth, of every cell
WINDOWS = 80  # of a launch: 20 s of steady training in windows of a quarter of a second
POOL = 20_000  # medians of windows that launches draw from
SEED = 0

REPETITIONS = 6000  # cells of each condition
SPREADS = (0.01, 0.02, 0.03, 0.04, 0.05, 0.08)
WINDOW_SPREADS = (0.01, 0.1)
# Beyond 0.5 a distribution counts as moderately skewed (M. G. Bulmer, Principles of Statistics).
SKEWNESSES = (0.0, 0.5)
EARLY = 10  # launches after which a small budget is spent
FIXED = (2, 3, 5, 10, 30)


@dataclass(frozen=True)
class Condition:
    """sd: from launch to launch. windows_sd: within a launch. skewness: of the launches' own speeds, with the long tail
    towards the slow ones (a gamma distribution). most: launches that the budget has room for. fixed: as many are made
    whatever comes out; else the stopping rule decides."""

    sd: float
    windows_sd: float
    skewness: float = 0.0
    most: int = 100
    fixed: bool = False


@dataclass(frozen=True)
class Finding:
    """kind: cell or ratio. coverage: share of the intervals that hold the truth. launches_mean: of a cell. n: intervals
    that were made."""

    kind: str
    coverage: float
    launches_mean: float
    n: int


def simulate(condition: Condition, repetitions: int, generator: np.random.Generator) -> tuple[Finding, Finding]:
    """Of the intervals of cells, and of the ratios of two cells of the same speed. repetitions: cells; each is once the
    numerator and once the denominator of a ratio."""
    speeds = _speeds(condition, repetitions, generator).tolist()
    cells = [_made(row, condition) for row in speeds]
    mean = sum(map(len, cells)) / len(cells)
    pairs = [(cell, cells[index - 1]) for index, cell in enumerate(cells)]
    held = sum(_holds(cell_interval(cell), SPEED) for cell in cells)
    held_ratios = sum(_holds(ratio_interval(*pair), 1.0) for pair in pairs)
    return (
        Finding("cell", held / len(cells), mean, len(cells)),
        Finding("ratio", held_ratios / len(pairs), mean, len(pairs)),
    )


def conditions() -> list[Condition]:
    """All that are printed: with the stopping rule, the budget large or spent early, and with a fixed number."""
    found = [
        Condition(sd, windows_sd, skewness)
        for skewness in SKEWNESSES
        for windows_sd in WINDOW_SPREADS
        for sd in SPREADS
    ]
    found += [Condition(sd, 0.03, skewness, EARLY) for skewness in SKEWNESSES for sd in SPREADS]
    return found + [Condition(0.03, 0.03, skewness, n, fixed=True) for skewness in SKEWNESSES for n in FIXED]


def lines() -> Iterator[dict[str, Any]]:
    """What is printed, condition by condition."""
    generator = np.random.default_rng(SEED)
    for condition in conditions():
        for finding in simulate(condition, REPETITIONS, generator):
            yield {"bench": "coverage", **asdict(condition), **asdict(finding)}


def _speeds(condition: Condition, cells: int, generator: np.random.Generator) -> npt.NDArray[np.float64]:
    """Values of launches in images/s, (cells, most)."""
    size = (cells, condition.most)
    if condition.skewness:
        shape = 4 / condition.skewness**2  # the skewness of a gamma distribution is 2 / sqrt(shape)
        own = (shape - generator.standard_gamma(shape, size)) / math.sqrt(shape)
    else:
        own = generator.standard_normal(size)
    pool = np.median(generator.normal(0.0, condition.windows_sd, (POOL, WINDOWS)), axis=1)
    values: npt.NDArray[np.float64] = SPEED * np.exp(condition.sd * own + generator.choice(pool, size))
    return values


def _made(speeds: Sequence[float], condition: Condition) -> Sequence[float]:
    """Those of the launches that are made."""
    if not condition.fixed:
        for count in range(MIN_LAUNCHES, condition.most):
            if is_narrow(speeds[:count]):
                return speeds[:count]
    return speeds


def _holds(interval: Interval | None, truth: float) -> bool:
    return interval is not None and interval.low <= truth <= interval.high


if __name__ == "__main__":
    argparse.ArgumentParser(prog="benchmarks.coverage", description=__doc__).parse_args()  # it has none but --help
    for line in lines():
        say(json.dumps(line))
