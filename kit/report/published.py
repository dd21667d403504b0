"""Find the training speeds that the studies published, from their speeds, or from their times and numbers of images.

A time includes the evaluation after each epoch where the study made one. So the speed of the training alone was higher.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from kit.planning.studies import Study
from kit.planning.study_cells import place_of
from kit.planning.study_figures import Figure
from scenarios.catalog import Scenarios
from scenarios.contract.cell import Cell
from scenarios.spec import DATASETS


@dataclass(frozen=True)
class PublishedSpeed:
    """A published training speed, in images/s. hardware: as the study names it."""

    images_per_s: float
    hardware: str
    study: str

    @property
    def note(self) -> str:
        """Return the speed with its origin, as a sentence without a period."""
        return f"{self.images_per_s:,.0f} images/s, {self.hardware}, study {self.study}"


def published_speeds(cell: Cell, studies: Mapping[str, Study], scenarios: Scenarios) -> list[PublishedSpeed]:
    """Return the published speeds of the network, batch size and device of a cell in the stock lane and in fp32."""
    scenario = scenarios.get(cell.scenario, {}).get(cell.variant)
    if scenario is None or (cell.lane, cell.precision, cell.devices) != ("stock", "fp32", 1):
        return []
    place, images = place_of(cell), DATASETS[scenario.dataset].train
    return [speed for study in studies.values() for speed in _speeds(study, place, images)]


def _speeds(study: Study, place: Cell, images: int) -> Iterator[PublishedSpeed]:
    """Yield the speeds of one study. images: of one epoch."""
    epochs = next((places[place] for places in study.places.values() if place in places), None)
    if epochs is None:
        return
    speeds = [
        *((figure.value, figure) for figure in _figures(study, "images_per_s", place)),
        *((epochs * images / figure.value, figure) for figure in _figures(study, "training_s", place)),
    ]
    if not speeds and place.device == "cuda":
        on_cpu = _figures(study, "images_per_s", replace(place, device="cpu"))
        gains = _figures(study, "speedup", place)
        speeds = [(cpu.value * gain.value, gain) for cpu in on_cpu for gain in gains]
    for images_per_s, figure in speeds:
        yield PublishedSpeed(images_per_s, figure.hardware, study.name)


def _figures(study: Study, measure: str, place: Cell) -> list[Figure]:
    return [figure for figure in study.figures if figure.measure == measure and figure.is_at(place)]
