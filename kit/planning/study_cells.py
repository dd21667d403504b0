"""Select the cells of studies, each once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kit.model.environment import Framework
from kit.model.errors import UsageError
from kit.planning.selection import Selection, pick, select_cells
from kit.planning.studies import Study, find
from kit.planning.study_files import StudyCells
from scenarios.catalog import Scenarios
from scenarios.contract.cell import Cell


def study_cells(
    selection: Selection, studies: Mapping[str, Study], scenarios: Scenarios, frameworks: Mapping[str, Framework]
) -> dict[Cell, int | None]:
    """Return the union of the cells of the selected studies, each with its epochs in the full profile.

    They are None if they are those of the scenario. If several studies train a cell, it trains the largest of their
    numbers. selection: names studies. Its frameworks and devices narrow their cells. Its lanes and precisions replace
    those of the studies. Raise UsageError for an unknown name, and if nothing is left.
    """
    for name in selection.frameworks or ():
        pick("framework", [name], list(frameworks), [])
    found: dict[Cell, int] = {}
    for name in selection.studies or ():
        for chosen in find(name, studies).file.cells.values():
            for cell in _cells(chosen, selection, scenarios, frameworks):
                epochs = chosen.epochs or scenarios[cell.scenario][cell.variant].epochs
                found[cell] = max(epochs, found.get(cell, 0))
    if not found:
        raise UsageError(
            f"The studies {', '.join(selection.studies or ())} have no cell with the selected names.",
            "Remove --framework or --device. `kit study show NAME` lists the cells.",
        )
    return {
        cell: None if count == scenarios[cell.scenario][cell.variant].epochs else count for cell, count in found.items()
    }


def _cells(
    chosen: StudyCells, selection: Selection, scenarios: Scenarios, frameworks: Mapping[str, Framework]
) -> list[Cell]:
    names = _narrowed(chosen.frameworks or list(frameworks), selection.frameworks)
    devices = _narrowed(chosen.devices or ["cpu", "cuda"], selection.devices)
    if not (names and devices):
        return []
    own = replace(
        selection,
        studies=None,
        scenarios=(chosen.scenario,),
        variants=tuple(chosen.variants),
        frameworks=names,
        devices=devices,
        lanes=selection.lanes or tuple(chosen.lanes),
        batches=tuple(chosen.batch) or None,
        workers=tuple(chosen.workers) or None,
        hidden_layers=tuple(chosen.hidden_layers) or None,
    )
    return select_cells(own, scenarios, frameworks)


def _narrowed(own: Sequence[str], wanted: Sequence[str] | None) -> tuple[str, ...]:
    return tuple(name for name in own if wanted is None or name in wanted)
