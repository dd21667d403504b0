"""Which cells of a precise profile get a further launch: round by round, the widest interval first. Pure.

All is derived from the plan and the records, so that a run that was interrupted goes on from where it was.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from kit.analysis.intervals import cell_interval, is_narrow
from kit.analysis.summaries import speeds
from kit.model.plan import Plan, PlannedLaunch
from kit.model.record import Record
from scenarios.contract.reasons import Status


def next_round(plan: Plan, records: Sequence[Record]) -> list[PlannedLaunch]:
    """The next round: one launch of every planned cell whose interval is wide (`is_narrow`), the widest first, numbered
    after the cell's last. Empty where none is wide any more, or the budget has room for none.

    A cell needs two `ok` launches to have an interval, and gets no more where one was skipped or where as many failed
    as ended `ok`. A launch has room in `plan.budget_s` where all seconds spent, those expected of the launches before
    it in the round, and its own do not exceed it; a launch is expected to take as long as the cell's others on average.
    """
    last: dict[str, PlannedLaunch] = {}
    for launch in plan.launches:
        if launch.key not in last or launch.launch > last[launch.key].launch:
            last[launch.key] = launch
    wide = []
    for key, launch in last.items():
        mine = [record for record in records if record.key == key]
        if (half_width := _half_width_if_wide(mine)) is not None:
            number = 1 + max(launch.launch, *(record.launch for record in mine))
            expected_s = fmean(record.seconds for record in mine)
            wide.append((half_width, expected_s, launch.model_copy(update={"launch": number})))
    left_s = math.inf if plan.budget_s is None else plan.budget_s - sum(record.seconds for record in records)
    chosen = []
    for _, expected_s, launch in sorted(wide, key=lambda each: each[0], reverse=True):
        if expected_s <= left_s:
            left_s -= expected_s
            chosen.append(launch)
    return chosen


def _half_width_if_wide(records: Sequence[Record]) -> float | None:
    """The half-width of a cell that is to have a further launch; None where it is narrow, or not to be had."""
    measured = speeds(records)
    interval = cell_interval(measured)
    failing = len(measured) <= len(records) - len(measured)
    skipped = any(record.status is Status.SKIPPED for record in records)
    if interval is None or failing or skipped or is_narrow(measured):
        return None
    return interval.half_width
