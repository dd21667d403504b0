"""Make a plan: the ordered launches of a selection. This module only computes."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from kit.model.data_choice import DataChoice
from kit.model.environment import Framework
from kit.model.errors import UsageError
from kit.model.formatting import format_bytes, format_duration
from kit.model.plan import (
    MAX_EPOCHS,
    MAX_LAUNCHES,
    MAX_MEMORY_BYTES,
    MAX_ROUNDS,
    MAX_S,
    MAX_STUDIES,
    MAX_THREADS,
    MIN_MEMORY_BYTES,
    MIN_S,
    Plan,
    PlannedLaunch,
    block_of,
)
from kit.planning.estimates import planned_seconds
from kit.planning.profiles import MAX_TUNE_S, Profile, find_profile
from kit.planning.selection import Selection, select_cells
from kit.planning.studies import Study, select_studies
from scenarios.catalog import Scenarios
from scenarios.contract.cell import Cell
from scenarios.contract.ranges import MAX_SEED

# The default timeout of a launch is this base plus this factor times its estimate, because machines differ a lot in
# speed. A search ends on its own, so its longest time needs no factor.
TIMEOUT_BASE_S = 600.0
TIMEOUT_FACTOR = 4.0

# Default time budget of the standard profile: the planned launches of all stock cells on two cores, and some more.
DEFAULT_BUDGET_S = 5400.0


@dataclass(frozen=True)
class Options:
    """How to run a selection. None stands for a default.

    engine: name of the engine. environment: interpreter of `--env`, or "". epochs: only for the full profile; default:
    the published number. budget_s, pinned: see Plan. timeout_s: limit for one launch; default: from an estimate.
    memory_bytes, threads, gpus: default: what the machine has when the run starts. tune_s: duration of the search for
    the settings of one cell; default: a minute, or more if processes start slowly. rounds: number of launches of each
    cell; default: that of the profile, which may then add more. keep_weights: see Plan.
    """

    engine: str
    environment: str = ""
    profile: str = "quick"
    seed: int = 0
    data: DataChoice = "auto"
    epochs: int | None = None
    budget_s: float | None = None
    timeout_s: float | None = None
    memory_bytes: int | None = None
    threads: int | None = None
    gpus: str | None = None
    identify: bool = False
    tune_s: float | None = None
    pinned: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    rounds: int | None = None
    keep_weights: bool = True


def make_plan(
    selection: Selection,
    options: Options,
    scenarios: Scenarios,
    frameworks: Mapping[str, Framework],
    *,
    run: str,
    created_at: str,
    studies: Mapping[str, Study] = MappingProxyType({}),
) -> Plan:
    """Return the plan of a run. run: id of the run. created_at: UTC, ISO 8601. studies: those that can be selected.

    Raise UsageError for an unknown name, for a number out of range, and for options that contradict each other.
    """
    named = selection.devices is not None
    if selection.studies is None:
        cells = select_cells(selection, scenarios, frameworks)
        return plan_cells(cells, options, scenarios, named=named, run=run, created_at=created_at)
    names = [*dict.fromkeys(selection.studies)]
    if len(names) > MAX_STUDIES:
        raise UsageError(f"{len(names):,} studies are more than a run can have, {MAX_STUDIES}.", "Select fewer.")
    epochs = select_studies(selection, studies, scenarios, frameworks)
    plan = plan_cells([*epochs], options, scenarios, named=named, run=run, created_at=created_at, epochs=epochs)
    return plan.model_copy(update={"studies": names})


def plan_cells(
    cells: Sequence[Cell],
    options: Options,
    scenarios: Scenarios,
    *,
    named: bool,
    run: str,
    created_at: str,
    epochs: Mapping[Cell, int | None] = MappingProxyType({}),
) -> Plan:
    """Return the plan of a run of these cells. named: whether a cell that cannot run is an error. epochs: of the full
    profile, for cells whose number is not that of the scenario; 0 to measure only their speed.

    Raise UsageError for a number out of range, and for options that contradict each other.
    """
    profile = find_profile(options.profile)
    _check_numbers(options, cells, profile)
    rounds = options.rounds or profile.launches
    if (count := len(cells) * rounds) > MAX_LAUNCHES:
        raise UsageError(
            f"The selection has {count:,} launches, but a run has at most {MAX_LAUNCHES:,}.",
            "Select fewer cells or rounds.",
        )
    whole = profile.budget is None  # launches train whole epochs
    launches = [
        PlannedLaunch(cell=cell, launch=number, named=named, epochs=epochs.get(cell) if whole else None)
        for number, cell in _order(cells, rounds, options.seed)
    ]
    longest = max(planned_seconds(launch, profile, options.epochs, scenarios) for launch in launches)
    pinned = _pinned(options, cells)
    searches = any(cell.lane == "tuned" and cell.key not in pinned for cell in cells)
    search_s = (options.tune_s or MAX_TUNE_S) if searches else 0.0
    return Plan(
        run=run,
        created_at=created_at,
        profile=profile.name,
        engine=options.engine,
        environment=options.environment,
        seed=options.seed,
        data=options.data,
        epochs=options.epochs,
        budget_s=options.budget_s or (DEFAULT_BUDGET_S if profile.precise and not options.rounds else None),
        timeout_s=options.timeout_s or min(TIMEOUT_BASE_S + max(TIMEOUT_FACTOR * longest, search_s), MAX_S),
        memory_bytes=options.memory_bytes,
        threads=options.threads,
        gpus=options.gpus,
        identify=options.identify,
        launches=launches,
        tune_s=options.tune_s,
        pinned=pinned,
        rounds=options.rounds,
        keep_weights=options.keep_weights,
    )


def _check_numbers(options: Options, cells: Sequence[Cell], profile: Profile) -> None:
    if options.epochs is not None and profile.budget is not None:
        raise UsageError(
            f"--epochs does not apply to the profile {profile.name}, because it does not train whole epochs.",
            "Add --profile full, or remove --epochs.",
        )
    if not options.keep_weights and profile.budget is not None:
        raise UsageError(
            f"--no-weights does not apply to the profile {profile.name}, which keeps no weights.",
            "Add --profile full, or remove --no-weights.",
        )
    if options.budget_s is not None and not profile.precise:
        raise UsageError(
            f"--budget does not apply to the profile {profile.name}, because its number of launches is fixed.",
            "Add --profile standard, or remove --budget.",
        )
    if options.budget_s is not None and options.rounds is not None:
        raise UsageError(
            "--budget does not apply to a fixed number of rounds.", "Remove --budget, or --rounds and --against."
        )
    if options.tune_s is not None and all(cell.lane != "tuned" for cell in cells):
        raise UsageError("--tune does not apply to the stock lane.", "Add --lane tuned, or remove --tune.")
    if options.rounds is not None:
        check_rounds(options.rounds)
    ranges: tuple[tuple[str, float | None, float, float, Callable[[float], str]], ...] = (
        ("--epochs", options.epochs, 1, MAX_EPOCHS, "{:,}".format),
        ("--timeout", options.timeout_s, MIN_S, MAX_S, format_duration),
        ("--tune", options.tune_s, MIN_S, MAX_S, format_duration),
        ("--budget", options.budget_s, MIN_S, MAX_S, format_duration),
        ("--memory", options.memory_bytes, MIN_MEMORY_BYTES, MAX_MEMORY_BYTES, format_bytes),
        ("--threads", options.threads, 1, MAX_THREADS, "{:,}".format),
        ("--seed", options.seed, 0, MAX_SEED, "{:,}".format),
    )
    for name, value, low, high, show in ranges:
        if value is not None:
            _check_range(name, value, low, high, show)


def check_rounds(rounds: int, at_least: int = 1) -> None:
    """Raise UsageError if a run cannot have this number of rounds, or if it is below `at_least`."""
    _check_range("--rounds", rounds, at_least, MAX_ROUNDS, "{:,}".format)


def check_timeout(seconds: float) -> None:
    """Raise UsageError if a launch cannot have this time limit."""
    _check_range("--timeout", seconds, MIN_S, MAX_S, format_duration)


def _check_range(name: str, value: float, low: float, high: float, show: Callable[[float], str]) -> None:
    if not low <= value <= high:
        raise UsageError(
            f"{name} must be between {show(low)} and {show(high)}, but is {show(value)}.",
            f"Choose a value in this range, or remove {name} to use the default.",
        )


def _pinned(options: Options, cells: Sequence[Cell]) -> dict[str, dict[str, str]]:
    """Return the pinned settings of planned cells.

    Raise UsageError if no planned cell has pinned settings, or if tune_s is set but all tuned cells have them.
    """
    pins, tuned = options.pinned, {cell.key for cell in cells if cell.lane == "tuned"}
    if pins and not tuned & pins.keys():
        raise UsageError(
            f"--settings is for {', '.join(f'{key!r:.100}' for key in list(pins)[:3])}, but this run has no such cell.",
            "Select these cells with --lane tuned, or remove --settings.",
        )
    if options.tune_s is not None and pins and tuned <= pins.keys():
        raise UsageError("--tune does not apply, because --settings has all tuned cells.", "Remove --tune.")
    return {key: dict(settings) for key, settings in pins.items() if key in tuned}


def _order(cells: Sequence[Cell], rounds: int, seed: int) -> list[tuple[int, Cell]]:
    """Return (launch number, cell) in the order of the run.

    With one launch per cell, this is the order of the catalog. With more, each round has the blocks in random order,
    and the cells of each block in random order.
    """
    if rounds == 1:
        return [(1, cell) for cell in cells]
    blocks: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        blocks.setdefault(block_of(cell), []).append(cell)
    ordered: list[tuple[int, Cell]] = []
    for number in range(1, rounds + 1):
        generator = random.Random(f"{seed}/{number}")
        for block in generator.sample([*blocks.values()], len(blocks)):
            ordered += [(number, cell) for cell in generator.sample(block, len(block))]
    return ordered
