"""Define line charts: positions in percent of the width and height, so that templates compute nothing."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kit.analysis.intervals import Interval
from kit.report.scales import HUGE, PADDING, TINY, Scale, log_scale
from kit.report.strips import Tick, ticks, whisker_ends
from kit.report.text import number_short

LOG_FROM = 10.0  # times that one speed is of another, from which on a linear axis hides the slope of the lower one
MAX_VALUES = 12  # ticks of `value_chart`
FIRST_SPOT_Y, NEXT_SPOT_Y = 8, 10  # px
MAX_POINTS = 240  # of a line: about one per two pixels

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class PointMark:
    """A measured point of a line. at, y: its position from the top left. text: what a pointer shows.

    whisker: top and bottom of its interval.
    """

    at: float
    y: float
    text: str
    whisker: tuple[float, float] | None


@dataclass(frozen=True)
class Line:
    """One line. points: the value of the attribute `points` of a polyline in a box of 100 × 100, from the top left.

    framework: decides the color, or "" for the color of text. dash: number of the dash pattern, 0 for a solid line.
    device: of the marks, or "" for a line without marks. outline: of the marks of published figures, which are hollow
    and gray; "" for measured values.
    """

    name: str
    points: str
    framework: str = ""
    dash: int = 0
    device: str = ""
    marks: tuple[PointMark, ...] = ()
    outline: str = ""


@dataclass(frozen=True)
class SpotMark:
    """A marked value of x. at, low, high: positions of the value and of the ends of its uncertainty. y: of the mark, in
    pixels from the top. text: what a pointer shows."""

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
    spots: tuple[SpotMark, ...] = ()

    @property
    def marked(self) -> bool:
        """Return whether there is a mark above the lines."""
        return bool(self.spots) or any(line.marks for line in self.lines)


@dataclass(frozen=True)
class Spot:
    """A value of x that a chart marks. low, high: ends of its uncertainty."""

    value: float
    low: float
    high: float
    text: str
    framework: str


@dataclass(frozen=True)
class Series:
    """The values of one line. points: pairs of x and y, in ascending order of x.

    device: where the points were measured. If it is given, each point has a mark. intervals: of the points' y. outline:
    see Line. alone: whether the marks have no line. ends: whether only the last point has a mark.
    """

    name: str
    points: Points
    framework: str = ""
    dash: int = 0
    device: str = ""
    intervals: Sequence[Interval | None] = ()
    outline: str = ""
    alone: bool = False
    ends: bool = False


def line_chart(
    title: str,
    x_title: str,
    series: Sequence[Series],
    y_text: Callable[[float], str],
    *,
    zero: bool = True,
    top: float | None = None,
    spots: Sequence[Spot] = (),
) -> LineChart:
    """Return the chart of series that have at least one point.

    y_text: formats a value of y. zero: whether the y axis starts at 0. top: its end; None for a round value above all.
    spots: values of x to mark.
    """
    xs = [x for one in series for x, _ in one.points]
    ys = [y for one in series for _, y in one.points]
    across, up = _scale(xs, padded=False), _scale([*ys, 0.0] if zero else ys, padded=not zero)
    if zero and up.high > 0:
        up = Scale(up.low, top or _round_up(up.high))
    x_ticks = ticks(across, number_short, 5)
    if all(float(x).is_integer() for x in xs):  # such as numbers of epochs
        x_ticks = tuple(tick for tick in x_ticks if "." not in tick[1])
    return _chart(title, x_title, series, y_text, across, up, x_ticks, spots)


def value_chart(
    title: str,
    x_title: str,
    series: Sequence[Series],
    y_text: Callable[[float], str],
    *,
    doubling: bool,
    zero: bool = True,
    log: bool = True,
    spots: Sequence[Spot] = (),
) -> LineChart:
    """Return the chart of speeds or other measures over a few values, which are the ticks of x.

    doubling: whether x is logarithmic. zero: whether the y axis starts at 0. log: whether it is logarithmic if a value
    is more than LOG_FROM times another one, because lines near 0 would look flat. spots: values of x to mark.
    """
    values = sorted({x for one in series for x, _ in one.points})
    found = [(y, interval) for one in series for (_, y), interval in zip(one.points, one.intervals, strict=False)]
    ends = [end for y, interval in found if interval for end in whisker_ends(y, (interval.low, interval.high))]
    ys = [*(y for one in series for _, y in one.points), *ends]
    if len(values) == 1:
        across = Scale(values[0] - 1, values[0] + 1)
    elif doubling:
        room = (values[-1] / values[0]) ** PADDING
        across = Scale(values[0] / room, values[-1] * room, log=True)
    else:
        across = _scale(values, padded=True)
    up = Scale(0.0, _round_up(max(ys))) if zero else _scale(ys, padded=True)
    up = log_scale(ys) if log and 0 < LOG_FROM * min(ys) < max(ys) else up
    thin = values[:: -(-len(values) // MAX_VALUES)]
    x_ticks = tuple((across.at(value), f"{value:,.0f}") for value in thin)
    return _chart(title, x_title, series, y_text, across, up, x_ticks, spots)


def _chart(
    title: str,
    x_title: str,
    series: Sequence[Series],
    y_text: Callable[[float], str],
    across: Scale,
    up: Scale,
    x_ticks: tuple[Tick, ...],
    spots: Sequence[Spot],
) -> LineChart:
    return LineChart(
        title=title,
        label=f"{title}. " + " ".join(_words(one, y_text) for one in series),
        x_title=x_title,
        lines=tuple(
            Line(
                name=s.name,
                points="" if s.alone else polyline(s.points, across, up),
                framework=s.framework,
                dash=s.dash,
                device=s.device,
                marks=_marks(s, across, up, y_text),
                outline=s.outline,
            )
            for s in series
        ),
        x_ticks=x_ticks,
        y_ticks=ticks(up, y_text, 4),
        spots=tuple(
            SpotMark(
                at=across.at(spot.value),
                low=across.at(spot.low),
                high=across.at(spot.high),
                y=FIRST_SPOT_Y + NEXT_SPOT_Y * index,
                text=spot.text,
                framework=spot.framework,
            )
            for index, spot in enumerate(spots)
        ),
    )


def _marks(series: Series, across: Scale, up: Scale, y_text: Callable[[float], str]) -> tuple[PointMark, ...]:
    if not (series.device or series.outline):
        return ()
    intervals = series.intervals or [None] * len(series.points)
    found = []
    for (x, y), interval in [*zip(series.points, intervals, strict=True)][-1 if series.ends else 0 :]:
        words = f"{series.name}, {x:,.0f}: {y_text(y)}"
        if interval:
            words += f", 95% interval {y_text(interval.low)} to {y_text(interval.high)}"
        whisker = (100 - up.at(interval.high), 100 - up.at(interval.low)) if interval else None
        found.append(PointMark(across.at(x), round(100 - up.at(y), 2), words, whisker))
    return tuple(found)


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
    low, high = (min(end(values), HUGE) for end in (min, max))
    room = PADDING * (high - low) if padded else 0.0
    low, high = low - room, high + room
    return Scale(low, high) if high > low else Scale(low, low + max(abs(low), 1.0))


def _round_up(value: float) -> float:
    """Return the lowest round number that is not below a value: 1, 1.5, 2, 3, 4, 5, 6 or 8 times 10^n.

    Return 1 for 0.
    """
    if value < TINY:
        return 1.0
    value = min(value, HUGE)
    unit = 10.0 ** math.floor(math.log10(value))
    return next((step * unit for step in (1, 1.5, 2, 3, 4, 5, 6, 8) if step * unit >= value), 10 * unit)


def _words(series: Series, y_text: Callable[[float], str]) -> str:
    values = [y for _, y in series.points]
    return f"{series.name}: {y_text(min(values))} to {y_text(max(values))}, at the end {y_text(values[-1])}."
