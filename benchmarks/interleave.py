"""Two runs in one: a plan whose launches belong to run A and run B by turns, and its records parted into the two. Pure.

Of each cell, the launches 1, 3, 5, ... are run A's and 2, 4, 6, ... run B's: what drifts between two runs made one
after the other is the same for both.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from kit.model.plan import Plan, PlannedLaunch
from kit.model.record import Record

Half = Literal["a", "b"]
NO_FURTHER_S = 1.0  # a budget that is spent after the first launch, so that no cell gets more launches than planned


def interleaved(plan: Plan, rounds: int) -> Plan:
    """The plan's cells, `rounds` launches each for A and for B. In each round the cells come in an order of their own
    drawn by seed, both launches of a cell one after the other, A's first in one round and B's in the next."""
    cells = list({launch.key: launch for launch in plan.launches}.values())
    launches: list[PlannedLaunch] = []
    for number in range(1, rounds + 1):
        pair = (2 * number - 1, 2 * number) if number % 2 else (2 * number, 2 * number - 1)
        shuffled = random.Random(f"{plan.seed}/{number}").sample(cells, len(cells))
        launches += [cell.model_copy(update={"launch": launch}) for cell in shuffled for launch in pair]
    budget_s = None if plan.budget_s is None else NO_FURTHER_S
    return plan.model_copy(update={"launches": launches, "budget_s": budget_s})


def half_of(launch: int) -> Half:
    """Whose launch of an interleaved plan this is."""
    return "a" if launch % 2 else "b"


def half_plan(plan: Plan, half: Half) -> Plan:
    """The plan of run A or B alone, its launches numbered from 1, in their order."""
    own = [launch for launch in plan.launches if half_of(launch.launch) == half]
    renumbered = [launch.model_copy(update={"launch": _number(launch.launch)}) for launch in own]
    return plan.model_copy(update={"run": f"{plan.run}-{half}", "launches": renumbered})


def half_records(records: Sequence[Record], half: Half) -> list[Record]:
    """The records of run A or B alone, their launches numbered from 1."""
    return [_renumbered(record) for record in records if half_of(record.launch) == half]


def _number(launch: int) -> int:
    return (launch + 1) // 2


def _renumbered(record: Record) -> Record:
    number = _number(record.launch)
    changes = {
        "launch": number,
        "request": replace(record.request, launch=number),
        "result": record.result and replace(record.result, launch=number),
    }
    return record.model_copy(update=changes)
