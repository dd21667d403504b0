"""Select cells by the names of their parts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar, get_args

from kit.model.environment import Framework
from kit.model.errors import UsageError, unknown
from kit.planning.catalog import DEVICES
from scenarios.catalog import Scenarios
from scenarios.contract.cell import Cell, Lane, Precision
from scenarios.spec import DATASETS, Scenario

T = TypeVar("T", bound=str)

DEFAULT_VARIANT = "default"  # users' name for the variant ""
LANES: tuple[Lane, ...] = get_args(Lane)
PRECISIONS: tuple[Precision, ...] = get_args(Precision)


@dataclass(frozen=True)
class Selection:
    """What the user selected, by name.

    None is the default: all scenarios and frameworks, default variants, both devices, the stock lane, fp32, and the
    batch size of each scenario.
    """

    scenarios: tuple[str, ...] | None = None
    variants: tuple[str, ...] | None = None
    frameworks: tuple[str, ...] | None = None
    devices: tuple[str, ...] | None = None
    lanes: tuple[str, ...] | None = None
    precisions: tuple[str, ...] | None = None
    batches: tuple[int, ...] | None = None


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

    Raise UsageError for an unknown name, and for a batch size that is less than 1 or larger than the training set.
    """
    chosen = _chosen_scenarios(selection, scenarios)
    for scenario in chosen:
        images = largest_batch(scenario)
        if wrong := [batch for batch in selection.batches or () if not 1 <= batch <= images]:
            raise UsageError(
                f"--batch must be between 1 and {images:,} (the number of training images of {scenario.name}), but is "
                f"{wrong[0]:,}.",
                "Choose a value in this range, or remove --batch to use the default.",
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


def narrow_cells(selection: Selection, cells: Sequence[Cell], run: str) -> list[Cell]:
    """Return the cells that have the selected names. A default of the selection selects everything.

    run: whose cells these are. Raise UsageError if a selected name has no cell.
    """
    parts: tuple[tuple[str, Sequence[str | int] | None, Callable[[Cell], str | int]], ...] = (
        ("--scenario", selection.scenarios, lambda cell: cell.scenario),
        ("--variant", selection.variants, lambda cell: cell.variant or DEFAULT_VARIANT),
        ("--framework", selection.frameworks, lambda cell: cell.framework),
        ("--device", selection.devices, lambda cell: cell.device),
        ("--lane", selection.lanes, lambda cell: cell.lane),
        ("--precision", selection.precisions, lambda cell: cell.precision),
        ("--batch", selection.batches, lambda cell: cell.batch),
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
