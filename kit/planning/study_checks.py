"""Check a study's file against the catalog: names, values, and that its published figures are there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Self

from kit.model.environment import Framework
from kit.model.errors import UsageError, unknown
from kit.model.formatting import format_count
from kit.model.swept import SWEPT
from kit.planning.selection import DEFAULT_VARIANT, Selection
from kit.planning.study_cells import cells_of, epochs_of, merged, place_of
from kit.planning.study_figures import Figure, figures_of
from kit.planning.study_files import CURVES, PublishedFigures, StudyCells, StudyFile, StudyPart
from kit.planning.study_measures import MEASURES
from scenarios.catalog import Scenarios
from scenarios.contract.cell import Cell

Places = dict[str, dict[Cell, int]]  # by name of the selection: places and their epochs

VARIED = ("variant", "device", *SWEPT)  # fields in which the places of a scenario differ
MAX_NAMED = 4  # places in a message
ABOVE_0 = "Give a value above 0. Only shares, accuracies, losses and GPU measures can be 0."


class Published(NamedTuple):
    """A published figure, and its group in the file. position: of the group."""

    position: int
    group: PublishedFigures
    figure: Figure


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
    for a published figure that is missing or that no cell of the study can have."""
    places: Places = {}
    for name, chosen in file.cells.items():
        _check_cells(("cells", name), chosen, scenarios, frameworks)
        cells = cells_of(chosen, Selection(), scenarios, frameworks)
        places[name] = {place_of(cell): epochs_of(chosen, cell, scenarios) for cell in cells}
    for index, group in enumerate(file.published):
        _check_published(("published", index), group, file, scenarios)
    found = [
        Published(index, group, f)
        for index, group in enumerate(file.published)
        for f in figures_of(group, file, scenarios)
    ]
    _check_each_once(found)
    _check_values(found)
    _check_measurable(found, places)
    for index, part in enumerate(file.parts):
        _check_part(("parts", index), part, file, [each.figure for each in found], places)
        _check_axes(("parts", index), part, merged(places[name] for name in part.cells or places))
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


def _check_each_once(published: Iterable[Published]) -> None:
    """Raise Fault if two groups have the same figure."""
    seen: set[tuple[object, ...]] = set()
    for index, _, figure in published:
        if figure.identity in seen:
            message = f"A published figure of {figure.measure} is there twice."
            raise Fault(("published", index), message, "Remove one of them.")
        seen.add(figure.identity)


def _check_values(published: Iterable[Published]) -> None:
    """Raise Fault for a range whose ends are in the wrong order, a value that nothing can have, and a time, speed or
    speedup of 0."""
    for index, group, figure in published:
        path = ("published", index, "values" if group.over else "value")
        if figure.low > figure.high:
            message = f"A range of {figure.measure} is from {figure.low:g} to {figure.high:g}."
            raise Fault(path, message, "Give the smaller end first.")
        unit = MEASURES[figure.measure].unit
        if figure.low < 0 or (unit in {"s", "ms", "images/s", "ratio"} and not figure.low):
            raise Fault(path, f"{figure.measure} is {MEASURES[figure.measure].exact(figure.low, figure.low)}.", ABOVE_0)
        if unit in {"share", "accuracy"} and figure.high > 1:
            message = f"{figure.measure} is {figure.high:g}, but a share is at most 1."
            raise Fault(path, message, "Give it as a fraction. For example, 90% is 0.9.")


def _check_measurable(published: Iterable[Published], places: Places) -> None:
    """Raise Fault for a published figure at a place, or after a number of epochs, that no selection has."""
    own = merged(places.values())
    for index, group, figure in published:
        on_gpu = MEASURES[figure.measure].need == "gpu"
        usable = [place for place in own if place.device == "cuda" or not on_gpu]
        at = [own[place] for place in usable if figure.is_on(place)]
        path = ("published", index)
        if not at:
            raise _nowhere(path, group, figure, usable)
        words = _words(figure.place, named=figure.named)
        if figure.epoch and figure.epoch > max(at):
            raise Fault(
                (*path, "values" if group.over == "epoch" else "epoch"),
                f"{figure.measure} is published for epoch {figure.epoch}, but the study trains {words} for "
                f"{format_count(max(at), 'epoch')}.",
                "Correct the epoch, or `epochs` of the selection.",
            )
        if figure.measure == "training_s" and not max(at):
            raise Fault(
                (*path, "measure"),
                f"A training time is published for {words}, but the study measures only its speed.",
                "Remove `epochs = 0` from the selection, or remove the figure.",
            )


