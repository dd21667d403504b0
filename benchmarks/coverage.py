"""Simulate how often the kit's intervals contain the true value, and how often equal frameworks are called different.

`python -m benchmarks.coverage` prints a line of JSON for each simulated machine (`benchmarks.machines`) and rule:

- `by_blocks`: the rule of runs. The three frameworks of a block run directly one after the other, in random order, and
  the block stops as a whole. Ratios are computed from pairs.
- `by_cells`: an older rule. Each cell stops on its own, and all launches count as independent.

All frameworks have the same speed, except in the lines about power, where one is slower. The functions are those that
runs use.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean, median

import numpy as np

from benchmarks.machines import MACHINES, Machine
from benchmarks.pairs import percent, print_line
from kit.analysis.correlation import correlation
from kit.analysis.intervals import (
    CONFIDENCE,
    MIN_LAUNCHES,
    TARGET,
    Interval,
    Verdict,
    cell_interval,
    holm,
    is_narrow_ratio,
    paired_interval,
    paired_p_value,
    ratio_interval,
)

FRAMEWORKS = "abc"
MAX_ROUNDS = 40
BLOCKS = 2000  # simulated blocks of a line
SCENARIOS = 6  # of a run
SEED = 0
SLOWDOWN = math.log(0.9)  # of one framework, in the lines about power
POWER_ROUNDS = 5

Launches = list[tuple[str, float]]  # framework and speed, in the order of time


@dataclass(frozen=True)
class Outcome:
    """What a rule concluded about one block.

    ratios: of the pairs of frameworks. cells: of the frameworks. labelled: whether the intervals of the cells are said
    to describe only the observed period. winner: whether a framework was named the fastest. launches: their number.
    """

    ratios: tuple[Interval, ...]
    cells: tuple[Interval, ...]
    labelled: bool
    winner: bool
    launches: int


Rule = Callable[[Launches], Outcome]


def simulated(machine: Machine, generator: np.random.Generator, slowdown: float = 0.0) -> Launches:
    """Return the launches of MAX_ROUNDS rounds. slowdown: of framework a, as a logarithm."""
    errors = iter(machine(generator, MAX_ROUNDS * len(FRAMEWORKS)))
    orders = generator.permuted(np.tile(list(FRAMEWORKS), (MAX_ROUNDS, 1)), axis=1)
    return [
        (str(name), math.exp(next(errors) + (slowdown if name == "a" else 0.0))) for order in orders for name in order
    ]


def by_blocks(launches: Launches, rounds: int | None = None) -> Outcome:
    """Apply the rule of runs. rounds: make this number of rounds; None: until all ratios are narrow."""
    speeds = _by_framework(launches)
    pairs = [
        [over / under for over, under in zip(speeds[one], speeds[other], strict=True)]
        for one, other in combinations(FRAMEWORKS, 2)
    ]
    enough = (n for n in range(MIN_LAUNCHES, MAX_ROUNDS) if all(is_narrow_ratio(ratios[:n]) for ratios in pairs))
    made = rounds or next(enough, MAX_ROUNDS)
    pairs = [ratios[:made] for ratios in pairs]
    found = correlation(launches[: made * len(FRAMEWORKS)])
    adjusted = holm([paired_p_value(ratios) for ratios in pairs])
    ahead = Counter(
        one if fmean(map(math.log, ratios)) > 0 else other
        for (one, other), ratios, p in zip(combinations(FRAMEWORKS, 2), pairs, adjusted, strict=True)
        if p < 1 - CONFIDENCE
    )
    return Outcome(
        tuple(filter(None, map(paired_interval, pairs))),
        tuple(filter(None, (cell_interval(own[:made]) for own in speeds.values()))),
        labelled=found is not None and found.significant,
        winner=len(FRAMEWORKS) - 1 in ahead.values(),
        launches=made,
    )


def by_cells(launches: Launches, rounds: int | None = None) -> Outcome:
    """Apply the older rule: Student's widened interval for a cell, which stops on its own. Welch's for a ratio."""
    cells = {}
    for name, own in _by_framework(launches).items():
        enough = (n for n in range(MIN_LAUNCHES, MAX_ROUNDS) if _student(own[:n]).half_width <= TARGET)
        cells[name] = own[: rounds or next(enough, MAX_ROUNDS)]
    ratios = {pair: ratio_interval(cells[pair[0]], cells[pair[1]]) for pair in combinations(FRAMEWORKS, 2)}
    leader = max(FRAMEWORKS, key=lambda name: fmean(map(math.log, cells[name])))
    verdicts = [interval.verdict for pair, interval in ratios.items() if interval and leader in pair]
    return Outcome(
        tuple(filter(None, ratios.values())),
        tuple(map(_student, cells.values())),
        labelled=False,
        winner=Verdict.TIE not in verdicts,
        launches=max(map(len, cells.values())),
    )


def line(machine: str, rule: Rule, outcomes: Sequence[Outcome]) -> dict[str, object]:
    """Return the line of JSON for the outcomes of equal frameworks. Half-widths and shares are in percent.

    cells_or_labelled: share of cells whose interval contains the speed of a typical launch, or is labelled. winner:
    share of blocks in which one was named the fastest. winner_in_run: share of runs of SCENARIOS blocks with one.
    """
    ratios = [interval for outcome in outcomes for interval in outcome.ratios]
    cells = [(interval, outcome.labelled) for outcome in outcomes for interval in outcome.cells]
    winner = fmean(outcome.winner for outcome in outcomes)
    return {
        "bench": "coverage",
        "machine": machine,
        "rule": rule.__name__,
        "ratios": percent(_contains_1(interval) for interval in ratios),
        "ratio_half_width": round(100 * median(interval.half_width for interval in ratios), 1),
        "false_differences": percent(interval.verdict is not Verdict.TIE for interval in ratios),
        "winner": round(100 * winner, 1),
        "winner_in_run": round(100 * (1 - (1 - winner) ** SCENARIOS), 1),
        "cells": percent(_contains_1(interval) for interval, _ in cells),
        "labelled": percent(labelled for _, labelled in cells),
        "cells_or_labelled": percent(_contains_1(interval) or labelled for interval, labelled in cells),
        "cell_half_width": round(100 * median(interval.half_width for interval, _ in cells), 1),
        "launches": round(fmean(outcome.launches for outcome in outcomes), 1),
    }


def power_line(machine: str, rule: Rule, outcomes: Sequence[Outcome]) -> dict[str, object]:
    """Return the line about how often a slower framework is found in POWER_ROUNDS rounds."""
    found = percent(interval.high < 1 for outcome in outcomes for interval in outcome.ratios[:2])
    return {"bench": "power", "machine": machine, "rule": rule.__name__, "slower_by": "10%", "found": found}


def _by_framework(launches: Launches) -> dict[str, list[float]]:
    return {name: [speed for own, speed in launches if own == name] for name in FRAMEWORKS}


def _student(speeds: Sequence[float]) -> Interval:
    """Return Student's interval with the widening for the stopping rule, which is the one of pairs."""
    interval = paired_interval(speeds)
    assert interval is not None
    return interval


def _contains_1(interval: Interval) -> bool:
    return interval.low <= 1 <= interval.high


def main() -> None:
    """Print all lines."""
    argparse.ArgumentParser(prog="benchmarks.coverage", description=__doc__).parse_args()  # --help only
    for name, machine in MACHINES.items():
        for rule in (by_cells, by_blocks):
            generator = np.random.default_rng(SEED)
            print_line(line(name, rule, [rule(simulated(machine, generator)) for _ in range(BLOCKS)]))
    for name in ("normal, 5%", "two speeds"):
        for rule in (by_cells, by_blocks):
            generator = np.random.default_rng(SEED)
            slowed = [rule(simulated(MACHINES[name], generator, SLOWDOWN), POWER_ROUNDS) for _ in range(BLOCKS)]
            print_line(power_line(name, rule, slowed))


if __name__ == "__main__":
    main()
