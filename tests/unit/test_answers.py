"""The answers of a run and its reliability, in every state, as one golden file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace

import pytest

from kit.analysis.answer import Level, State
from kit.analysis.answers import answers
from kit.analysis.gpu_answer import best_ratios
from kit.analysis.pairing import Measure
from kit.analysis.reliability import reliability
from kit.analysis.run_analysis import RunAnalysis, analyze_run
from kit.analysis.summaries import contests
from kit.model.record import Record
from kit.model.run import Run
from kit.planning import catalog
from scenarios.contract.reasons import Status
from tests import examples
from tests.unit.test_golden import GOLDEN, check

TITLES = {"torch": "PyTorch", "tensorflow": "TensorFlow", "onnxruntime": "ONNX Runtime"}
NETWORKS = ("mnist-cnn", "cifar-cnn")
Speeds = dict[tuple[str, str], float]  # images/s by framework and device
LEAD: Speeds = {("tensorflow", "cpu"): 1000.0, ("onnxruntime", "cpu"): 800.0, ("torch", "cpu"): 500.0}
TIE: Speeds = dict.fromkeys(LEAD, 1000.0)


def measured(speeds: Speeds, launches: int = 1, noise: float = 0.01, data: str = "synthetic") -> list[Record]:
    """Return the records of two networks. In each round, the speeds change by `noise` in one of two patterns."""
    return [
        examples.record(
            examples.request(examples.cell(network, framework, device), launch=launch, data=data),
            speed * (1 + noise * ((launch * (place + 1)) % 3)),
        )
        for network in NETWORKS
        for place, ((framework, device), speed) in enumerate(speeds.items())
        for launch in range(1, launches + 1)
    ]


def skipped(device: str = "cuda") -> list[Record]:
    """Return the records of cells that cannot run."""
    request = examples.request(examples.cell("mnist-cnn", "torch", device))
    return [examples.failed(request, Status.SKIPPED, message="No NVIDIA GPU is visible.", remedy="Run kit doctor.")]


def with_gpu(factor: float, launches: int) -> list[Record]:
    """Return records in which the GPU trains `factor` times as fast as the CPU."""
    gpu = {(framework, "cuda"): factor * speed for (framework, _), speed in LEAD.items()}
    return measured(LEAD | gpu, launches)


def analysis_of(records: Sequence[Record], profile: str = "quick") -> RunAnalysis:
    """Return the analysis of a run that planned exactly these launches."""
    planned = [examples.PlannedLaunch(cell=record.cell, launch=record.launch, named=False) for record in records]
    plan = examples.plan(planned).model_copy(update={"profile": profile})
    return analyze_run(Run(plan, examples.machine(), records), catalog.scenarios(), TITLES)


RUNS: dict[str, list[Record]] = {
    "winner": measured(LEAD, launches=5) + skipped(),
    "tie": measured(TIE, launches=5),
    "single launch": measured(LEAD) + skipped(),
    "one framework": measured({("torch", "cpu"): 500.0}, launches=2),
    "GPU faster": with_gpu(5.0, launches=5),
    "GPU slower": with_gpu(0.5, launches=5),
    "GPU ahead in one launch": with_gpu(5.0, launches=1),
    "GPU ties": with_gpu(1.0, launches=5),
    "GPU alone": measured({("torch", "cuda"): 500.0}, launches=2),
    "failed": [examples.failed(message="The launch ran out of memory."), *skipped()],
    "skipped": skipped(),
    "empty": [],
}


def test_sentences_of_every_state():
    found = {}
    for name, records in RUNS.items():
        analysis = analysis_of(records)
        given = answers(analysis, TITLES)
        found[name] = {answer.question: [answer.state, answer.headline, *answer.details] for answer in given.all}
        found[name]["reliability"] = asdict(reliability(analysis))
    check(GOLDEN / "answers.json", json.dumps(found, indent=1, ensure_ascii=False) + "\n")


@pytest.mark.parametrize("name", [name for name in RUNS if "launch" in name])
def test_a_single_launch_names_no_winner(name):
    given = answers(analysis_of(RUNS[name]), TITLES)
    assert given.framework.state is State.SINGLE
    assert "one launch" in given.framework.headline
    assert given.speed.state is State.SINGLE


def test_all_states_occur():
    states = {answer.state for records in RUNS.values() for answer in answers(analysis_of(records), TITLES).all}
    assert states == set(State)


def test_latency_is_compared_as_calls_per_second():
    records = measured(LEAD, launches=2)
    result = records[0].result
    assert result
    assert result.inference
    slow = replace(result, inference=replace(result.inference, p50_ms=3.0))
    records[0] = records[0].model_copy(update={"result": slow})
    contest = contests(analysis_of(records).cells, records, Measure.LATENCY)[0]
    ratios = {ratio.denominator.cell.framework: ratio.ratio for ratio in contest.ratios}
    assert contest.leader.cell.framework != "tensorflow"
    assert ratios["tensorflow"] == pytest.approx((2.0 * 1.0) ** 0.5)


def test_the_gpu_is_compared_with_the_best_cpu_cell():
    (first, _) = best_ratios(analysis_of(with_gpu(5.0, launches=1)), Measure.TRAINING)
    assert (first.ratio.numerator.cell.framework, first.ratio.denominator.cell.framework) == (
        "tensorflow",
        "tensorflow",
    )
    assert first.ratio.ratio == pytest.approx(5.0, rel=0.03)


@pytest.mark.parametrize(
    ("launches", "profile", "level"),
    [(1, "smoke", Level.WORKS), (4, "quick", Level.FIRST_LOOK), (5, "standard", Level.COMPARISON)],
)
def test_level(launches, profile, level):
    assert reliability(analysis_of(measured(LEAD, launches), profile)).level is level


def test_real_data_and_narrow_intervals_are_for_publication():
    run = analysis_of(measured(LEAD, launches=6, noise=0.001, data="real"), "standard")
    found = reliability(replace(run, warnings=[]))
    assert (found.level, found.next) == (Level.PUBLICATION, None)


def test_the_next_command_does_not_run_what_a_stranger_named():
    records = [examples.record(examples.request(framework="torch; rm -rf ~"))]
    found = reliability(analysis_of(records)).next
    assert found
    assert found.command == (
        "kit run --scenario mnist-cnn --framework 'torch; rm -rf ~' --device cpu --engine fake --profile standard"
    )
