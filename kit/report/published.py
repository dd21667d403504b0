"""Find the training speeds that the studies published, from their speeds, or from their times and numbers of images.

A time may include the evaluation after each epoch. Then the speed of the training alone was higher.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from kit.planning.studies import Study
from kit.planning.study_cells import merged, place_of
from kit.planning.study_figures import Figure
from scenarios.catalog import Scenarios
from scenarios.contract.cell import Cell
from scenarios.spec import DATASETS


@dataclass(frozen=True)
class PublishedSpeed:
    """A published training speed, in images/s.

    low, high: equal if it is not a range. hardware: as the study names it.
    """

    low: float
    high: float
    hardware: str
    study: str

    @property
    def images_per_s(self) -> float:
        """Return the speed, or the middle of its range."""
        return (self.low + self.high) / 2

    @property
    def words(self) -> str:
        """Return the speed, or both ends of its range, without the unit."""
        return " to ".join(dict.fromkeys(f"{end:,.0f}" for end in (self.low, self.high)))

    @property
    def note(self) -> str:
        """Return the speed with its origin, as a sentence without a period."""
        return f"{self.words} images/s, {self.hardware}, study {self.study}"


def published_speeds(cell: Cell, studies: Mapping[str, Study], scenarios: Scenarios) -> list[PublishedSpeed]:
    """Return the published speeds of the network, batch size and device of a cell in the stock lane and in fp32."""
    scenario = scenarios.get(cell.scenario, {}).get(cell.variant)
    if scenario is None or (cell.lane, cell.precision, cell.devices) != ("stock", "fp32", 1):
        return []
    place, images = place_of(cell), DATASETS[scenario.dataset].train
    return [speed for study in studies.values() for speed in _speeds(study, place, images)]


def _speeds(study: Study, place: Cell, images: int) -> Iterator[PublishedSpeed]:
    """Yield the speeds of one study. images: of one epoch."""
    epochs = merged(study.places.values()).get(place)
    if epochs is None:
        return
    speeds = [
        *((f.low, f.high, f) for f in _figures(study, "images_per_s", place)),
        *((epochs * images / f.high, epochs * images / f.low, f) for f in _figures(study, "training_s", place)),
    ]
    if not speeds and place.device == "cuda":
        on_cpu = _figures(study, "images_per_s", replace(place, device="cpu"))
        gains = _figures(study, "speedup", place)
        speeds = [(cpu.low * gain.low, cpu.high * gain.high, gain) for cpu in on_cpu for gain in gains]
    for low, high, figure in speeds:
        yield PublishedSpeed(low, high, figure.hardware, study.name)


def _figures(study: Study, measure: str, place: Cell) -> list[Figure]:
    return [figure for figure in study.figures if figure.measure == measure and figure.is_at(place)]
