"""Analyze a run once, for the terminal, for programs and for the report. No input or output."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from kit.analysis.ceilings import Ceilings, best_ceilings
from kit.analysis.diagnosis import Diagnosis, diagnose_all
from kit.analysis.measured_launch import MeasuredLaunch, launches_by_cell
from kit.analysis.pairing import Measure, Rates
from kit.analysis.summaries import CellSummary, Contest, Ratio, contests, rates_by_round, ratios, summarize
from kit.analysis.warnings import RunWarning, find_warnings
from kit.model.record import Record
from kit.model.run import Run
from scenarios.catalog import Scenarios, scenario_of
from scenarios.contract.cell import Cell
from scenarios.spec import digest


@dataclass(frozen=True)
class RunAnalysis:
    """A run and its analysis.

    scenarios: the scenarios of the catalog that did not change since the run. cells: the summary of each cell, also
    of those without an `ok` launch. ceilings: see `best_ceilings`. launches: the ok launches of each cell, by its key.
    frameworks: the names of today's frameworks.
    """

    run: Run
    scenarios: Scenarios
    cells: list[CellSummary]
    ceilings: Ceilings
    warnings: list[RunWarning]
    diagnoses: list[Diagnosis]
    launches: Mapping[str, Sequence[MeasuredLaunch]]
    frameworks: Collection[str] = ()

    @cached_property
    def rates(self) -> Mapping[Measure, Mapping[str, Rates]]:
        """Return the rates of each measure, by the key of the cell and by round."""
        return {measure: rates_by_round(self.run.by_cell, measure) for measure in Measure}

    @cached_property
    def ratios(self) -> Mapping[Measure, Sequence[Ratio]]:
        """Return the ratios of cuda over cpu and of tuned over stock."""
        return {measure: ratios(self.cells, self.rates[measure], measure) for measure in Measure}

    @cached_property
    def contests(self) -> Mapping[Measure, Sequence[Contest]]:
        """Return the contests of frameworks."""
        return {measure: contests(self.cells, self.rates[measure], measure) for measure in Measure}


def analyze_run(run: Run, catalog: Scenarios, frameworks: Collection[str] = ()) -> RunAnalysis:
    """Return the analysis of a run. catalog, frameworks: those of today."""
    scenarios = unchanged(catalog, run.records)
    ceilings = best_ceilings(run.probes)
    diagnoses = diagnose_all(run, scenarios, ceilings)
    shares = {each.key: each.ceiling_share for each in diagnoses if each.ceiling_share is not None}
    launches = launches_by_cell(run.records)
    warnings = find_warnings(run, launches, shares)
    return RunAnalysis(run, scenarios, summarize(run), ceilings, warnings, diagnoses, launches, frameworks)


def unchanged(catalog: Scenarios, records: Sequence[Record]) -> Scenarios:
    """Return the catalog without the scenarios whose definition changed since these records were made.

    The layers of a changed scenario belong to another network, so nothing may be computed from them.
    """
    specs = {
        (_network(record.cell), record.request.spec): record.cell for record in records if record.request is not None
    }
    changed = {
        (cell.scenario, cell.variant)
        for (_, spec), cell in specs.items()
        if (scenario := scenario_of(cell, catalog)) is None or digest(scenario) != spec
    }
    return {
        name: {variant: scenario for variant, scenario in variants.items() if (name, variant) not in changed}
        for name, variants in catalog.items()
    }


def _network(cell: Cell) -> tuple[str, str, int | None]:
    return cell.scenario, cell.variant, cell.hidden_layers
