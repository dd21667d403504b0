"""Simulate how often `kit gate` raises an alarm about unchanged runs, and how often it finds a loss of speed.

`python -m benchmarks.gate_power` prints a line of JSON for each simulated machine (`benchmarks.machines`). Both runs
have 18 cells and were measured in the same rounds: in each round, both launches of a cell run one after the other, in
random order. The rule is that of runs, with the defaults of `kit gate`. With `--confirm`, CONFIRM_ROUNDS fresh rounds
of the cells that raised the alarm must raise it again.
"""

from __future__ import annotations

import argparse
import math
from statistics import median

import numpy as np

from benchmarks.machines import MACHINES, Errors, Machine
from benchmarks.pairs import percent, print_line
from kit.analysis.gate import is_regression, judge_all
from kit.analysis.losses import change_of_pairs, loss_of_all, losses_of_each
from kit.cli.compare import CONFIRM_ROUNDS, MAX_REGRESSION

CELLS = 18
ROUNDS = (5, 8)
RUNS = 1000  # simulated pairs of runs of a line
LOSS_OF_ONE, LOSS_OF_ALL = 0.10, 0.03
SEED = 0


def ratios(machine: Machine, rounds: int, losses: Errors, generator: np.random.Generator) -> Errors:
    """Return the ratios of two runs, (rounds, cells). losses: of each cell, as logarithms."""
    errors = machine(generator, rounds * len(losses) * 2).reshape(rounds, len(losses), 2)
    base, new = np.moveaxis(generator.permuted(errors, axis=2), 2, 0)
    found: Errors = np.exp(new - base + losses)
    return found


def alarms(found: Errors) -> tuple[bool, list[bool]]:
    """Return whether the gate raises an alarm about all cells together, and about each cell. found: from `ratios`."""
    changes = [change_of_pairs(column) for column in found.T]
    losses = losses_of_each(changes)
    of_each = [is_regression(change, loss, MAX_REGRESSION) for change, loss in zip(changes, losses, strict=True)]
    return judge_all(changes, MAX_REGRESSION).regression, of_each


def confirmed(found: Errors, machine: Machine, losses: Errors, generator: np.random.Generator) -> bool:
    """Return whether the gate raises an alarm, and fresh rounds of the cells with the alarm raise one, too."""
    whole, cells = alarms(found)
    again = [whole or cell for cell in cells]
    if not any(again):
        return False
    whole, cells = alarms(ratios(machine, CONFIRM_ROUNDS, losses[again], generator))
    return whole or any(cells)


def line(name: str, rounds: int) -> dict[str, object]:
    """Return the shares of runs with an alarm, in percent; "confirmed": an alarm that fresh rounds confirm. revealed:
    smallest loss that would have been revealed with a probability of 80%, median over the runs: of one cell, and of
    all."""
    machine, generator = MACHINES[name], np.random.default_rng(SEED)

    def simulated(losses: Errors) -> list[Errors]:
        return [ratios(machine, rounds, losses, generator) for _ in range(RUNS)]

    unchanged, one = np.zeros(CELLS), np.zeros(CELLS)
    one[0] = math.log(1 - LOSS_OF_ONE)
    all_slower = unchanged + math.log(1 - LOSS_OF_ALL)
    same, one_slower, slower = simulated(unchanged), simulated(one), simulated(all_slower)
    of_same = [[change_of_pairs(column) for column in found.T] for found in same]
    return {
        "bench": "gate",
        "machine": name,
        "rounds": rounds,
        "false_alarms": percent(whole or any(cells) for whole, cells in map(alarms, same)),
        "confirmed_false_alarms": percent(confirmed(found, machine, unchanged, generator) for found in same),
        "10% in one cell": percent(cells[0] for _, cells in map(alarms, one_slower)),
        "10% in one cell, confirmed": percent(confirmed(found, machine, one, generator) for found in one_slower),
        "3% in all": percent(whole for whole, _ in map(alarms, slower)),
        "3% in all, confirmed": percent(confirmed(found, machine, all_slower, generator) for found in slower),
        "revealed_of_one": round(100 * median(losses_of_each(changes)[0].revealed for changes in of_same), 1),
        "revealed_of_all": round(100 * median(loss_of_all(changes).revealed for changes in of_same), 1),
    }


def main() -> None:
    """Print all lines."""
    argparse.ArgumentParser(prog="benchmarks.gate_power", description=__doc__).parse_args()  # --help only
    for name in MACHINES:
        for rounds in ROUNDS:
            print_line(line(name, rounds))


if __name__ == "__main__":
    main()