def _nowhere(path: tuple[str | int, ...], group: PublishedFigures, figure: Figure, usable: Iterable[Cell]) -> Fault:
    """Return the fault of a figure that no place can have. It names the nearest places, at the first wrong field."""

    def differences(place: Cell) -> list[str]:
        fields = [name for name in VARIED if figure.named or name != "device"]
        return [name for name in fields if getattr(place, name) != getattr(figure.place, name)]

    near = sorted((p for p in usable if p.scenario == figure.place.scenario), key=lambda p: len(differences(p)))
    wrong = next(iter(differences(near[0])), "") if near else ""
    others = f", and {len(near) - MAX_NAMED} others" if len(near) > MAX_NAMED else ""
    have = f"They have {'; '.join(map(_words, near[:MAX_NAMED]))}{others}." if near else "They have no such cell."
    return Fault(
        (*path, "values" if wrong == group.over else wrong),
        f"No selection of cells can measure {figure.measure} of {_words(figure.place, named=figure.named)}.",
        f"{have} Correct the figure, or add a selection.",
    )


def _words(place: Cell, *, named: bool = True) -> str:
    """Return what distinguishes a place, for example `mnist-cnn on cpu, batch 64`. named: name the device, too."""
    swept = [f"{name.replace('_', ' ')} {value}" for name in SWEPT if (value := getattr(place, name)) is not None]
    return ", ".join([f"{place.label} on {place.device}" if named else place.label, *swept])


def _check_part(
    path: tuple[str | int, ...], part: StudyPart, file: StudyFile, found: Iterable[Figure], places: Places
) -> None:
    for name in part.cells:
        _known((*path, "cells"), "selection of cells", name, file.cells)
    for measure in part.measures:
        _known((*path, "measures"), "measure", measure, MEASURES)
    for name in part.cells or file.cells:
        if file.cells[name].epochs == 0 and ("epochs" in part.needs or "training_s" in part.shown):
            raise Fault(
                ("cells", name, "epochs"),
                f"{part.title!r:.100} shows a whole training, but the selection {name} measures only the speed.",
                "Remove `epochs = 0`, or name other `cells` for the part.",
            )
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


def _check_axes(path: tuple[str | int, ...], part: StudyPart, places: Iterable[Cell]) -> None:
    """Raise Fault if the cells of a chart do not vary one of its axes, or vary a field without an axis.

    The cells of each network and kind of device have charts of their own.
    """
    axes = [axis for axis in ("x", "y") if getattr(part, axis)]
    if not axes:
        return
    title = f"{part.title!r:.100}"
    if part.x == part.y:
        raise Fault((*path, "y"), f"{title} has {part.x} on both axes.", "Choose another field for one of them.")
    charts: dict[str, list[Cell]] = {}
    for place in places:
        charts.setdefault(f"{place.label} on {place.device}", []).append(place)
    for cells, own in charts.items():
        varied = [name for name in SWEPT if len({getattr(place, name) for place in own}) > 1]
        for axis in axes:
            if (name := getattr(part, axis)) not in varied:
                raise Fault(
                    (*path, axis),
                    f"{title} is drawn over {name}, but the cells of {cells} do not vary it.",
                    f"They vary {', '.join(varied) or 'nothing'}. Name other `cells`, or add values of {name} to them.",
                )
            if name == "workers" and any(place.workers is None for place in own):
                raise Fault(
                    (*path, axis),
                    f"{title} is drawn over workers, but some cells of {cells} do not set them.",
                    "Name other `cells`, or add values of workers to all of them.",
                )
        for name in varied:
            if name not in {part.x, part.y}:
                raise Fault(
                    (*path, "cells"),
                    f"{title} has no axis for {name}, but the cells of {cells} vary it.",
                    f"Name `cells` that have one value of {name}.",
                )
