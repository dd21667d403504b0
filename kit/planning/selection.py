"""Select cells by the names of their parts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar, get_args

from kit.model.environment import Framework
from kit.model.errors import UsageError, unknown
from kit.planning.catalog import DEVICES
from scenarios.catalog import Scenarios, scenario_of
from scenarios.contract.cell import MAX_HIDDEN_LAYERS, MAX_WORKERS, Cell, Lane, Precision
from scenarios.spec import DATASETS, Scenario, hidden_layers, loads_photos, with_hidden_layers

T = TypeVar("T", bound=str)

DEFAULT_VARIANT = "default"  # users' name for the variant ""
LANES: tuple[Lane, ...] = get_args(Lane)
PRECISIONS: tuple[Precision, ...] = get_args(Precision)


@dataclass(frozen=True)
class Selection:
    """What the user selected, by name.

    None is the default: all scenarios and frameworks, default variants, both devices, the stock lane, fp32, and the
    batch size, hidden layers and loader workers of each scenario and framework. studies: instead of scenarios, variants
    and sweeps, see `kit.planning.studies`.
    """

    scenarios: tuple[str, ...] | None = None
    variants: tuple[str, ...] | None = None
    frameworks: tuple[str, ...] | None = None
    devices: tuple[str, ...] | None = None
    lanes: tuple[str, ...] | None = None
    precisions: tuple[str, ...] | None = None
    batches: tuple[int, ...] | None = None
    workers: tuple[int, ...] | None = None
    hidden_layers: tuple[int, ...] | None = None
    studies: tuple[str, ...] | None = None


def pick(kind: str, wanted: Sequence[str] | None, known: Sequence[T], default: Sequence[T]) -> list[T]:
    """Return the wanted names in the order of `known`, or `default` if wanted is None.

    Raise UsageError for an unknown name.
    """
    for name in wanted or ():
        if name not in known:
            raise unknown(kind, name, known)
    return list(default) if wanted is None else [name for name in known if name in wanted]


def largest_batch(scenario: Scenario) -> int:
    """Return the largest batch size of a scenario: the number of training images."""
    return DATASETS[scenario.dataset].train


def select_cells(selection: Selection, scenarios: Scenarios, frameworks: Mapping[str, Framework]) -> list[Cell]:
    """Return the selected cells in the order of the catalog. The framework changes fastest.

    Raise UsageError for an unknown name, for a number out of range, and for a number that a selected scenario does not
    have.
    """
    chosen = _chosen_scenarios(selection, scenarios)
    for scenario in chosen:
        _check_sweeps(selection, scenario)
    devices = pick("device", selection.devices, DEVICES, DEVICES)
    lanes = pick("lane", selection.lanes, LANES, LANES[:1])
    precisions = pick("precision", selection.precisions, PRECISIONS, PRECISIONS[:1])
    names = pick("framework", selection.frameworks, list(frameworks), list(frameworks))
    return [
        Cell(scenario.name, scenario.variant, framework, device, 1, lane, precision, batch, workers, hidden)
        for scenario in chosen
        for device in devices
        for lane in lanes
        for precision in precisions
        for batch in dict.fromkeys(selection.batches or (scenario.batch,))
        for workers in dict.fromkeys(selection.workers or (None,))
        for hidden in _hidden_layers(selection, scenario)
        for framework in names
    ]


def _check_sweeps(selection: Selection, scenario: Scenario) -> None:
    """Raise UsageError for a number that is out of range or that the scenario does not have."""
    images = largest_batch(scenario)
    for option, values, highest, why in (
        ("--batch", selection.batches, images, f" (the number of training images of {scenario.name})"),
        ("--workers", selection.workers, MAX_WORKERS, ""),
        ("--hidden-layers", selection.hidden_layers, MAX_HIDDEN_LAYERS, ""),
    ):
        if wrong := [value for value in values or () if not 1 <= value <= highest]:
            raise UsageError(
                f"{option} must be between 1 and {highest:,}{why}, but is {wrong[0]:,}.",
                f"Choose a value in this range, or remove {option} to use the default.",
            )
    if selection.workers and not loads_photos(scenario):
        raise UsageError(
            f"--workers applies to scenarios that load photos, but {scenario.label} has its images in memory.",
            "Select other scenarios, or remove --workers.",
        )
    if selection.hidden_layers:
        try:
            with_hidden_layers(scenario, 1)
        except ValueError as error:
            raise UsageError(f"{error}.", "Select other scenarios, or remove --hidden-layers.") from error


def _hidden_layers(selection: Selection, scenario: Scenario) -> list[int | None]:
    """Return the numbers of hidden layers, None for that of the scenario, so that its cell has only one key."""
    wanted = dict.fromkeys(selection.hidden_layers or ())
    return [None if count == hidden_layers(scenario) else count for count in wanted] or [None]


def narrow_cells(selection: Selection, cells: Sequence[Cell], scenarios: Scenarios, run: str) -> list[Cell]:
    """Return the cells that have the selected names. A default of the selection selects everything.

    run: whose cells these are. Raise UsageError if a selected name has no cell.
    """

    def depth(cell: Cell) -> int | None:
        scenario = scenario_of(cell, scenarios)
        return hidden_layers(scenario) if scenario else None

    parts: tuple[tuple[str, Sequence[str | int] | None, Callable[[Cell], str | int | None]], ...] = (
        ("--scenario", selection.scenarios, lambda cell: cell.scenario),
        ("--variant", selection.variants, lambda cell: cell.variant or DEFAULT_VARIANT),
        ("--framework", selection.frameworks, lambda cell: cell.framework),
        ("--device", selection.devices, lambda cell: cell.device),
        ("--lane", selection.lanes, lambda cell: cell.lane),
        ("--precision", selection.precisions, lambda cell: cell.precision),
        ("--batch", selection.batches, lambda cell: cell.batch),
        ("--workers", selection.workers, lambda cell: cell.workers),
        ("--hidden-layers", selection.hidden_layers, depth),
    )
    chosen = [cell for cell in cells if all(wanted is None or name(cell) in wanted for _, wanted, name in parts)]
    for among, suffix in ((cells, ""), (chosen, " and the other selected names")):
        for option, wanted, name in parts:
            if missing := sorted({*map(str, wanted or ())} - {str(name(cell)) for cell in among}):
                raise UsageError(
                    f"The run {run} has no ok launch of a cell with {option} {missing[0]:.100}{suffix}.",
                    f"Select cells that are ok in that run. `kit report {run}` shows them.",
                )
    return chosen


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
