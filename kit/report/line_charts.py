"""Define line charts: positions in percent of the width and height, so that templates compute nothing."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kit.report.scales import PADDING, Scale, log_scale
from kit.report.strips import Tick, ticks

MAX_POINTS = 240  # of a line: about one per two pixels

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Line:
    """One line. points: the value of the attribute `points` of a polyline in a box of 100 × 100, from the top left.

    framework: decides the color, or "" for the color of text. dash: number of the dash pattern, 0 for a solid line.
    outline: path of the marks of published figures, which are hollow and gray; "" for measured values.
    """

    name: str
    points: str
    framework: str = ""
    dash: int = 0
    outline: str = ""


@dataclass(frozen=True)
class Marker:
    """One value that has a mark. at, top: position from the left and from the top. text: what a pointer shows.

    framework, outline: as in Line.
    """

    at: float
    top: float
    text: str
    framework: str = ""
    outline: str = ""


@dataclass(frozen=True)
class SpotMark:
    """A marked value of x, with the ends of its uncertainty. y: of its mark, in pixels from the top."""

    at: float
    low: float
    high: float
    y: int
    text: str
    framework: str


@dataclass(frozen=True)
class LineChart:
    """A chart. title: with the unit. label: the values as text for screen readers. x_title: what the x axis counts."""

    title: str
    label: str
    x_title: str
    lines: tuple[Line, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    markers: tuple[Marker, ...] = ()
    spots: tuple[SpotMark, ...] = ()


@dataclass(frozen=True)
class Series:
    """The values of one line. points: pairs of x and y, in ascending order of x. outline: as in Line.

    marked: whether each value has a mark. Published figures always have one. alone: whether there is no line.
    """

    name: str
    points: Points
    framework: str = ""
    dash: int = 0
    outline: str = ""
    marked: bool = False
    alone: bool = False


@dataclass(frozen=True)
class Spot:
    """A value of x that a chart marks. low, high: ends of its uncertainty."""

    value: float
    low: float
    high: float
    text: str
    framework: str


def line_chart(
    title: str,
    x_title: str,
    series: Sequence[Series],
    y_text: Callable[[float], str],
    *,
    zero: bool = True,
    top: float | None = None,
    log: tuple[bool, bool] = (False, False),
    spots: Sequence[Spot] = (),
    x_values: Sequence[float] = (),
) -> LineChart:
    """Return the chart of series that have at least one point.

    y_text: formats a value of y. zero: whether the y axis starts at 0. top: its end; None for a round value above all.
    log: whether the scales of x and y are logarithmic; values are then above 0. x_values: those that have a tick; empty
    for round ones.
    """
    xs = [*(x for one in series for x, _ in one.points), *x_values]
    ys = [y for one in series for _, y in one.points]
    across, up = _scale(xs, padded=False), _scale([*ys, 0.0] if zero else ys, padded=not zero)
    if log[0] and across.low > 0:
        across = Scale(across.low, across.high, log=True)
    if log[1] and min(ys) > 0:
        up = log_scale(ys)
    elif zero and up.high > 0:
        up = Scale(up.low, top or _round_up(up.high))
    x_ticks = tuple((across.at(value), f"{value:,.4g}") for value in x_values)
    return LineChart(
        title=title,
        label=f"{title}. " + " ".join(_words(one, y_text) for one in series),
        x_title=x_title,
        lines=tuple(
            Line(s.name, "" if s.alone else polyline(s.points, across, up), s.framework, s.dash, s.outline)
            for s in series
        ),
        x_ticks=x_ticks or ticks(across, lambda value: f"{value:,.4g}", 5),
        y_ticks=ticks(up, y_text, 4),
        markers=tuple(
            Marker(across.at(x), round(100 - up.at(y), 2), f"{s.name}: {y_text(y)}", s.framework, s.outline)
            for s in series
            if s.marked or s.outline
            for x, y in s.points
        ),
        spots=tuple(
            SpotMark(
                at=across.at(spot.value),
                low=across.at(spot.low),
                high=across.at(spot.high),
                y=8 + 10 * index,
                text=spot.text,
                framework=spot.framework,
            )
            for index, spot in enumerate(spots)
        ),
    )


def polyline(points: Points, across: Scale, up: Scale) -> str:
    """Return points for a polyline, at most MAX_POINTS."""
    return " ".join(f"{across.at(x):.1f},{100 - up.at(y):.1f}" for x, y in thinned(points))


def thinned(points: Points, most: int = MAX_POINTS) -> Points:
    """Return at most this many points: the means of neighbors. The last point stays as it is."""
    if len(points) <= most:
        return points
    inner, last = points[:-1], points[-1]
    step = -(-len(inner) // (most - 1))
    chunks = [inner[i : i + step] for i in range(0, len(inner), step)]
    return [*((statistics.fmean([x for x, _ in c]), statistics.fmean([y for _, y in c])) for c in chunks), last]


def _scale(values: Sequence[float], padded: bool) -> Scale:
    low, high = min(values), max(values)
    room = PADDING * (high - low) if padded else 0.0
    low, high = low - room, high + room
    return Scale(low, high) if high > low else Scale(low, low + max(abs(low), 1.0))


def _round_up(value: float) -> float:
    """Return the lowest round number that is not below a value above 0: 1, 1.5, 2, 3, 4, 5, 6 or 8 times 10^n."""
    unit = 10.0 ** math.floor(math.log10(value))
    return next((step * unit for step in (1, 1.5, 2, 3, 4, 5, 6, 8) if step * unit >= value), 10 * unit)


def _words(series: Series, y_text: Callable[[float], str]) -> str:
    values = [y for _, y in series.points]
    return f"{series.name}: {y_text(min(values))} to {y_text(max(values))}, at the end {y_text(values[-1])}."
