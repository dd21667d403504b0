"""What is concluded from a run rests on what was measured then, not on what the catalogue holds today."""

from __future__ import annotations

from dataclasses import replace

from kit.analysis.run_analysis import RunAnalysis, analyze_run
from kit.planning import catalog
from scenarios.contract.result import StepTime, StepTiming
from tests import examples


def judged(spec: str) -> RunAnalysis:
    asked = replace(examples.request(), spec=spec)
    result = replace(examples.result(asked), step_timing=StepTiming([StepTime(asked.batch, [0.05])]))
    record = examples.record(asked, result=result)
    planned = examples.plan([examples.planned()])
    return analyze_run(planned, examples.machine(), [record], [], catalog.scenarios())


def test_nothing_is_counted_from_the_layers_of_another_network():
    same, other = judged(examples.request().spec), judged("0" * 64)
    assert [diagnosis.key for diagnosis in same.diagnoses] == [examples.request().key]
    assert other.diagnoses == []
    scenario = examples.request().scenario
    assert same.scenarios == catalog.scenarios()
    assert set(same.scenarios[scenario]) - set(other.scenarios[scenario]) == {examples.request().variant}
