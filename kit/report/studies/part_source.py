"""Define what the tables and charts of one part of a study are made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from kit.analysis.gpu_answer import missing_gpu
from kit.analysis.study_values import StudyValue, StudyValues
from kit.analysis.summaries import CellSummary
from kit.analysis.sweeps import value_of, value_words, varied_fields
from kit.model.formatting import format_count
from kit.model.swept import SweptField
from kit.planning.selection import DEFAULT_VARIANT
from kit.planning.studies import Study
from kit.planning.study_cells import place_of
from kit.planning.study_figures import Figure
from kit.planning.study_files import StudyPart
from kit.planning.study_measures import MEASURES, StudyMeasure
from kit.report import text
from kit.report.marks import sort_key
from kit.report.rows import configuration_words, unusual_words
from kit.report.section import ReportInput
from scenarios.catalog import scenario_of
from scenarios.contract.cell import Cell, Lane, Precision
from scenarios.contract.result import Epoch


@dataclass(frozen=True)
class SeriesKey:
    """What is compared with the published figures: one framework in one lane and precision.

    unusual: lane and precision in words, or "" for the usual ones. title: of the framework, with these words.
    """

    framework: str
    lane: Lane
    precision: Precision
    unusual: str
    title: str


@dataclass(frozen=True)
class PartSource:
    """One part of a study with what a run measured of it."""

    source: ReportInput
    study: Study
    part: StudyPart
    values: StudyValues

    @cached_property
    def places(self) -> dict[Cell, int]:
        """Return the places of the part with their epochs, and those that only the publication has (several GPUs)."""
        own = dict(self.study.places_of(self.part))
        for figure in self.figures:
            near = next((count for place, count in own.items() if figure.is_near(place)), None)
            if figure.named and near is not None and figure.place.device in {p.device for p in own}:
                own.setdefault(figure.place, near)
        return own

    @cached_property
    def figures(self) -> list[Figure]:
        """Return the published figures that the part shows."""
        own = self.study.places_of(self.part)
        shown = self.part.shown if self.part.published else ()
        return [figure for measure in shown for figure in self.study.published(measure, own)]

    @cached_property
    def summaries(self) -> list[CellSummary]:
        """Return the measured cells of the part, without those whose network changed since the run."""
        return [summary for summary in self._measured if not self._changed(summary.cell)]

    @property
    def missing_gpu(self) -> str:
        """Return why the part has no network with a speed on both devices."""
        return missing_gpu(self.source.analysis, self.summaries, lambda cell: place_of(cell) in self.places)

    @cached_property
    def changed(self) -> list[str]:
        """Return the labels of the measured networks that changed since the run. They are another network."""
        return list(dict.fromkeys(s.cell.label for s in self._measured if self._changed(s.cell)))

    @cached_property
    def _measured(self) -> list[CellSummary]:
        return [summary for summary in self.source.measured if place_of(summary.cell) in self.places]

    def _changed(self, cell: Cell) -> bool:
        return scenario_of(cell, self.source.analysis.scenarios) is None

    @cached_property
    def series(self) -> list[SeriesKey]:
        """Return the series that were measured, in the fixed order of the frameworks."""
        found = {}
        for summary in self.summaries:
            cell = summary.cell
            unusual = " ".join(unusual_words(cell))
            title = f"{self.source.framework_title(cell.framework)} {unusual}".strip()
            key = cell.framework, cell.lane, cell.precision
            found[key] = SeriesKey(*key, unusual, title)
        return [found[key] for key in sorted(found, key=lambda key: (sort_key(key[0]), key[1:]))]

    def places_of(self, measure: str) -> list[Cell]:
        """Return the places at which a measure is defined. What a GPU does is defined only where one trains."""
        on_gpu = MEASURES[measure].need == "gpu"
        return [place for place in self.places if place.device == "cuda" or not on_gpu]

    def figures_at(self, measure: str, place: Cell) -> list[Figure]:
        """Return the published figures of a measure at a place."""
        return [figure for figure in self.figures if figure.measure == measure and figure.is_at(place)]

    def summary(self, place: Cell, series: SeriesKey) -> CellSummary | None:
        """Return the cell of a series at a place, or None if it was not measured."""
        return self._by_cell.get(
            replace(place, framework=series.framework, lane=series.lane, precision=series.precision)
        )

    @cached_property
    def _by_cell(self) -> dict[Cell, CellSummary]:
        return {summary.cell: summary for summary in self.summaries}

    @property
    def in_order(self) -> list[CellSummary]:
        """Return the measured cells, place by place, in the order of the series."""
        return [found for place in self.places for one in self.series if (found := self.summary(place, one))]

    def value(self, place: Cell, series: SeriesKey, measure: str, epoch: int | None = None) -> StudyValue | None:
        """Return the value of a series at a place, or None if it was not measured."""
        summary = self.summary(place, series)
        return self.values.find(summary, measure, self.places[place], epoch) if summary else None

    def curve(self, place: Cell, series: SeriesKey) -> list[Epoch]:
        """Return the whole epochs of a series at a place, at most as many as the study trains."""
        summary = self.summary(place, series)
        return self.values.curve(summary, self.places[place]) if summary else []

    def accuracies(self, place: Cell, series: SeriesKey) -> dict[int, list[float]]:
        """Return the best accuracy of each launch of a series at a place, by seed."""
        summary = self.summary(place, series)
        return self.values.best_accuracies(summary, self.places[place]) if summary else {}

    def has_values(self, measure: str) -> bool:
        """Return whether a measure was measured at a place of the part."""
        return any(self.value(place, one, measure) for place in self.places_of(measure) for one in self.series)

    @property
    def doubtful(self) -> bool:
        """Return whether a value that the part shows is doubtful."""
        return any(
            (value := self.value(place, one, measure)) and value.doubtful
            for measure in self.part.shown
            for place in self.places_of(measure)
            for one in self.series
        )

    def x_of(self, place: Cell, axis: SweptField) -> int | None:
        """Return the value of a varied field at a place."""
        return value_of(place, axis, self.source.analysis.scenarios)

    def variant(self, place: Cell) -> str:
        """Return what distinguishes a place's network: its variant, or its title if scenarios differ."""
        several = len({other.scenario for other in self.places}) > 1
        return self.network(place) if several else place.variant or DEFAULT_VARIANT

    def network(self, place: Cell) -> str:
        """Return the title of a place's network, without a number of hidden layers."""
        scenario = self.source.analysis.scenarios.get(place.scenario, {}).get(place.variant)
        return scenario.title if scenario else place.label

    def label(self, place: Cell, *, without: Sequence[str] = ()) -> str:
        """Return what distinguishes a place from the other places of the part.

        It names synthetic data if other networks have real data.
        without: fields that the chart shows on an axis.
        """
        parts = [self.variant(place)] * self.mixed
        if "device" not in without:
            parts.append(configuration_words(place))
        varied = self._varied[place.label]
        parts += [value_words(f, self.x_of(place, f)) for f in varied if f not in without]
        parts += ["synthetic data"] * (place.network in self.made)
        return " · ".join(parts)

    @cached_property
    def mixed(self) -> bool:
        """Return whether the part shows several networks."""
        return len({place.label for place in self.places}) > 1

    @cached_property
    def made(self) -> set[str]:
        """Return the networks of the run that had synthetic data, or nothing if all had: the page says it once."""
        kinds: dict[bool, set[str]] = {}
        for summary in self.source.measured:
            kinds.setdefault(summary.synthetic, set()).add(summary.cell.network)
        return kinds.get(True, set()) if len(kinds) > 1 else set()

    @cached_property
    def _varied(self) -> Mapping[str, tuple[SweptField, ...]]:
        """Return the fields that vary among the places of each network."""
        return varied_fields(self.places, self.source.analysis.scenarios)


def value_text(measure: StudyMeasure, value: StudyValue | None, missing: str = "–") -> str:
    """Return a measured value for people, with its interval: `≈ 46.4 s ± 1.2%`.

    `≈` marks a projected value, and `⚠` a doubtful one. An accuracy after too few epochs says after how many.
    """
    if value is None:
        return missing
    words = text.with_interval(f"{'≈ ' * value.projected}{measure.text(value.value)}", value.interval)
    words += f"{text.NO_BREAK}⚠" * value.doubtful
    return f"{words} after {format_count(value.epochs, 'epoch')}" if value.epochs else words
