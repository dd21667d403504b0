"""What follows from the files of a run, concluded once for terminal, programs and report. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kit.analysis.ceilings import Ceilings, best
from kit.analysis.diagnosis import Diagnosis, diagnose_all
from kit.analysis.warnings import RunWarning, find_warnings
from kit.model.cell import Scenarios
from kit.model.machine import Machine
from kit.model.plan import Plan
from kit.model.record import Record
from scenarios.spec import digest


@dataclass(frozen=True)
class RunAnalysis:
    """A run's files and the conclusions. scenarios: of the catalogue those that are still as they were measured."""

    plan: Plan
    machine: Machine
    records: Sequence[Record]
    probes: Sequence[Record]
    scenarios: Scenarios
    ceilings: Ceilings
    warnings: list[RunWarning]
    diagnoses: list[Diagnosis]
    tunings: Sequence[Record]


def analyze_run(
    plan: Plan,
    machine: Machine,
    records: Sequence[Record],
    probes: Sequence[Record],
    catalogue: Scenarios,
    tunings: Sequence[Record] = (),
) -> RunAnalysis:
    """Conclude. machine: of the run. probes: the records of its ceilings. catalogue: as it is today. tunings: the
    records of its searches for settings."""
    scenarios = unchanged(catalogue, records)
    return RunAnalysis(
        plan=plan,
        machine=machine,
        records=records,
        probes=probes,
        scenarios=scenarios,
        ceilings=best(probes),
        warnings=find_warnings(plan, machine, records, probes),
        diagnoses=diagnose_all(records, probes, scenarios, machine),
        tunings=tunings,
    )


def unchanged(catalogue: Scenarios, records: Sequence[Record]) -> Scenarios:
    """The catalogue without what was defined otherwise when these records were made: what is counted from the layers
    would be of another network."""
    specs = {(record.request.scenario, record.request.variant): record.request.spec for record in records}
    return {
        name: {
            variant: scenario
            for variant, scenario in variants.items()
            if specs.get((name, variant)) in {None, digest(scenario)}
        }
        for name, variants in catalogue.items()
    }
