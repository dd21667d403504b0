"""Draw the speed of each machine against its cost for the same work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kit.analysis.contenders import Position, positions
from kit.model.formatting import DEVICES, shortened
from kit.report import text
from kit.report.elements import Table
from kit.report.machines.answer import TOO_FEW
from kit.report.machines.source import MachinesInput
from kit.report.scales import log_scale
from kit.report.strips import Tick, ticks

HEIGHT = 280  # px, of the plot
MAX_NAME = 16  # characters beside a mark
RIGHT = 60  # percent, from which on the name of a mark is on its left


@dataclass(frozen=True)
class Place:
    """A mark. at: in percent from the left. y: in pixels from the top. name: shown beside it. left: on which side."""

    label: str
    device: str
    at: float
    y: float
    name: str
    text: str
    efficient: bool

    @property
    def left(self) -> bool:
        """Return whether the name is left of the mark."""
        return self.at > RIGHT


@dataclass(frozen=True)
class SpeedCost:
    """The chart. heading: the answer. label: the values as text for screen readers. table: the same values."""

    heading: str
    label: str
    base: str
    places: tuple[Place, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    table: Table
    height: int = HEIGHT


def speed_cost(source: MachinesInput) -> SpeedCost | None:
    """Return the chart, or None if fewer than two machines or devices have prices and a network in common."""
    found = positions(source.contenders, source.measure)
    if not found:
        return None
    x, y = log_scale([each.cost for each in found]), log_scale([each.speed for each in found])
    names = [_name(found, each) for each in found]
    places = tuple(
        Place(
            each.label,
            each.device,
            x.at(each.cost),
            y.from_top(each.speed, HEIGHT),
            shortened(name, MAX_NAME),
            f"{name}: {text.factor(each.speed)}× the speed, {text.factor(each.cost)}× the cost of {names[0]}",
            each.efficient,
        )
        for each, name in zip(found, names, strict=True)
    )
    efficient = [name for each, name in zip(found, names, strict=True) if each.efficient]
    once = f"{TOO_FEW}: " if any(each.launches < 2 for each in found) else ""
    verb = "is" if len(efficient) == 1 else "are"
    rows = tuple(
        (name, f"{text.factor(each.speed)}×", f"{text.factor(each.cost)}×", "efficient" if each.efficient else "")
        for each, name in zip(found, names, strict=True)
    )
    return SpeedCost(
        heading=f"{once}On average, {text.listed(efficient)} {verb} efficient: nothing else is both faster and cheaper",
        label="; ".join(place.text for place in places),
        base=names[0],
        places=places,
        x_ticks=ticks(x, lambda value: f"{text.number_short(value)}×", 5),
        y_ticks=tuple((y.from_top(v, HEIGHT), f"{text.number_short(v)}×") for v in y.ticks(5)),
        table=Table(("Machine", "Speed", "Cost of an image", ""), rows, "Speed and cost", (1, 2)),
    )


def _name(found: Sequence[Position], of: Position) -> str:
    """Return the name of a machine, with the device if the chart has CPUs and GPUs."""
    several = len({each.device for each in found}) > 1
    return f"{of.label} {DEVICES.get(of.device, of.device)}" if several else of.label
