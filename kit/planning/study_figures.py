"""Define the published figures of a study, one by one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from kit.planning.selection import DEFAULT_VARIANT
from kit.planning.study_files import Number, PublishedFigures, StudyFile
from scenarios.catalog import Scenarios
from scenarios.contract.cell import Cell
from scenarios.spec import hidden_layers


@dataclass(frozen=True)
class Figure:
    """One published figure.

    measure: see MEASURES. place: see `place_of`. named: whether the study names the device. If not, the figure belongs
    to both. epoch: number of the epoch, from 1; None for the end of the training. low, high: its ends, which are equal
    if it is not a range.
    """

    measure: str
    place: Cell
    named: bool
    epoch: int | None
    low: float
    high: float
    hardware: str

    @property
    def value(self) -> float:
        """Return the middle of the range."""
        return (self.low + self.high) / 2

    @property
    def identity(self) -> tuple[object, ...]:
        """Return all but the value. A study has at most one figure with the same identity."""
        return (self.measure, self.place, self.named, self.epoch, self.hardware)

    def is_at(self, place: Cell) -> bool:
        """Return whether the figure belongs to a place."""
        return replace(self.place, device=self.place.device if self.named else place.device) == place

    def is_on(self, place: Cell) -> bool:
        """Return whether the figure belongs to a place, or to the same one with another number of devices."""
        return self.is_at(replace(place, devices=self.place.devices))

    def is_near(self, place: Cell) -> bool:
        """Return whether the figure belongs to a place or to the same one on other devices."""
        return replace(self.place, device=place.device, devices=place.devices) == place


def figures(file: StudyFile, scenarios: Scenarios) -> Iterator[Figure]:
    """Yield the published figures of a study whose names were checked."""
    for group in file.published:
        yield from figures_of(group, file, scenarios)


def figures_of(group: PublishedFigures, file: StudyFile, scenarios: Scenarios) -> Iterator[Figure]:
    """Yield the figures of a group whose names were checked. Their hardware is that of the study if the group names a
    device, but no hardware."""
    study_hardware = {"cpu": file.hardware.cpu, "cuda": file.hardware.cuda}.get(group.device or "", "")
    hardware = group.hardware or study_hardware
    values: Mapping[str, Number | None] = group.values or {"": group.value}
    for name, value in values.items():
        varied: dict[str, Any] = {}
        if group.over:
            varied[group.over] = name if group.over == "variant" else int(name)
        found = group.model_copy(update=varied)
        variant = "" if found.variant == DEFAULT_VARIANT else found.variant
        scenario = scenarios[found.scenario][variant]
        layers = None if found.hidden_layers == hidden_layers(scenario) else found.hidden_layers
        place = Cell(
            scenario=found.scenario,
            variant=variant,
            framework="",
            device=found.device or "cpu",
            devices=found.devices,
            lane="stock",
            precision="fp32",
            batch=found.batch or scenario.batch,
            workers=found.workers,
            hidden_layers=layers,
        )
        assert value is not None, "the file was checked"
        low, high = value if isinstance(value, list) else (value, value)
        yield Figure(found.measure, place, found.device is not None, found.epoch, low, high, hardware)
