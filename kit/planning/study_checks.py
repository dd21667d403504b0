"""Check a study's file against the catalog: names, values, and that its published figures are there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Self

from kit.model.environment import Framework
from kit.model.errors import UsageError, unknown
from kit.planning.selection import DEFAULT_VARIANT, Selection, select_cells
from kit.planning.study_figures import Figure, figures
from kit.planning.study_files import CURVES, PublishedFigures, StudyCells, StudyFile, StudyPart
from kit.planning.study_measures import MEASURES
from scenarios.catalog import Scenarios

SWEPT = ("batch", "workers", "hidden_layers")


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


def check(file: StudyFile, scenarios: Scenarios, frameworks: Mapping[str, Framework]) -> None:
    """Raise Fault for a name that does not exist, a value out of range, and a published figure that is missing."""
    for name, chosen in file.cells.items():
        _check_cells(("cells", name), chosen, scenarios, frameworks)
    for index, group in enumerate(file.published):
        _check_published(("published", index), group, file, scenarios)
    found = list(figures(file, scenarios))
    _check_each_once(file, scenarios)
    for index, part in enumerate(file.parts):
        _check_part(("parts", index), part, file, found)


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
    network = Selection(scenarios=(chosen.scenario,), variants=tuple(chosen.variants))
    for name, field in zip(SWEPT, ("batches", "workers", "hidden_layers"), strict=True):
        values = getattr(chosen, name)
        try:
            select_cells(_with(network, field, tuple(values)), scenarios, frameworks)
        except UsageError as error:
            option = f"--{name.replace('_', '-')}"
            raise Fault(
                (*path, name), error.message.replace(option, name), error.remedy.replace(option, name)
            ) from error


def _with(network: Selection, field: str, values: tuple[int, ...]) -> Selection:
    return Selection(**{**vars(network), field: values or None})


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
    """Raise Fault if two groups have a figure of the same measure at the same place and hardware."""
    seen: set[tuple[object, ...]] = set()
    for index, group in enumerate(file.published):
        for figure in figures(file.model_copy(update={"published": [group]}), scenarios):
            key = tuple(value for name, value in vars(figure).items() if name not in {"low", "high"})
            if key in seen:
                raise Fault(
                    ("published", index),
                    f"A published figure of {figure.measure} is there twice.",
                    "Remove one of both.",
                )
            seen.add(key)


def _check_part(path: tuple[str | int, ...], part: StudyPart, file: StudyFile, found: Iterable[Figure]) -> None:
    for name in part.cells:
        _known((*path, "cells"), "selection of cells", name, file.cells)
    for measure in part.measures:
        _known((*path, "measures"), "measure", measure, MEASURES)
    if not part.published:
        return
    chosen = [file.cells[name] for name in part.cells] or list(file.cells.values())
    there = {figure.measure for figure in found if any(map(figure.belongs_to, chosen))}
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
