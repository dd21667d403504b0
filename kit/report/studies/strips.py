"""Make the bars and rows of dots of a study: one row for each place, with its measured and published values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kit.analysis.study_values import StudyValue
from kit.planning.study_figures import Figure
from kit.planning.study_measures import MEASURES, StudyMeasure
from kit.report.scales import PADDING, Scale
from kit.report.strips import Dot, PublishedDot, Strip, Tick, dot_y, span, strip_height, ticks, whisker_ends
from kit.report.studies.part_source import PartSource, SeriesKey, value_text
from kit.report.studies.tables import published_text
from scenarios.contract.cell import Cell


@dataclass(frozen=True)
class StudyRow:
    """One place. values: framework and text of each measured value, with an unusual lane or precision. published: text
    of the published ones, or "".
    """

    label: str
    strip: Strip
    values: tuple[tuple[str, str], ...]
    published: str


@dataclass(frozen=True)
class StudyRows:
    """The rows of one measure. bars: whether values are bars from zero instead of dots."""

    title: str
    ticks: tuple[Tick, ...]
    rows: tuple[StudyRow, ...]
    bars: bool

    @property
    def published(self) -> bool:
        """Return whether there is a published figure."""
        return any(row.published for row in self.rows)


def study_rows(part: PartSource) -> tuple[StudyRows, ...]:
    """Return the rows of each measure that was measured."""
    return tuple(_rows(part, measure) for measure in part.part.measures if part.has_values(measure))


def _rows(part: PartSource, measure: str) -> StudyRows:
    of, bars = MEASURES[measure], part.part.kind == "bars"
    found: list[tuple[Cell, list[tuple[SeriesKey, StudyValue]], list[Figure]]] = []
    for place in part.places_of(measure):
        values = [(one, value) for one in part.series if (value := part.value(place, one, measure))]
        figures = part.figures_at(measure, place)
        if values or figures:
            found.append((place, values, figures))
    measured = [value for _, values, _ in found for _, value in values]
    ends = [value.value for value in measured]
    if not bars:
        known = [(v.value, v.interval) for v in measured if v.interval]
        ends += [end for value, one in known for end in whisker_ends(value, (one.low, one.high))]
    ends += [end for _, _, figures in found for figure in figures for end in (figure.low, figure.high)]
    scale = _scale(ends, zero=bars)
    return StudyRows(
        title=of.title,
        ticks=ticks(scale, of.short),
        rows=tuple(_row(part, of, scale, *each, bars=bars) for each in found),
        bars=bars,
    )


def _scale(values: Sequence[float], *, zero: bool) -> Scale:
    low, high = (0.0 if zero else min(values)), max(values)
    room = PADDING * (high - low) or abs(high) or 1.0
    return Scale(low if zero else low - room, high + room)


def _row(
    part: PartSource,
    of: StudyMeasure,
    scale: Scale,
    place: Cell,
    values: Sequence[tuple[SeriesKey, StudyValue]],
    figures: Sequence[Figure],
    *,
    bars: bool,
) -> StudyRow:
    texts = tuple((one.framework, f"{one.unusual} {value_text(of, value)}".strip()) for one, value in values)
    published = "; ".join(map(published_text, figures))
    measured = "; ".join(f"{one.title} {value_text(of, value)}" for one, value in values)
    label = part.label(place)
    dots = tuple(
        Dot(
            framework=one.framework,
            device="cuda",  # filled: measured
            at=scale.at(value.value),
            y=dot_y(index),
            text=f"{one.title}: {value_text(of, value)}",
            whisker=span(scale, (value.interval.low, value.interval.high)) if value.interval and not bars else None,
        )
        for index, (one, value) in enumerate(values)
    )
    strip = Strip(
        label=f"{label}, {of.title.lower()}: {measured or 'not measured'}."
        + f" Published: {published}." * bool(figures),
        height=strip_height(len(dots), len(figures)),
        ticks=ticks(scale, of.short),
        dots=dots,
        published=tuple(PublishedDot(scale.at(f.value), published_text(f), published_text(f)) for f in figures),
        zone=0.0 if bars else None,
    )
    return StudyRow(label, strip, texts, published)
