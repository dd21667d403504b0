"""Make the heat maps of a study: a measure over two varied fields."""

from __future__ import annotations

from dataclasses import dataclass

from kit.analysis.sweeps import value_words
from kit.planning.study_measures import MEASURES
from kit.report.rows import configuration_words
from kit.report.studies.part_source import PartSource, SeriesKey, value_text
from kit.report.studies.tables import published_text
from scenarios.contract.cell import Cell


@dataclass(frozen=True)
class HeatCell:
    """One value. level: its share of the largest one, in percent, from 0; None if it was not measured."""

    text: str
    published: str
    level: int | None


@dataclass(frozen=True)
class HeatMap:
    """The values of one series on one device. columns: values of x. rows: values of y with one cell per column."""

    title: str
    framework: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[HeatCell, ...]], ...]


def heat_maps(part: PartSource) -> tuple[HeatMap, ...]:
    """Return one map for each measure, network, device and series that was measured."""
    groups: dict[tuple[str, str, int], list[Cell]] = {}
    for place in part.places:
        groups.setdefault((place.label, place.device, place.devices), []).append(place)
    return tuple(
        _heat_map(part, measure, places, one)
        for measure in part.part.measures
        for places in groups.values()
        for one in part.series
        if any(part.value(place, one, measure) for place in places)
    )


def _heat_map(part: PartSource, measure: str, places: list[Cell], one: SeriesKey) -> HeatMap:
    x, y = part.part.x, part.part.y
    assert x
    assert y
    grid = {(part.x_of(place, x), part.x_of(place, y)): place for place in places}
    columns, rows = (sorted({key[index] for key in grid}, key=lambda v: v or 0) for index in (0, 1))
    values = {key: part.value(place, one, measure) for key, place in grid.items()}
    highest = max(value.value for value in values.values() if value)

    def cell(key: tuple[int | None, int | None]) -> HeatCell:
        value, place = values.get(key), grid.get(key)
        figures = part.figures_at(measure, place) if place else []
        level = round(100 * value.value / highest) if value and highest > 0 else None
        return HeatCell(value_text(MEASURES[measure], value), "; ".join(map(published_text, figures)), level)

    return HeatMap(
        title=", ".join([one.title, *[part.variant(places[0])] * part.mixed, configuration_words(places[0])]),
        framework=one.framework,
        columns=tuple(value_words(x, column) for column in columns),
        rows=tuple((value_words(y, row), tuple(cell((column, row)) for column in columns)) for row in rows),
    )
