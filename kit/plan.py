"""From a selection to an ordered list of launches, and what they will cost. Pure: nothing is looked up or run here."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar, get_args

from kit.catalog import DEVICES
from kit.errors import UsageError, unknown
from kit.model import Cell, Framework, Place, Scenarios
from kit.plausible import MOST_WHOLE
from kit.records import TUNE_S, Plan, PlannedLaunch
from kit.typical import PROBE_S, environment_cost, launch_seconds, search_seconds, start_seconds
from kit.units import format_bytes, format_duration
from scenarios.contract import Budget
from scenarios.spec import DATASETS, Scenario

T = TypeVar("T", bound=str)
Environments = Collection[Place]

DEFAULT_VARIANT = "default"  # how a person names the variant ""
LANES: tuple[str, ...] = get_args(PlannedLaunch.model_fields["lane"].annotation)
PRECISIONS: tuple[str, ...] = get_args(PlannedLaunch.model_fields["precision"].annotation)

MOST_SEED = 2**32 - 1  # what every framework's generators take

# A launch is killed after this much: a machine may be several times slower than the typical one.
DEADLINE_BASE_S = 600.0
DEADLINE_FACTOR = 4.0
# Of a precise profile, where nobody said: the planned launches of all stock cells on two cores, and some more.
DEFAULT_BUDGET_S = 5400.0


@dataclass(frozen=True)
class Profile:
    """How much a launch measures (budget; None: whole epochs, of which the scenario says how many), how many launches
    a cell gets, and what the profile is for.

    precise: cells get further launches until their intervals are narrow (kit.schedule). ceilings: the machine's
    ceilings are measured, too, before the cells.
    """

    name: str
    budget: Budget | None
    launches: int
    purpose: str
    precise: bool = False
    ceilings: bool = True


PROFILES: dict[str, Profile] = {
    p.name: p
    for p in (
        Profile("smoke", Budget(steps=20, test_images=200), 1, "does it work", ceilings=False),
        Profile("quick", Budget(seconds=6, test_images=1000), 1, "a first look in minutes"),
        Profile("standard", Budget(seconds=20), 5, "audits and comparisons", precise=True),
        Profile("full", None, 1, "accuracy, studies"),
    )
}


@dataclass(frozen=True)
class Selection:
    """What a person asked for, by name. None: the default, which is every scenario and framework, default variants,
    both devices, the stock lane, fp32, and each scenario's own batch size."""

    scenarios: tuple[str, ...] | None = None
    variants: tuple[str, ...] | None = None
    frameworks: tuple[str, ...] | None = None
    devices: tuple[str, ...] | None = None
    lanes: tuple[str, ...] | None = None
    precisions: tuple[str, ...] | None = None
    batches: tuple[int, ...] | None = None


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


@dataclass(frozen=True)
class Estimate:
    """seconds and disk_bytes in all; lines: how they come about, for people."""

    seconds: float
    disk_bytes: int
    lines: tuple[str, ...]


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
    cells = _cells(selection, scenarios, frameworks)
    named = selection.devices is not None
    launches = [
        PlannedLaunch(key=cell.key, launch=number, named=named, **vars(cell))
        for number, cell in _order(cells, profile.launches, options.seed)
    ]
    longest = max(_launch_seconds(launch, profile, options.epochs, scenarios) for launch in launches)
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


def find_profile(name: str) -> Profile:
    """The profile of that name. Raises UsageError."""
    if name not in PROFILES:
        raise unknown("profile", name, PROFILES)
    return PROFILES[name]


def find_scenario(launch: PlannedLaunch, scenarios: Scenarios) -> Scenario:
    """The catalogue's scenario of a planned launch. Raises UsageError where the catalogue has it no more."""
    variants = scenarios.get(launch.scenario, {})
    if launch.variant not in variants:
        raise UsageError(
            f"The plan has {launch.key}, which this kit's catalogue has not.",
            "Resume with the kit that made the plan, or start a new run.",
        )
    return variants[launch.variant]


def pick(kind: str, wanted: Sequence[str] | None, known: Sequence[T], default: Sequence[T]) -> list[T]:
    """The wanted ones of `known`, in its order; `default` where none is named. Raises UsageError for a name that is
    not among them."""
    for name in wanted or ():
        if name not in known:
            raise unknown(kind, name, known)
    return list(default) if wanted is None else [name for name in known if name in wanted]


def budget(profile: Profile, epochs: int | None, scenario: Scenario) -> Budget:
    """How much a launch of this scenario measures. epochs: overrides the published number in the full profile."""
    return profile.budget or Budget(epochs=epochs or scenario.epochs)


