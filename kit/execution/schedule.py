"""Decide which blocks of the standard profile get another round. No input or output.

The decision depends only on the plan and the records, so a resumed run continues where it stopped.
"""

import math
import random
from collections.abc import Mapping, Sequence
from itertools import combinations
from operator import attrgetter
from statistics import fmean

from kit.analysis.correlation import correlation, speeds_in_time
from kit.analysis.intervals import cell_interval, is_narrow, is_narrow_ratio, paired_interval
from kit.analysis.pairing import Measure, pair, rates
from kit.model.plan import Plan, PlannedLaunch, block_of
from kit.model.record import Record
from kit.model.swept import SWEPT
from scenarios.contract.cell import Cell
from scenarios.contract.reasons import Status

Cells = Mapping[PlannedLaunch, Sequence[Record]]  # the last planned launch of each cell, and the cell's records


def next_round(plan: Plan, records: Sequence[Record]) -> list[PlannedLaunch]:
    """Return the next round: one launch of every cell of each block that is not precise, the least precise block first.

    The list is empty if all blocks are precise, or if the budget has no time left. A block is precise if each ratio of
    two of its cells that are compared (`_compared`) is narrow (`is_narrow_ratio`). A block of one cell is precise if
    the cell is narrow (`is_narrow`) and the launches of the run are not correlated. A cell with fewer than two `ok`
    launches has no interval. It gets no more launches. A cell also gets no more if one of its launches was skipped, or
    if at least as many failed as were `ok`. A round that an interrupt left incomplete is completed first, so that its
    launches are pairs.

    A round of a block fits into `plan.budget_s` if the seconds spent, the expected seconds of the blocks before it, and
    its own do not exceed the budget. A launch is expected to take as long as the other launches of its cell on average.
    """
    blocks: dict[tuple[str, ...], dict[PlannedLaunch, list[Record]]] = {}
    for launch in {launch.key: launch for launch in plan.launches}.values():
        own = [record for record in records if record.key == launch.key]
        if _can_continue(own):
            blocks.setdefault(block_of(launch.cell), {})[launch] = own
    found = correlation(speeds_in_time(records))
    correlated = found is not None and found.significant
    widths = {block: _half_width_if_wide(cells, correlated=correlated) for block, cells in blocks.items()}
    wide = {block: width for block, width in widths.items() if width is not None}
    left_s = math.inf if plan.budget_s is None else plan.budget_s - sum(record.seconds for record in records)
    chosen: list[PlannedLaunch] = []
    for block in sorted(wide, key=wide.__getitem__, reverse=True):
        launches = _round(plan.seed, blocks[block])
        expected_s = sum(fmean(record.seconds for record in records if record.key == each.key) for each in launches)
        if expected_s <= left_s:
            left_s -= expected_s
            chosen += launches
    return chosen


def _can_continue(records: Sequence[Record]) -> bool:
    ok, skipped = len(rates(records, Measure.TRAINING)), any(record.status is Status.SKIPPED for record in records)
    return ok > 1 and not skipped and ok > len(records) - ok


def _half_width_if_wide(cells: Cells, *, correlated: bool) -> float | None:
    """Return the largest half-width in a block that is not precise, infinity if its last round is incomplete, else
    None."""
    if len({max(record.launch for record in own) for own in cells.values()}) > 1:
        return math.inf
    if len(cells) == 1:
        values = [*rates(next(iter(cells.values())), Measure.TRAINING).values()]
        interval = cell_interval(values)
        assert interval is not None, "a cell that can continue has two rates"
        return interval.half_width if correlated or not is_narrow(values) else None
    by_cell = [(launch.cell, rates(own, Measure.TRAINING)) for launch, own in cells.items()]
    ratios = [
        pair(one, other).ratios
        for (cell, one), (against, other) in combinations(by_cell, 2)
        if _compared(cell, against)
    ]
    wide = [found for found in ratios if not is_narrow_ratio(found)]
    return max((i.half_width if (i := paired_interval(found)) else math.inf for found in wide), default=None)


def _compared(one: Cell, other: Cell) -> bool:
    """Return whether the ratio of two cells of a block is a result: they have the same values of what a sweep varies,
    or only these values differ."""
    values = attrgetter(*SWEPT)
    return values(one) == values(other) or one.configuration == other.configuration


def _round(seed: int, cells: Cells) -> list[PlannedLaunch]:
    """Return one launch of each cell, all with the same number, in random order, or what the last round lacks."""
    done = {launch: {record.launch for record in own} for launch, own in cells.items()}
    last = max(map(max, done.values()))
    lacking = [launch for launch, numbers in done.items() if last not in numbers]
    number, due = (last, lacking) if lacking else (last + 1, [*cells])
    launches = [launch.model_copy(update={"launch": number}) for launch in due]
    return random.Random(f"{seed}/{number}/{launches[0].cell.label}").sample(launches, len(launches))
