"""Define the published figures of a study, one by one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from kit.planning.selection import DEFAULT_VARIANT
from kit.planning.study_files import Number, PublishedFigures, StudyCells, StudyFile
from scenarios.catalog import Scenarios
from scenarios.contract.cell import Cell, Device


@dataclass(frozen=True)
class Place:
    """Where a figure belongs: a cell without its framework, lane and precision. The fields are those of a cell."""

    scenario: str
    variant: str
    device: Device
    devices: int
    batch: int
    workers: int | None = None
    hidden_layers: int | None = None

    @classmethod
    def of(cls, cell: Cell) -> Place:
        """Return the place of a cell."""
        return cls(**{field.name: getattr(cell, field.name) for field in fields(cls)})


@dataclass(frozen=True)
class Figure:
    """One published figure. Fields as in PublishedFigures; variant: "" is the default one.

    low, high: its ends, which are equal if it is not a range. device: None if the study does not name it, or if the
    measure compares both.
    """

    measure: str
    scenario: str
    variant: str
    device: Device | None
    devices: int
    batch: int
    workers: int | None
    hidden_layers: int | None
    epoch: int | None
    low: float
    high: float
    hardware: str

    @property
    def value(self) -> float:
        """Return the middle of the range."""
        return (self.low + self.high) / 2

    def is_at(self, place: Place) -> bool:
        """Return whether the figure belongs to a place. A figure without a device belongs to both."""
        own = (self.scenario, self.variant, self.devices, self.batch, self.workers, self.hidden_layers)
        its = (place.scenario, place.variant, place.devices, place.batch, place.workers, place.hidden_layers)
        return own == its and self.device in {None, place.device}

    @property
    def place(self) -> Place | None:
        """Return the place of the figure, or None if the study does not name the device."""
        if self.device is None:
            return None
        varied = (self.batch, self.workers, self.hidden_layers)
        return Place(self.scenario, self.variant, self.device, self.devices, *varied)

    def belongs_to(self, chosen: StudyCells) -> bool:
        """Return whether a selection has the network of the figure, and its batch size if that varies."""
        network = chosen.scenario == self.scenario and (self.variant or DEFAULT_VARIANT) in chosen.variants
        batch = not chosen.batch or self.batch in chosen.batch
        workers = self.workers in chosen.workers if chosen.workers else self.workers is None
        return network and batch and workers


def figures(file: StudyFile, scenarios: Scenarios) -> Iterator[Figure]:
    """Yield the published figures of a study that was checked."""
    for group in file.published:
        hardware = {"cpu": file.hardware.cpu, "cuda": file.hardware.cuda}.get(group.device or "", "")
        yield from _figures(group, group.hardware or hardware, scenarios)


def _figures(group: PublishedFigures, hardware: str, scenarios: Scenarios) -> Iterator[Figure]:
    values: Mapping[str, Number | None] = group.values or {"": group.value}
    for name, value in values.items():
        varied: dict[str, Any] = {}
        if group.over:
            varied[group.over] = name if group.over == "variant" else int(name)
        found = group.model_copy(update=varied)
        variant = "" if found.variant == DEFAULT_VARIANT else found.variant
        low, high = _ends(value)
        yield Figure(
            measure=found.measure,
            scenario=found.scenario,
            variant=variant,
            device=found.device,
            devices=found.devices,
            batch=found.batch or scenarios[found.scenario][variant].batch,
            workers=found.workers,
            hidden_layers=found.hidden_layers,
            epoch=found.epoch,
            low=low,
            high=high,
            hardware=hardware,
        )


def _ends(value: Number | None) -> tuple[float, float]:
    assert value is not None, "the file was checked"
    return (value[0], value[1]) if isinstance(value, list) else (value, value)
