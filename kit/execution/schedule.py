"""Decide which cells of the standard profile get another launch. No input or output.

The decision depends only on the plan and the records, so a resumed run continues where it stopped.
"""

import math
from collections.abc import Sequence
from statistics import fmean

from kit.analysis.intervals import cell_interval, is_narrow
from kit.analysis.summaries import speeds
from kit.model.plan import Plan, PlannedLaunch
from kit.model.record import Record
from scenarios.contract.reasons import Status


def next_round(plan: Plan, records: Sequence[Record]) -> list[PlannedLaunch]:
    """Return the next round: one launch of every planned cell whose interval is wide (`is_narrow`), the widest first.

    The list is empty if no interval is wide, or if the budget has no time left. A cell needs two `ok` launches to have
    an interval. It gets no more launches if one was skipped, or if at least as many failed as were `ok`. A launch fits
    into `plan.budget_s` if the seconds spent, the expected seconds of the launches before it in the round, and its own
    do not exceed the budget. A launch is expected to take as long as the other launches of its cell on average.
    """
    last: dict[str, PlannedLaunch] = {}
    for launch in plan.launches:
        if launch.key not in last or launch.launch > last[launch.key].launch:
            last[launch.key] = launch
    wide = []
    for key, launch in last.items():
        own = [record for record in records if record.key == key]
        if (half_width := _half_width_if_wide(own)) is not None:
            number = 1 + max(launch.launch, *(record.launch for record in own))
            expected_s = fmean(record.seconds for record in own)
            wide.append((half_width, expected_s, launch.model_copy(update={"launch": number})))
    left_s = math.inf if plan.budget_s is None else plan.budget_s - sum(record.seconds for record in records)
    chosen = []
    for _, expected_s, launch in sorted(wide, key=lambda each: each[0], reverse=True):
        if expected_s <= left_s:
            left_s -= expected_s
            chosen.append(launch)
    return chosen


def _half_width_if_wide(records: Sequence[Record]) -> float | None:
    """Return the half-width of a cell that needs another launch, else None."""
    measured = speeds(records)
    interval = cell_interval(measured)
    failing = len(measured) <= len(records) - len(measured)
    skipped = any(record.status is Status.SKIPPED for record in records)
    if interval is None or failing or skipped or is_narrow(measured):
        return None
    return interval.half_width
