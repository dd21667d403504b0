"""Read and check the studies: the files `scenarios/studies/NAME.toml`."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from kit import assets
from kit.model.environment import Framework
from kit.model.errors import UsageError, unknown
from kit.planning import catalog
from kit.planning.selection import Selection, pick
from kit.planning.study_cells import cells_of, epochs_of, merged
from kit.planning.study_checks import Fault, check
from kit.planning.study_figures import Figure, figures
from kit.planning.study_files import (
    Hardware,
    PublishedFigures,
    StudyCells,
    StudyFile,
    StudyPart,
)
from kit.planning.toml_lines import line_of
from kit.storage.files import disk_errors
from kit.storage.safe_read import read_plain
from scenarios.catalog import Scenarios
from scenarios.contract.cell import Cell
from scenarios.contract.ranges import MAX_INT

NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,59}")
MAX_TEXT, MAX_LINE = 250_000, 2_000  # characters
REMEDY = "Correct the file. scenarios/studies/mnist-cpu-vs-gpu.toml is an example."
UNION = ("float", "list[float]")  # pydantic's names of the two forms of a figure, which are no keys
TABLES: Mapping[str, type[BaseModel]] = {
    "cells": StudyCells,
    "parts": StudyPart,
    "published": PublishedFigures,
    "hardware": Hardware,
}


T = TypeVar("T")


@dataclass(frozen=True)
class Study:
    """A published study.

    name: of its file, without the suffix. places: of each selection, by its name: the places of its cells (see
    `place_of`) with the number of epochs in the full profile. figures: the published ones, one by one.
    """

    name: str
    file: StudyFile
    places: Mapping[str, Mapping[Cell, int]]
    figures: tuple[Figure, ...]

    @property
    def command(self) -> str:
        """Return the command that repeats the study."""
        return f"kit run --study {self.name}"

    def uses(self, scenario: str, variant: str) -> bool:
        """Return whether the study has cells of a variant of a scenario. variant: "" for the default one."""
        networks = {(place.scenario, place.variant) for places in self.places.values() for place in places}
        return (scenario, variant) in networks

    def places_of(self, part: StudyPart) -> dict[Cell, int]:
        """Return the places that a part shows, with their epochs."""
        return merged(self.places[name] for name in part.cells or self.places)

    def published(self, measure: str, places: Iterable[Cell]) -> list[Figure]:
        """Return the published figures of a measure at these places, or at the same ones on other devices."""
        return [figure for figure in self.figures if figure.measure == measure and any(map(figure.is_near, places))]


def load_all() -> dict[str, Study]:
    """Return all studies by name, sorted. Raise UsageError if a file or the catalog is not valid."""
    return load(_files())


def load(names: Iterable[str]) -> dict[str, Study]:
    """Return the studies of these names. The files of others do not matter.

    Raise UsageError, with file and line, if a file is not valid, or for an unknown name. Raise DiskError if the folder
    cannot be read.
    """
    files, scenarios, frameworks = _files(), catalog.scenarios(), catalog.frameworks()
    return {name: read(find(name, files), scenarios, frameworks) for name in names}


def load_valid() -> tuple[dict[str, Study], dict[str, UsageError]]:
    """Return the studies whose file is valid, and why the other files are not, both by name.

    Raise DiskError if the folder cannot be read.
    """
    found, faults = dict[str, Study](), dict[str, UsageError]()
    scenarios, frameworks = catalog.scenarios(), catalog.frameworks()
    for name, file in _files().items():
        try:
            found[name] = read(file, scenarios, frameworks)
        except UsageError as error:
            faults[name] = error
    return found, faults


def find(name: str, studies: Mapping[str, T]) -> T:
    """Return a study, or its file. Raise UsageError if there is no study of this name."""
    if not studies:
        raise UsageError("There are no studies.", "Add a file to scenarios/studies.")
    if name not in studies:
        raise unknown("study", name, studies)
    return studies[name]


def select_studies(
    selection: Selection, studies: Mapping[str, Study], scenarios: Scenarios, frameworks: Mapping[str, Framework]
) -> dict[Cell, int | None]:
    """Return the union of the cells of the selected studies, each with its epochs in the full profile.

    They are None if they are those of the scenario, and 0 if only the speed counts. If several studies train a cell, it
    trains the largest of their numbers. selection: names studies; for its other fields, see `cells_of`. Raise
    UsageError for an unknown name, and if nothing is left.
    """
    pick("framework", selection.frameworks, list(frameworks), [])
    found: dict[Cell, int] = {}
    for name in selection.studies or ():
        for chosen in find(name, studies).file.cells.values():
            for cell in cells_of(chosen, selection, scenarios, frameworks):
                found[cell] = max(epochs_of(chosen, cell, scenarios), found.get(cell, 0))
    if not found:
        raise UsageError(
            f"No cell of {', '.join(selection.studies or ())} has the selected names.",
            "Remove --framework or --device. `kit study show NAME` lists the cells.",
        )
    usual = {cell: scenarios[cell.scenario][cell.variant].epochs for cell in found}
    return {cell: None if count == usual[cell] else count for cell, count in found.items()}


def _files() -> dict[str, Path]:
    """Return the files of studies by name, sorted."""
    folder = assets.ROOT / "scenarios" / "studies"
    with disk_errors(folder, did="read"):  # `glob` would hide a fault of the disk
        try:
            return {file.stem: file for file in sorted(folder.iterdir()) if file.suffix == ".toml"}
        except FileNotFoundError:  # a user's own folder of assets needs no studies
            return {}


def read(file: Path, scenarios: Scenarios, frameworks: Mapping[str, Framework]) -> Study:
    """Return the study of a file. Raise UsageError, with file and line, if it is not valid."""
    if not NAME.fullmatch(file.stem):
        raise UsageError(f"{file}: the name of a study has only small letters, digits and hyphens.", "Rename the file.")
    try:
        text = read_plain(file).decode()
        _check_size(text)
        content = tomllib.loads(text)
        _check_numbers(content)
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}.", "Make it readable, or remove it.") from error
    except (ValueError, RecursionError) as error:  # errors in TOML and Unicode are ValueErrors
        raise UsageError(f"{file}: {error}.", REMEDY) from error
    try:
        parsed = StudyFile.model_validate(content)
        places = check(parsed, scenarios, frameworks)
    except ValidationError as error:
        raise _located(file, text, _first(error)) from error
    except Fault as error:
        raise _located(file, text, error) from error
    return Study(file.stem, parsed, places, tuple(figures(parsed, scenarios)))


def _check_size(text: str) -> None:
    """Raise ValueError for a text that nobody wrote by hand: `tomllib` takes minutes for keys with many dots."""
    if len(text) > MAX_TEXT:
        raise ValueError(f"It has more than {MAX_TEXT:,} characters")
    for number, line in enumerate(text.split("\n"), start=1):
        if len(line) > MAX_LINE:
            raise ValueError(f"Line {number} has more than {MAX_LINE:,} characters")


def _check_numbers(content: object) -> None:
    """Raise ValueError for a huge whole number. Python refuses to write arbitrarily long ones in messages."""
    if isinstance(content, int) and abs(content) > MAX_INT:
        raise ValueError(f"A whole number has more than {len(str(MAX_INT)) - 1} digits")
    for part in content.values() if isinstance(content, dict) else content if isinstance(content, list) else ():
        _check_numbers(part)


def _located(file: Path, text: str, fault: Fault) -> UsageError:
    return UsageError(f"{file}, line {line_of(text, fault.path)}: {fault.message}", fault.remedy)


def _first(error: ValidationError) -> Fault:
    """Return the first fault of a file, with what exists instead of an unknown name."""
    found = error.errors(include_url=False)[0]
    path = tuple(part for part in found["loc"] if part not in UNION)
    name = next((part for part in reversed(path) if isinstance(part, str)), "file")
    if found["type"] == "extra_forbidden":
        fields = TABLES.get(str(path[0]), StudyFile) if len(path) > 1 else StudyFile
        return Fault.of(path, unknown("field", name, fields.model_fields))
    if found["type"] == "literal_error":
        return Fault.of(path, unknown(name, str(found["input"]), re.findall(r"'([^']*)'", found["ctx"]["expected"])))
    if found["type"] == "missing":
        return Fault(path, f"The field {name} is missing.", REMEDY)
    if found["type"] == "value_error":
        message = found["msg"].removeprefix("Value error, ")
        return Fault(path, f"{message[0].upper()}{message[1:]}.", REMEDY)
    return Fault(path, f"{name}: {found['msg']} (is {found['input']!r:.60}).", REMEDY)
