"""Make the pages of a study on a terminal, and its JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from kit.analysis.sweeps import value_words
from kit.cli.console import Column
from kit.host.program import as_called
from kit.model.formatting import DEVICES, format_count, format_duration
from kit.model.swept import SWEPT, TITLES
from kit.planning import catalog
from kit.planning.estimates import estimate
from kit.planning.plan import Options, make_plan
from kit.planning.profiles import PROFILES
from kit.planning.selection import Selection
from kit.planning.studies import Study, select_studies
from kit.planning.study_figures import Figure
from kit.planning.study_measures import MEASURES, NEEDS
from scenarios.contract.cell import Cell

COLUMNS = (Column("Study"), Column("Question"), Column("Cells", number=True), Column("Needs a GPU"))


def row(study: Study) -> list[str]:
    """Return a row of the list. See COLUMNS."""
    return [study.name, study.file.question, str(len(_cells(study))), _gpu(study)]


def summary(study: Study) -> dict[str, Any]:
    """Return an entry of the list."""
    cells = _cells(study)
    return {
        "name": study.name,
        "title": study.file.title,
        "question": study.file.question,
        "cells": len(cells),
        "gpu_cells": sum(cell.device == "cuda" for cell in cells),
    }


def as_json(study: Study) -> dict[str, Any]:
    """Return everything about a study."""
    return {
        **summary(study),
        "command": study.command,
        "file": study.file.model_dump(exclude={"published", "parts"}),
        "cells": [{"key": cell.key, "epochs": epochs} for cell, epochs in _cells(study).items()],
        "parts": [part.model_dump() | {"needs": part.needs} for part in study.file.parts],
        "seconds": {
            profile: {device: _seconds(study, profile, device) for device in catalog.DEVICES} for profile in PROFILES
        },
        "published": [
            {**{k: v for k, v in asdict(figure).items() if k != "place"}, "place": _place(figure.place, figure.named)}
            for figure in study.figures
        ],
    }


def head(study: Study) -> list[str]:
    """Return the lines above the tables."""
    file = study.file
    return [
        f"{study.name}: {file.title}",
        "",
        f"Question: {file.question}",
        *([f"Published answer: {file.published_answer}"] if file.published_answer else []),
        f"Source: {file.source}",
        f"Software: {file.software}.",
        f"Hardware: CPU: {file.hardware.cpu}. GPU: {file.hardware.cuda}.",
        *file.differences,
        *(["(*) marks a choice of kit where the publication leaves something open."] if file.own_choices else []),
        *(f"(*) {choice}" for choice in file.own_choices),
    ]


def foot(study: Study) -> list[str]:
    """Return the lines below the tables."""
    command = as_called(study.command)
    return ["", f"Repeat it: {command}", f"With whole epochs: {command} --profile full"]


def tables(study: Study) -> list[tuple[str, tuple[Column, ...], list[list[str]]]]:
    """Return the tables of a study, each with its title and columns."""
    times = [
        [profile, *(format_duration(_seconds(study, profile, device)) for device in catalog.DEVICES)]
        for profile in PROFILES
    ]
    return [
        ("Cells", (Column("Network"), Column("Devices"), Column("Values"), Column("Epochs", True)), _networks(study)),
        (
            "Tables and charts",
            (Column("Title"), Column("Kind"), Column("Needs")),
            [[part.title, part.kind, "; ".join(NEEDS[need] for need in part.needs)] for part in study.file.parts],
        ),
        ("Estimated time", (Column("Profile"), Column("CPU", True), Column("GPU", True)), times),
        (
            "Published figures",
            (Column("Measure"), Column("Where"), Column("Figure", True), Column("Hardware")),
            [
                [
                    MEASURES[f.measure].title,
                    _where(f),
                    MEASURES[f.measure].exact(f.low, f.high),
                    f.hardware or "not named",
                ]
                for f in study.figures
            ],
        ),
    ]


def _where(figure: Figure) -> str:
    return _place(figure.place, figure.named) + (f", epoch {figure.epoch}" if figure.epoch else "")


def _place(place: Cell, named: bool) -> str:
    devices = "" if place.devices == 1 else f"{place.devices} × "
    parts = [place.network, devices + DEVICES[place.device] if named else "", f"batch {place.batch}"]
    parts.append(value_words("workers", place.workers) if place.workers else "")
    return ", ".join(filter(None, parts))


def _networks(study: Study) -> list[list[str]]:
    """Return one row for each network of each selection: name, devices, values of the sweeps, epochs."""
    rows = []
    for name, chosen in study.file.cells.items():
        swept = [(TITLES[field], getattr(chosen, field)) for field in SWEPT]
        values = "; ".join(f"{title} {', '.join(map(str, own))}" for title, own in swept if own)
        networks: dict[str, tuple[int, list[str]]] = {}
        for place, epochs in study.places[name].items():
            _, devices = networks.setdefault(place.label, (epochs, []))
            devices += [DEVICES[place.device]] * (DEVICES[place.device] not in devices)
        rows += [
            [label, ", ".join(devices), values, str(epochs or "speed only")]
            for label, (epochs, devices) in networks.items()
        ]
    return rows


def _cells(study: Study) -> dict[Cell, int | None]:
    wanted = Selection(studies=(study.name,))
    return select_studies(wanted, {study.name: study}, catalog.scenarios(), catalog.frameworks())


def _gpu(study: Study) -> str:
    """Return which cells need a GPU."""
    cells = _cells(study)
    on_gpu = sum(cell.device == "cuda" for cell in cells)
    return "all cells" if on_gpu == len(cells) else f"for {format_count(on_gpu, 'cell')}" if on_gpu else "no"


def _seconds(study: Study, profile: str, device: str) -> float:
    """Return the estimated time of the study on one device, without building environments; 0 if it has no cell."""
    if device not in {place.device for places in study.places.values() for place in places}:
        return 0.0
    scenarios, frameworks = catalog.scenarios(), catalog.frameworks()
    plan = make_plan(
        Selection(studies=(study.name,), devices=(device,)),
        Options(engine="local", profile=profile, rounds=PROFILES[profile].launches),
        scenarios,
        frameworks,
        run="estimate",
        created_at="",
        studies={study.name: study},
    )
    ready = {launch.environment_key for launch in plan.launches}
    return estimate(plan, scenarios, ready=ready).seconds
