"""From a selection to an ordered list of launches, and what they will cost. Pure: nothing is looked up or run here."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from kit.model.cell import Cell, Scenarios
from kit.model.environment import Framework
from kit.model.errors import UsageError
from kit.model.plan import TUNE_S, Plan, PlannedLaunch
from kit.model.plausible import MAX_WHOLE
from kit.planning.plan_estimate import planned_seconds
from kit.planning.profiles import Profile, find_profile
from kit.planning.selection import Selection, select_cells

MAX_SEED = 2**32 - 1  # what every framework's generators take


# A launch is killed after this much: a machine may be several times slower than the typical one.
DEADLINE_BASE_S = 600.0


DEADLINE_FACTOR = 4.0


# Of a precise profile, where nobody said: the planned launches of all stock cells on two cores, and some more.
DEFAULT_BUDGET_S = 5400.0


@dataclass(frozen=True)
class Options:
    """How the selection is run. engine: the name of the engine chosen. environment: the interpreter of `--env`, or "".
    epochs: of the full profile, None for the published number. budget_s: see Plan; None for the default. timeout_s: of
    a launch, None for an estimate. memory_bytes, threads, gpus: None for what the machine has when the run starts.
    tune_s: of the search for one cell's settings, None for the default; pinned: see Plan."""

    engine: str
    environment: str = ""
    profile: str = "quick"
    seed: int = 0
    data: Literal["auto", "real", "synthetic"] = "auto"
    epochs: int | None = None
    budget_s: float | None = None
    timeout_s: float | None = None
    memory_bytes: int | None = None
    threads: int | None = None
    gpus: str | None = None
    identify: bool = False
    tune_s: float | None = None
    pinned: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def make_plan(
    selection: Selection,
    options: Options,
    scenarios: Scenarios,
    frameworks: Mapping[str, Framework],
    *,
    run: str,
    created_at: str,
) -> Plan:
    """The launches of a run, in order. run: its id; created_at: UTC, ISO 8601.

    Raises UsageError for a name that does not exist, a number out of range, and a variant that no scenario has.
    """
    profile = find_profile(options.profile)
    _check_numbers(options, selection, profile)
    cells = select_cells(selection, scenarios, frameworks)
    named = selection.devices is not None
    launches = [
        PlannedLaunch(key=cell.key, launch=number, named=named, **vars(cell))
        for number, cell in _order(cells, profile.launches, options.seed)
    ]
    longest = max(planned_seconds(launch, profile, options.epochs, scenarios) for launch in launches)
    longest = max(longest, options.tune_s or TUNE_S)
    return Plan(
        run=run,
        created_at=created_at,
        profile=profile.name,
        engine=options.engine,
        environment=options.environment,
        seed=options.seed,
        data=options.data,
        epochs=options.epochs,
        budget_s=options.budget_s or (DEFAULT_BUDGET_S if profile.precise else None),
        timeout_s=options.timeout_s or DEADLINE_BASE_S + DEADLINE_FACTOR * longest,
        memory_bytes=options.memory_bytes,
        threads=options.threads,
        gpus=options.gpus,
        identify=options.identify,
        launches=launches,
        tune_s=options.tune_s or TUNE_S,
        pinned=_pinned(options, cells),
    )


def _check_numbers(options: Options, selection: Selection, profile: Profile) -> None:
    if options.epochs is not None and profile.budget is not None:
        raise UsageError(
            f"--epochs has no meaning in the profile {profile.name}, which does not train whole epochs.",
            "Add --profile full, or leave --epochs out.",
        )
    if options.budget_s is not None and not profile.precise:
        raise UsageError(
            f"--budget has no meaning in the profile {profile.name}, whose number of launches is fixed.",
            "Add --profile standard, or leave --budget out.",
        )
    if options.tune_s is not None and "tuned" not in (selection.lanes or ()):
        raise UsageError("--tune has no meaning in the stock lane.", "Add --lane tuned, or leave --tune out.")
    numbers: dict[str, float | None] = {
        "--epochs": options.epochs,
        "--timeout": options.timeout_s,
        "--tune": options.tune_s,
        "--budget": options.budget_s,
        "--memory": options.memory_bytes,
        "--threads": options.threads,
        "--batch": min(selection.batches, default=None) if selection.batches else None,
    }
    for name, value in numbers.items():
        if value is not None and not value > 0:  # nor is NaN
            raise UsageError(f"{name} must be greater than 0, is {value}.", "Leave it out for the default.")
        if value is not None and value > MAX_WHOLE:
            raise UsageError(f"{name} is beyond every machine's numbers.", "Choose a smaller one.")
    if options.seed < 0:
        raise UsageError(f"--seed must not be negative, is {options.seed}.", "Leave it out for the default.")
    if options.seed > MAX_SEED:
        raise UsageError(f"--seed must be at most {MAX_SEED}, is {options.seed}.", "Choose a smaller one.")


def _pinned(options: Options, cells: Sequence[Cell]) -> dict[str, dict[str, str]]:
    """Those of the pins that the plan has cells for. Raises UsageError where it has none of them, and for the time of a
    search where none is left to make."""
    pins, tuned = options.pinned, {cell.key for cell in cells if cell.lane == "tuned"}
    if pins and not tuned & pins.keys():
        raise UsageError(
            f"--settings is for {', '.join(f'{key!r:.100}' for key in list(pins)[:3])}, of which this run has none.",
            "Select these cells, with --lane tuned, or leave --settings out.",
        )
    if options.tune_s is not None and pins and tuned <= pins.keys():
        raise UsageError("--tune has no meaning where --settings has all tuned cells.", "Leave --tune out.")
    return {key: dict(settings) for key, settings in pins.items() if key in tuned}


def _order(cells: Sequence[Cell], launches: int, seed: int) -> list[tuple[int, Cell]]:
    """(launch number, cell) in the order of running. One launch a cell: the catalogue's order. More: round by round,
    each round in an order of its own drawn by seed, so that a slow drift of the machine falls on all cells alike."""
    if launches == 1:
        return [(1, cell) for cell in cells]
    ordered: list[tuple[int, Cell]] = []
    for number in range(1, launches + 1):
        last = ordered[-1][1].framework if ordered else ""
        ordered += [(number, cell) for cell in _alternate(cells, random.Random(f"{seed}/{number}"), last)]
    return ordered


def _alternate(cells: Sequence[Cell], generator: random.Random, last: str) -> list[Cell]:
    """The cells shuffled, no two of one framework in a row as long as there is a choice: the framework with most cells
    left goes first, which never paints itself into a corner."""
    waiting: dict[str, list[Cell]] = {}
    for cell in generator.sample(cells, len(cells)):
        waiting.setdefault(cell.framework, []).append(cell)
    ordered: list[Cell] = []
    while waiting:
        choice = [name for name in waiting if name != last] or list(waiting)
        last = max(choice, key=lambda name: (len(waiting[name]), generator.random()))
        ordered.append(waiting[last].pop())
        if not waiting[last]:
            del waiting[last]
    return ordered
