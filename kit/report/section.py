"""Define a section of the report and the input from which every section is made."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from kit.analysis.measured_launch import MeasuredLaunch
from kit.analysis.pairing import Measure
from kit.analysis.run_analysis import RunAnalysis
from kit.analysis.summaries import CellSummary, Ratio, RatioKind, short_names
from kit.analysis.sweeps import value_of, value_words, values_of, varied_fields
from kit.model.record import Record
from kit.model.run import Run
from kit.model.swept import SweptField
from kit.model.tariff import Tariff
from kit.planning.studies import Study
from kit.report.marks import sort_key
from scenarios.catalog import scenario_of
from scenarios.contract.cell import Cell
from scenarios.contract.result import Result
from scenarios.spec import hidden_layers

SUFFIXES: Mapping[SweptField, str] = {"batch": "b", "workers": "workers", "hidden_layers": "hidden"}


@dataclass(frozen=True)
class ReportInput:
    """The input of all sections.

    titles: name of a framework to its display name. studies: the published studies by name. study_faults: why the files
    of other studies cannot be used, by name. tariff: the prices of the machine, if they were given.
    """

    analysis: RunAnalysis
    titles: Mapping[str, str]
    studies: Mapping[str, Study] = field(default_factory=dict)
    study_faults: Mapping[str, str] = field(default_factory=dict)
    tariff: Tariff | None = None

    @property
    def run(self) -> Run:
        """Return the run."""
        return self.analysis.run

    @cached_property
    def measured(self) -> list[CellSummary]:
        """Return the summary of each cell with an `ok` launch."""
        return [cell for cell in self.analysis.cells if cell.launches]

    @cached_property
    def rows(self) -> dict[str, list[CellSummary]]:
        """Return the measured cells that are compared with each other.

        The key is the scenario with its variant. If the scenario was measured at several batch sizes, numbers of
        workers or of hidden layers, the key has this number, too: `mnist-cnn/b64`. The rows of a scenario are in the
        order of these numbers.
        """
        scenarios, rows = self.analysis.scenarios, dict[str, list[CellSummary]]()
        labels = list(dict.fromkeys(summary.cell.label for summary in self.measured))
        for summary in sorted(self.measured, key=lambda s: (labels.index(s.cell.label), values_of(s.cell, scenarios))):
            numbers = ((field, value_of(summary.cell, field, scenarios)) for field in self.varied[summary.cell.label])
            suffixes = (f"/{SUFFIXES[field]}{'default' if value is None else value}" for field, value in numbers)
            rows.setdefault("".join([summary.cell.label, *suffixes]), []).append(summary)
        return rows

    @cached_property
    def varied(self) -> dict[str, tuple[SweptField, ...]]:
        """Return what varies among the measured cells of each scenario, by its label."""
        return varied_fields((summary.cell for summary in self.measured), self.analysis.scenarios)

    def ratios(self, kind: RatioKind, measure: Measure = Measure.TRAINING) -> list[Ratio]:
        """Return the ratios of this kind between measured cells."""
        return [ratio for ratio in self.analysis.ratios[measure] if ratio.kind == kind]

    @cached_property
    def single_launches(self) -> dict[str, MeasuredLaunch]:
        """Return the launch of each cell that has only one ok launch, by key. It shows the spread within a launch."""
        return {key: launches[0] for key, launches in self.analysis.launches.items() if len(launches) == 1}

    @cached_property
    def results(self) -> list[tuple[Record, Result]]:
        """Return the records that have a result, each with its result."""
        return [(record, record.result) for record in self.run.records if record.result is not None]

    @cached_property
    def _settings(self) -> dict[str, Mapping[str, str]]:
        return {record.key: record.request.settings for record in self.run.records if record.request}

    def settings(self, summary: CellSummary) -> Mapping[str, str]:
        """Return the settings of a measured cell. They are empty in the stock lane."""
        return self._settings.get(summary.key, {})

    @cached_property
    def _names(self) -> dict[str, str]:
        cells = [summary.cell for summary in self.analysis.cells]
        return {cell.key: name for cell, name in zip(cells, short_names(cells), strict=True)}

    def network(self, cell: Cell) -> str:
        """Return the title of a cell's network, or its id if the network is unknown or has changed since the run.

        It says the number of hidden layers if this number varies, or if it is not that of the scenario.
        """
        scenario = scenario_of(cell, self.analysis.scenarios)
        if scenario is None:
            return cell.network
        if cell.hidden_layers is None and "hidden_layers" in self.varied.get(cell.label, ()):
            return f"{scenario.title}, {value_words('hidden_layers', hidden_layers(scenario))}"
        return scenario.title

    def row_title(self, cell: Cell) -> str:
        """Return the title of a cell's network, with the batch size and the loader workers if they vary in the run."""
        fields = [field for field in self.varied.get(cell.label, ()) if field != "hidden_layers"]
        values = (value_words(field, value_of(cell, field, self.analysis.scenarios)) for field in fields)
        return ", ".join([self.network(cell), *values])

    def details(self, cell: Cell, *, batch: bool = True) -> str:
        """Return the id of a cell's network, with the batch size and the loader workers: `catdog-cnn · batch 32`.

        batch: False to name the batch size only if it varies. Workers are named if they were chosen.
        """
        fields = self.varied.get(cell.label, ())
        parts = [cell.label]
        if batch or "batch" in fields:
            parts.append(value_words("batch", cell.batch))
        if cell.workers is not None or "workers" in fields:
            parts.append(value_words("workers", cell.workers))
        return " · ".join(part.replace(" ", "\N{NO-BREAK SPACE}") for part in parts)

    def name(self, key: str) -> str:
        """Return the name of a cell in this report."""
        return self._names.get(key, key)

    def launch_name(self, record: Record) -> str:
        """Return the name of a launch in this report."""
        return f"{self.name(record.key)} #{record.launch}"

    @cached_property
    def frameworks(self) -> list[str]:
        """Return the frameworks of the measured cells, in the fixed order."""
        return sorted({summary.cell.framework for summary in self.measured}, key=sort_key)

    def framework_title(self, framework: str) -> str:
        """Return the display name of a framework, or its name if it is unknown."""
        return self.titles.get(framework, framework)


@dataclass(frozen=True)
class Section:
    """One section of the report.

    Each module of `kit.report.sections` defines one as SECTION. position: sections are shown in this order. data: makes
    the content, or returns None if there is nothing to show. template: file name of the partial template next to the
    module, which sees `section` and `data`; the default shows one Table. It contains neither the `section` element nor
    the heading: `report.html` adds them.

    question: what a reader wants to know, for example `Which framework is fastest here?`. The data of a section with a
    question have a `heading`: the answer, which is shown as the section's heading. folded: a section without a question
    is folded at the end of the report. Its summary is its title, and `data.summary` as small print if there is one.
    """

    position: int
    anchor: str
    title: str
    data: Callable[[ReportInput], Any]
    template: str = "one_table.html"
    question: str = ""

    @property
    def folded(self) -> bool:
        """Return whether the section is folded."""
        return not self.question


@dataclass(frozen=True)
class Chapters:
    """Sections whose number depends on the run. A module of `kit.report.sections` may define them as SECTION.

    position: of the first one, which sorts them among the other sections.
    """

    position: int
    sections: Callable[[ReportInput], tuple[Section, ...]]
