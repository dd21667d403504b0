"""Test that the analysis of a run does not use scenarios that changed since then."""

from __future__ import annotations

from dataclasses import replace

from kit.analysis.run_analysis import RunAnalysis, analyze_run
from kit.model.run import Run
from kit.planning import catalog
from scenarios.contract.result import StepTime, StepTiming
from tests import examples


def analyzed(spec: str) -> RunAnalysis:
    asked = replace(examples.request(), spec=spec)
    result = replace(examples.result(asked), step_timing=StepTiming([StepTime(asked.cell.batch, [0.05])]))
    record = examples.record(asked, result=result)
    run = Run(examples.plan([examples.planned()]), examples.machine(), [record])
    return analyze_run(run, catalog.scenarios())


def test_nothing_is_computed_from_the_layers_of_a_changed_scenario():
    same, other = analyzed(examples.request().spec), analyzed("0" * 64)
    assert [diagnosis.key for diagnosis in same.diagnoses] == [examples.cell().key]
    assert other.diagnoses == []
    scenario = examples.cell().scenario
    assert same.scenarios == catalog.scenarios()
    assert set(same.scenarios[scenario]) - set(other.scenarios[scenario]) == {examples.cell().variant}
