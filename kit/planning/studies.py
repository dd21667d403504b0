"""Read and check the studies: the files `scenarios/studies/NAME.toml`."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ValidationError

from kit import assets
from kit.model.environment import Framework
from kit.model.errors import UsageError, unknown
from kit.planning import catalog
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
from scenarios.catalog import Scenarios
from scenarios.contract.cell import Cell

NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,59}")
REMEDY = "Correct the file. scenarios/studies/mnist-cpu-vs-gpu.toml is an example."
TABLES: Mapping[str, type[BaseModel]] = {
    "cells": StudyCells,
    "parts": StudyPart,
    "published": PublishedFigures,
    "hardware": Hardware,
}


@dataclass(frozen=True)
class Study:
    """A published study. name: of its file, without the suffix. figures: the published ones, one by one."""

    name: str
    file: StudyFile
    figures: tuple[Figure, ...]

    @property
    def command(self) -> str:
        """Return the command that repeats the study."""
        return f"kit run --study {self.name}"

    def selections(self, part: StudyPart | None = None) -> list[StudyCells]:
        """Return the selections of cells that a part shows, or all."""
        names = part.cells if part and part.cells else list(self.file.cells)
        return [self.file.cells[name] for name in names]

    def published(self, measure: str, part: StudyPart | None = None) -> list[Figure]:
        """Return the published figures of a measure in the cells of a part, or in all."""
        chosen = self.selections(part)
        return [figure for figure in self.figures if figure.measure == measure and any(map(figure.belongs_to, chosen))]

    def epochs(self, cell: Cell) -> int | None:
        """Return how many epochs the study trains a cell, or None for the number of the scenario."""
        return next((found.epochs for found in self.file.cells.values() if _has(found, cell)), None)


def _has(chosen: StudyCells, cell: Cell) -> bool:
    """Return whether a selection has the network, the device and the varied values of a cell."""
    return (
        chosen.scenario == cell.scenario
        and (cell.variant or "default") in chosen.variants
        and (not chosen.devices or cell.device in chosen.devices)
        and (cell.workers in chosen.workers if chosen.workers else cell.workers is None)
        and (not chosen.batch or cell.batch in chosen.batch)
    )


def load_all() -> dict[str, Study]:
    """Return all studies by name, sorted. Raise UsageError if a file or the catalog is not valid."""
    return load(catalog.scenarios(), catalog.frameworks())


def load(scenarios: Scenarios, frameworks: Mapping[str, Framework]) -> dict[str, Study]:
    """Return all studies by name, sorted. Raise UsageError, with file and line, if a file is not valid."""
    return {study.name: study for study in _studies(scenarios, frameworks)}


def find(name: str, studies: Mapping[str, Study]) -> Study:
    """Return a study. Raise UsageError if there is no study of this name."""
    if name not in studies:
        raise unknown("study", name, studies)
    return studies[name]


def _studies(scenarios: Scenarios, frameworks: Mapping[str, Framework]) -> Iterator[Study]:
    for file in sorted((assets.ROOT / "scenarios" / "studies").glob("*.toml")):
        if not NAME.fullmatch(file.stem):
            raise UsageError(
                f"{file}: the name of a study has only small letters, digits and hyphens.", "Rename the file."
            )
        yield read(file, scenarios, frameworks)


def read(file: Path, scenarios: Scenarios, frameworks: Mapping[str, Framework]) -> Study:
    """Return the study of a file. Raise UsageError, with file and line, if it is not valid."""
    try:
        text = file.read_text(encoding="utf-8")
        content = tomllib.loads(text)
    except (ValueError, OSError) as error:  # TOML and Unicode errors are ValueErrors, with a line if there is one
        raise UsageError(f"{file}: {error}.", REMEDY) from error
    try:
        parsed = StudyFile.model_validate(content)
        check(parsed, scenarios, frameworks)
    except ValidationError as error:
        raise _located(file, text, _first(error)) from error
    except Fault as error:
        raise _located(file, text, error) from error
    return Study(file.stem, parsed, tuple(figures(parsed, scenarios)))


def _located(file: Path, text: str, fault: Fault) -> UsageError:
    return UsageError(f"{file}, line {line_of(text, fault.path)}: {fault.message}", fault.remedy)


def _first(error: ValidationError) -> Fault:
    """Return the first fault of a file, with what exists instead of an unknown name."""
    found = error.errors(include_url=False)[0]
    path = found["loc"]
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
