"""Interleave the launches of two runs, A and B, in one plan, and split the records. Pure functions.

For each cell, the launches 1, 3, 5, ... belong to run A and 2, 4, 6, ... to run B. A drift of the machine's speed then
affects both runs alike.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from kit.model.plan import Plan, PlannedLaunch
from kit.model.record import Record

Half = Literal["a", "b"]
SPENT_BUDGET_S = 1.0  # spent after the first launch, so that no cell gets more launches than planned


def interleaved(plan: Plan, rounds: int) -> Plan:
    """Return a plan with `rounds` launches of each cell for A and for B.

    The order of the cells is drawn by seed for each round. Both launches of a cell are adjacent. A's comes first in one
    round, B's in the next."""
    cells = list({launch.key: launch for launch in plan.launches}.values())
    launches: list[PlannedLaunch] = []
    for number in range(1, rounds + 1):
        pair = (2 * number - 1, 2 * number) if number % 2 else (2 * number, 2 * number - 1)
        shuffled = random.Random(f"{plan.seed}/{number}").sample(cells, len(cells))
        launches += [cell.model_copy(update={"launch": launch}) for cell in shuffled for launch in pair]
    budget_s = None if plan.budget_s is None else SPENT_BUDGET_S
    return plan.model_copy(update={"launches": launches, "budget_s": budget_s})


def half_of(launch: int) -> Half:
    """Return the run that a launch of an interleaved plan belongs to."""
    return "a" if launch % 2 else "b"


def half_plan(plan: Plan, half: Half) -> Plan:
    """Return the plan of run A or B, in the same order, with launches numbered from 1. It names the other run."""
    other = "b" if half == "a" else "a"
    chosen = [launch for launch in plan.launches if half_of(launch.launch) == half]
    renumbered = [launch.model_copy(update={"launch": _number(launch.launch)}) for launch in chosen]
    changes = {"run": f"{plan.run}-{half}", "against": f"{plan.run}-{other}", "launches": renumbered}
    return plan.model_copy(update=changes)


def half_records(records: Sequence[Record], half: Half) -> list[Record]:
    """Return the records of run A or B, with launches numbered from 1."""
    return [_renumbered(record) for record in records if half_of(record.launch) == half]


def _number(launch: int) -> int:
    return (launch + 1) // 2


def _renumbered(record: Record) -> Record:
    number = _number(record.launch)
    changes = {
        "launch": number,
        "request": record.request and replace(record.request, launch=number),
        "result": record.result and replace(record.result, launch=number),
    }
    return record.model_copy(update=changes)
