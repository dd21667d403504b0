"""Define rows of dots on a scale: positions in percent of the width, so that templates compute nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kit.report.scales import Scale

FIRST_Y, NEXT_Y = 12, 13  # px
# A whisker is shown up to this factor from its dot. Longer ones would press all dots of a scale together.
WHISKER = 3.0
BELOW = 9  # px, below the mark of the last published figure
PUBLISHED_HEIGHT = 15  # px, of the line of a published figure

# Percent of the width of the narrowest chart, which is about 330 pixels wide.
DIGIT = 2.0
GAP = 2.0

Tick = tuple[float, str]


@dataclass(frozen=True)
class Dot:
    """One value. at: its position. y: in pixels. text: what a pointer shows.

    whisker: ends of the interval over launches. band: ends of the spread of windows within one launch.
    """

    framework: str
    device: str
    at: float
    y: int
    text: str
    whisker: tuple[float, float] | None = None
    band: tuple[float, float] | None = None


@dataclass(frozen=True)
class PublishedDot:
    """A published figure. label: the hardware. text: what a pointer shows."""

    at: float
    label: str
    text: str


@dataclass(frozen=True)
class Strip:
    """A row of dots. label: the values as text for screen readers. height: in pixels.

    zone: position up to which the background is shaded, for ratios the position of 1; None for no zone.
    """

    label: str
    height: int
    ticks: tuple[Tick, ...]
    dots: tuple[Dot, ...]
    published: tuple[PublishedDot, ...] = ()
    zone: float | None = None

    def published_y(self, index: int) -> int:
        """Return the vertical position of a published figure, in pixels. Each has a line, so labels cannot overlap."""
        return self.height - BELOW - PUBLISHED_HEIGHT * (len(self.published) - 1 - index)


def dot_y(index: int) -> int:
    """Return the vertical position of the dot with this index, in pixels."""
    return FIRST_Y + NEXT_Y * index


def strip_height(dots: int, published: int = 0) -> int:
    """Return the height of a row with this many dots and published figures, in pixels."""
    return dot_y(max(dots, 1) - 1) + FIRST_Y + PUBLISHED_HEIGHT * published


def ticks(scale: Scale, label: Callable[[float], str], most: int = 6) -> tuple[Tick, ...]:
    """Return the ticks of a scale with their texts, without those whose text would touch the previous one."""
    found: list[Tick] = []
    for value in scale.ticks(most):
        tick = scale.at(value), label(value)
        if not found or tick[0] - found[-1][0] > GAP + DIGIT * (len(tick[1]) + len(found[-1][1])) / 2:
            found.append(tick)
    return tuple(found)


def whisker_ends(value: float, ends: Sequence[float]) -> list[float]:
    """Return the ends of an interval as a scale covers them: at most WHISKER times away from the value."""
    return [min(max(end, value / WHISKER), value * WHISKER) for end in ends]


def span(scale: Scale, ends: Sequence[float]) -> tuple[float, float]:
    """Return the positions of the ends of an interval."""
    return scale.at(ends[0]), scale.at(ends[1])
