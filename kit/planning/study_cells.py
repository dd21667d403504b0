"""Select the cells of a study's selections."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from kit.model.environment import Framework
from kit.planning.catalog import DEVICES
from kit.planning.selection import Selection, select_cells
from kit.planning.study_files import StudyCells
from scenarios.catalog import Scenarios
from scenarios.contract.cell import Cell


def place_of(cell: Cell) -> Cell:
    """Return the place of a cell in a study: the cell with no framework, in the stock lane and in fp32.

    Published figures belong to places, and the cells of all frameworks, lanes and precisions are compared with them.
    """
    return replace(cell, framework="", lane="stock", precision="fp32")


def cells_of(
    chosen: StudyCells, selection: Selection, scenarios: Scenarios, frameworks: Mapping[str, Framework]
) -> list[Cell]:
    """Return the cells of one selection of a study.

    selection: its frameworks and devices narrow the cells, its lanes and precisions replace those of the study. The
    list is empty if nothing is left. Raise UsageError for a value that the scenario does not have.
    """
    names = _narrowed(chosen.frameworks or list(frameworks), selection.frameworks)
    devices = _narrowed(chosen.devices or DEVICES, selection.devices)
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


def epochs_of(chosen: StudyCells, cell: Cell, scenarios: Scenarios) -> int:
    """Return how many epochs a selection of a study trains one of its cells, 0 if only its speed counts."""
    return scenarios[cell.scenario][cell.variant].epochs if chosen.epochs is None else chosen.epochs


def merged(selections: Iterable[Mapping[Cell, int]]) -> dict[Cell, int]:
    """Return the places of selections of a study, each with the largest of its numbers of epochs."""
    found: dict[Cell, int] = {}
    for places in selections:
        for place, epochs in places.items():
            found[place] = max(epochs, found.get(place, 0))
    return found


def _narrowed(own: Sequence[str], wanted: Sequence[str] | None) -> tuple[str, ...]:
    return tuple(name for name in own if wanted is None or name in wanted)
