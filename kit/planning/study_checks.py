"""Check a study's file against the catalog: names, values, and that its published figures are there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Self

from kit.model.environment import Framework
from kit.model.errors import UsageError, unknown
from kit.model.swept import SWEPT
from kit.planning.selection import DEFAULT_VARIANT, Selection
from kit.planning.study_cells import cells_of, epochs_of, place_of
from kit.planning.study_figures import Figure, figures, figures_of
from kit.planning.study_files import CURVES, PublishedFigures, StudyCells, StudyFile, StudyPart
from kit.planning.study_measures import MEASURES
from scenarios.catalog import Scenarios
from scenarios.contract.cell import Cell

Places = dict[str, dict[Cell, int]]  # by name of the selection: places and their epochs


class Fault(Exception):
    """A part of a study's file is wrong. path: its keys, and positions in arrays."""

    def __init__(self, path: Iterable[str | int], message: str, remedy: str) -> None:
        super().__init__(message)
        self.path = tuple(path)
        self.message = message
        self.remedy = remedy

    @classmethod
    def of(cls, path: Iterable[str | int], error: UsageError) -> Self:
        """Return the fault of an error."""
        return cls(path, error.message, error.remedy)


def check(file: StudyFile, scenarios: Scenarios, frameworks: Mapping[str, Framework]) -> Places:
    """Return the places of each selection. Raise Fault for a name that does not exist, for a value out of range, and
    for a published figure that is missing."""
    places: Places = {}
    for name, chosen in file.cells.items():
        _check_cells(("cells", name), chosen, scenarios, frameworks)
        cells = cells_of(chosen, Selection(), scenarios, frameworks)
        places[name] = {place_of(cell): epochs_of(chosen, cell, scenarios) for cell in cells}
    for index, group in enumerate(file.published):
        _check_published(("published", index), group, file, scenarios)
    found = list(figures(file, scenarios))
    _check_each_once(file, scenarios)
    for index, part in enumerate(file.parts):
        _check_part(("parts", index), part, file, found, places)
    return places


def _known(path: tuple[str | int, ...], kind: str, name: str, known: Iterable[str]) -> None:
    names = list(known)
    if name not in names:
        raise Fault.of(path, unknown(kind, name, names))


def _check_cells(
    path: tuple[str | int, ...], chosen: StudyCells, scenarios: Scenarios, frameworks: Mapping[str, Framework]
) -> None:
    _known((*path, "scenario"), "scenario", chosen.scenario, scenarios)
    offered = [variant or DEFAULT_VARIANT for variant in scenarios[chosen.scenario]]
    for variant in chosen.variants:
        _known((*path, "variants"), f"variant of {chosen.scenario}", variant, offered)
    for framework in chosen.frameworks:
        _known((*path, "frameworks"), "framework", framework, frameworks)
    for name in SWEPT:
        alone = chosen.model_copy(update={other: [] for other in SWEPT if other != name})
        try:
            cells_of(alone, Selection(), scenarios, frameworks)
        except UsageError as error:
            option = f"--{name.replace('_', '-')}"
            message, remedy = error.message.replace(option, name), error.remedy.replace(option, name)
            raise Fault((*path, name), message, remedy) from error


def _check_published(
    path: tuple[str | int, ...], group: PublishedFigures, file: StudyFile, scenarios: Scenarios
) -> None:
    _known((*path, "measure"), "measure", group.measure, MEASURES)
    _known((*path, "scenario"), "scenario of this study", group.scenario, {c.scenario for c in file.cells.values()})
    offered = [variant or DEFAULT_VARIANT for variant in scenarios[group.scenario]]
    _known((*path, "variant"), f"variant of {group.scenario}", group.variant, offered)
    for variant in (group.values or ()) if group.over == "variant" else ():
        _known((*path, "values"), f"variant of {group.scenario}", variant, offered)
    if (group.epoch or group.over == "epoch") and group.measure not in {*CURVES, "epoch_s"}:
        raise Fault(
            path,
            f"{group.measure} has no value for a single epoch.",
            f"Choose from: {', '.join(sorted({*CURVES, 'epoch_s'}))}. Or remove the epoch.",
        )


def _check_each_once(file: StudyFile, scenarios: Scenarios) -> None:
    """Raise Fault if two groups have the same figure."""
    seen: set[tuple[object, ...]] = set()
    for index, group in enumerate(file.published):
        for figure in figures_of(group, group.hardware, scenarios):
            if figure.identity in seen:
                message = f"A published figure of {figure.measure} is there twice."
                raise Fault(("published", index), message, "Remove one of both.")
            seen.add(figure.identity)


def _check_part(
    path: tuple[str | int, ...], part: StudyPart, file: StudyFile, found: Iterable[Figure], places: Places
) -> None:
    for name in part.cells:
        _known((*path, "cells"), "selection of cells", name, file.cells)
    for measure in part.measures:
        _known((*path, "measures"), "measure", measure, MEASURES)
    if not part.published:
        return
    own = [place for name in part.cells or file.cells for place in places[name]]
    there = {figure.measure for figure in found if any(map(figure.is_near, own))}
    if part.kind == "curves":
        missing = [] if there & set(CURVES) else ["the learning curves"]
    else:
        missing = [measure for measure in part.measures if measure not in there]
    if missing:
        raise Fault(
            (*path, "published"),
            f"{part.title!r:.100} asks for published figures of {missing[0]}, but its cells have none.",
            f"Their published figures are of: {', '.join(sorted(there)) or 'nothing'}. Add the figures, or remove "
            f"`published`.",
        )