def estimate(plan: Plan, scenarios: Scenarios, ready: Environments = (), left_out: Environments = ()) -> Estimate:
    """Rough time and disk of a plan. ready: environments that exist already; left_out: those whose launches will be
    skipped. Downloads of data sets are not in it."""
    launches = [launch for launch in plan.launches if (launch.framework, launch.device) not in left_out]
    used = {(launch.framework, launch.device) for launch in launches}
    needed = sorted(used - set(ready))
    costs = [environment_cost(framework, device) for framework, device in needed]
    building_s, disk_bytes = sum(c.seconds for c in costs), sum(c.bytes for c in costs)
    profile = PROFILES[plan.profile]
    measuring_s = sum(_launch_seconds(launch, profile, plan.epochs, scenarios) for launch in launches)
    lines = [f"{_count(len(launches), 'launch', 'launches')}: about {format_duration(measuring_s)}"]
    if plan.budget_s is not None and plan.budget_s > measuring_s:
        lines.append(f"Further launches where intervals are wide, until {format_duration(plan.budget_s)} are spent")
        measuring_s = plan.budget_s
    if searched := {x.key: x for x in launches if x.lane == "tuned" and x.key not in plan.pinned}:
        tuning_s = sum(search_seconds(x.framework, x.device, plan.tune_s) for x in searched.values())
        count = _count(len(searched), "search", "searches")
        lines.append(f"{count} for settings, unless made before: about {format_duration(tuning_s)} with start-up")
        if plan.pinned:
            lines.append(f"Not in the file of settings, so searched: {', '.join(searched)}")
        measuring_s += tuning_s
    if profile.ceilings:
        probes = {(launch.framework, launch.device, launch.precision) for launch in launches}
        probing_s = sum(PROBE_S + start_seconds(framework, device) for framework, device, _ in probes)
        count = _count(len(probes), "probe", "probes")
        lines.append(f"{count} of this machine's ceilings: about {format_duration(probing_s)}")
        measuring_s += probing_s
    if needed:
        names = ", ".join(f"{framework} {device}" for framework, device in needed)
        lines.append(
            f"{_count(len(needed), 'environment', 'environments')} to make ({names}): about "
            f"{format_duration(building_s)}, {format_bytes(disk_bytes)} of disk"
        )
    return Estimate(measuring_s + building_s, disk_bytes, tuple(lines))


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
        if value is not None and value > MOST_WHOLE:
            raise UsageError(f"{name} is beyond every machine's numbers.", "Choose a smaller one.")
    if options.seed < 0:
        raise UsageError(f"--seed must not be negative, is {options.seed}.", "Leave it out for the default.")
    if options.seed > MOST_SEED:
        raise UsageError(f"--seed must be at most {MOST_SEED}, is {options.seed}.", "Choose a smaller one.")


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


def _cells(selection: Selection, scenarios: Scenarios, frameworks: Mapping[str, Framework]) -> list[Cell]:
    """The selected cells in the catalogue's order; the framework changes fastest."""
    chosen = _chosen_scenarios(selection, scenarios)
    for scenario in chosen:
        if max(selection.batches or (0,)) > (images := DATASETS[scenario.dataset].train):
            raise UsageError(
                f"--batch {max(selection.batches or ())} is more than the {images} training images of {scenario.name}.",
                "Choose a smaller one.",
            )
    devices = pick("device", selection.devices, DEVICES, DEVICES)
    lanes = pick("lane", selection.lanes, LANES, LANES[:1])
    precisions = pick("precision", selection.precisions, PRECISIONS, PRECISIONS[:1])
    names = pick("framework", selection.frameworks, list(frameworks), list(frameworks))
    return [
        Cell(scenario.name, scenario.variant, framework, device, 1, lane, precision, batch)
        for scenario in chosen
        for device in devices
        for lane in lanes
        for precision in precisions
        for batch in dict.fromkeys(selection.batches or (scenario.batch,))
        for framework in names
    ]


def _chosen_scenarios(selection: Selection, scenarios: Scenarios) -> list[Scenario]:
    names = pick("scenario", selection.scenarios, list(scenarios), list(scenarios))
    wanted = selection.variants or (DEFAULT_VARIANT,)
    offered = {name: [variant or DEFAULT_VARIANT for variant in scenarios[name]] for name in names}
    for variant in wanted:
        if not any(variant in variants for variants in offered.values()):
            raise unknown("variant", variant, {v for variants in offered.values() for v in variants})
    if selection.scenarios is not None:
        for name, variants in offered.items():
            if not set(variants) & set(wanted):
                raise unknown(f"variant of {name}", wanted[0], variants)
    return [
        scenario
        for name in names
        for variant, scenario in scenarios[name].items()
        if (variant or DEFAULT_VARIANT) in wanted
    ]


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


def _launch_seconds(launch: PlannedLaunch, profile: Profile, epochs: int | None, scenarios: Scenarios) -> float:
    scenario = find_scenario(launch, scenarios)
    limit = budget(profile, epochs, scenario)
    return launch_seconds(scenario, launch.framework, launch.device, launch.batch, limit)


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
