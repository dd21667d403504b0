"""The answers of a run and its reliability, in every state, as one golden file."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from kit.analysis.answer import Fact, Level, State
from kit.analysis.answers import answers
from kit.analysis.diagnosis import Diagnosis
from kit.analysis.diagnosis_rules import Bottleneck
from kit.analysis.gpu_answer import best_ratios
from kit.analysis.pairing import Measure
from kit.analysis.reliability import reliability, unsteady_cells
from kit.analysis.run_analysis import RunAnalysis, analyze_run
from kit.analysis.warnings import RunWarning, WarningCode
from kit.cli import results
from kit.execution.reporting import FinishedRun
from kit.model.record import Record
from kit.model.run import Run
from kit.planning import catalog
from kit.report.render import render
from kit.report.text import NO_BREAK
from kit.report.view import make_view
from scenarios.contract.reasons import Status
from scenarios.contract.request import Budget
from tests import examples, report_runs
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
    "GPU behind in one launch": with_gpu(0.5, launches=1),
    "GPU ties": with_gpu(1.0, launches=5),
    "GPU undecided": measured(LEAD, launches=2) + measured({("tensorflow", "cuda"): 1300.0}, launches=2, noise=0.4),
    "GPU alone": measured({("torch", "cuda"): 500.0}, launches=2),
    "failed": [examples.failed(message="The launch ran out of memory."), *skipped()],
    "skipped": skipped(),
    "empty": [],
}


def without_step_timing(records: Sequence[Record]) -> list[Record]:
    """Return the records as a profile makes them that does not time single steps."""
    found = []
    for record in records:
        assert record.result
        found.append(record.model_copy(update={"result": replace(record.result, step_timing=None)}))
    return found


def analyses() -> dict[str, RunAnalysis]:
    """Return a run for each state of each answer, and for each reason why one is missing."""
    found = {name: analysis_of(records) for name, records in RUNS.items()}
    failed = examples.failed(
        examples.request(examples.cell(NETWORKS[0], device="cuda")), message="It ran out of memory."
    )
    apart = [measured({(name, "cpu"): 500.0}) for name in ("torch", "tensorflow")]
    return found | {
        "smoke": analysis_of(without_step_timing(measured(LEAD)), profile="smoke"),
        "GPU failed": analysis_of([*measured(LEAD), failed]),
        "a framework for each network": analysis_of(one_each(*apart)),
        "changed networks": replace(found["winner"], diagnoses=[]),
        "limits": analyze_run(report_runs.cuda(), catalog.scenarios(), TITLES),
    }


def test_sentences_of_every_state():
    found = {}
    for name, analysis in analyses().items():
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


@pytest.mark.parametrize("leader", ["onnxruntime", "torch"])
def test_a_leader_without_a_trainer_says_so(leader):
    speeds = {(name, "cpu"): 900.0 if name == leader else 500.0 for name in ("onnxruntime", "torch")}
    given = answers(analysis_of(measured(speeds, launches=5)), TITLES)
    assert ("has no trainer" in " ".join(given.framework.details)) == (leader == "onnxruntime")


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
    contest = analysis_of(records).contests[Measure.LATENCY][0]
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


def test_a_warning_about_the_whole_run_is_one_about_each_cell():
    analysis = analysis_of(measured(LEAD, launches=5))
    key = analysis.cells[0].key
    drift, jump, load = (
        RunWarning(code, about, f"{code}.", "Look.")
        for code, about in ((WarningCode.DRIFT, ""), (WarningCode.JUMP, key), (WarningCode.OTHER_LOAD, ""))
    )
    found = unsteady_cells(replace(analysis, warnings=[drift, jump]))
    assert found.keys() == {cell.key for cell in analysis.cells}
    assert found[key] == "drift. jump."
    assert {*found.values()} == {"drift.", "drift. jump."}
    assert not unsteady_cells(replace(analysis, warnings=[drift, jump]), Measure.LATENCY), "they come from training"
    assert unsteady_cells(replace(analysis, warnings=[load]), Measure.LATENCY).keys() == found.keys()


def test_speeds_from_one_launch_are_named_if_others_have_several():
    given = answers(analysis_of(one_each(measured(LEAD, launches=1), measured(LEAD, launches=5))), TITLES).speed
    assert given.state is State.SINGLE
    assert given.headline.startswith("It trains ")
    assert "Some of these speeds come from one launch." in given.details


def test_the_speed_of_a_sweep_names_the_batch_size():
    cells = [replace(examples.cell("mnist-cnn", "torch", "cpu"), batch=batch) for batch in (32, 2048)]
    speeds = zip(cells, (1000.0, 3000.0), strict=True)
    records = [examples.record(examples.request(each), speed) for each, speed in speeds]
    given = answers(analysis_of(records), TITLES).speed
    assert given.headline == "In one launch, it trains mnist-cnn at 3,000 images/s"
    assert given.details[0] == "This is its speed at batch 2,048, the fastest of 2 batch sizes."
    assert not any("batch" in detail for detail in answers(analysis_of(records[:1]), TITLES).speed.details)


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


def one_each(first: Sequence[Record], second: Sequence[Record]) -> list[Record]:
    """Return the records of the first network from `first`, and those of the second one from `second`."""
    sides = zip(NETWORKS, (first, second), strict=True)
    return [record for network, records in sides for record in records if record.cell.scenario == network]


def with_slow_prediction(records: Sequence[Record], p50_ms: float) -> list[Record]:
    """Return the records with another latency in the first launch."""
    result = records[0].result
    assert result
    assert result.inference
    slow = replace(result, inference=replace(result.inference, p50_ms=p50_ms))
    return [records[0].model_copy(update={"result": slow}), *records[1:]]


def test_details_about_training_say_so():
    analysis = analysis_of(one_each(measured(LEAD, launches=5), measured(TIE, launches=5)))
    assert "In training, 1 network has no clear winner." in answers(analysis, TITLES).framework.details
    found = analysis_of(measured(LEAD, launches=5))
    leader = examples.cell(NETWORKS[0], "tensorflow").key
    loser = examples.cell(NETWORKS[1], "torch").key
    doubts = [RunWarning(WarningCode.JUMP, key, "It jumped.", "Look.") for key in (leader, loser)]
    given = answers(replace(found, warnings=doubts), TITLES).framework
    assert "In training, 1 of 2 winners was not steady." in given.details
    assert not any("steady" in line for line in answers(replace(found, warnings=[]), TITLES).framework.details)


def test_the_range_of_the_gpu_is_that_of_the_networks_where_it_is_faster():
    given = answers(analysis_of(one_each(with_gpu(5.0, launches=5), with_gpu(0.5, launches=5))), TITLES).gpu
    assert given.headline == (
        "For 1 of 2 networks, in training: the best GPU cell trains 5.0× as fast as the best CPU cell (± 0.0%)"
    )
    assert given.details[0] == "The GPU is slower for cifar-cnn (0.50×)."
    tied = answers(analysis_of(one_each(with_gpu(1.0, launches=5), with_gpu(0.5, launches=5))), TITLES).gpu
    assert tied.headline == (
        "No, not in training: the best GPU cell trains 0.50× as fast as the best CPU cell (± 0.0%), in 1 of 2 networks"
    )
    assert tied.details[0] == "It ties with the CPU for mnist-cnn (1.000×)."
    once = answers(analysis_of(one_each(with_gpu(5.0, launches=1), with_gpu(0.5, launches=1))), TITLES).gpu
    assert "trains 5.0× as fast" in once.headline
    assert once.headline.endswith(" in one launch each")


def test_an_unclear_limit_is_named_last_and_the_limit_of_one_network_names_it():
    analysis = analysis_of(measured(LEAD, launches=2))
    kinds = [(Bottleneck.UNCLEAR, "no clear cause")] * 4 + [(Bottleneck.COMPUTE_BOUND, "slow kernels")] * 2
    found = [
        Diagnosis(cell.key, bottleneck, "", "", None, None, None, label)
        for cell, (bottleneck, label) in zip(analysis.cells, kinds, strict=True)
    ]
    assert answers(replace(analysis, diagnoses=found), TITLES).limit.headline == (
        "Slow kernels in 2 of 6 cells (cifar-cnn), no clear cause in 4"
    )


def test_the_page_says_what_a_cell_is_before_it_counts_cells():
    lede = make_view(analysis_of(measured(LEAD, launches=2)), TITLES).lede
    assert lede.endswith(": 6 cells, each a network in one framework on one device.")
    alone = make_view(analysis_of(measured(LEAD)[:1]), TITLES).lede
    assert alone.endswith(": 1 cell, a network in one framework on one device.")


def test_the_widest_interval_of_each_measure_counts():
    """The interval of five launches is their range. Speeds are 1,000, 1,001 and 1,002, latencies 1.5 and 3 ms."""
    records = with_slow_prediction(measured(LEAD, launches=5, noise=0.001, data="real"), 3.0)
    found = reliability(replace(analysis_of(records, "standard"), warnings=[]))
    assert (
        Fact(False, "Widest intervals of all cells: training ± 0.1%, throughput ± 0.1%, latency ± 100%") in found.facts
    )
    assert found.level is Level.COMPARISON
    assert found.next
    assert found.next.lacks == "intervals within ± 5% (1 of 18 is wider: ± 100%)"
    assert found.next.caveat.startswith("More rounds may not make these intervals narrow enough")


@pytest.mark.parametrize(("latency", "width", "enough"), [(1.6, "6.7%", True), (1.62, "8.0%", False)])
def test_only_intervals_that_more_rounds_may_not_narrow_enough_have_a_caveat(latency, width, enough):
    """The other latencies are 1.5 ms. Twice as many rounds make an interval narrower by a factor of 1.4."""
    records = with_slow_prediction(measured(LEAD, launches=5, noise=0.001, data="real"), latency)
    found = reliability(replace(analysis_of(records, "standard"), warnings=[])).next
    assert found
    assert found.lacks == f"intervals within ± 5% (1 of 18 is wider: ± {width})"
    assert (found.caveat == "") == enough


def test_page_and_terminal_say_what_a_run_lacks_and_which_data_to_fetch():
    analysis = analysis_of(measured(LEAD, launches=6, noise=0.2), "standard")
    found = reliability(analysis).next
    assert found
    finished = FinishedRun(Path("reports/r1"), Path("reports/r1/index.html"), analysis, 0)
    terminal = " ".join(" ".join(results.lines(finished, TITLES, 80)).split())
    assert "on an idle machine; before it, kit data fetch mnist cifar-10; this run lacks intervals within" in terminal
    page = " ".join(html.unescape(render(make_view(analysis, TITLES))).replace(NO_BREAK, " ").split())
    assert f"<code>{found.fetch}</code> and then <code>{found.command}</code> This run lacks {found.lacks}." in page
    assert f"{found.lacks}. {found.caveat}</p>" in page


def test_a_run_that_used_the_profile_needs_more_rounds_than_it_had():
    found = reliability(analysis_of(measured(LEAD, launches=6, noise=0.2), "standard")).next
    assert found
    assert found.level is Level.PUBLICATION
    assert found.command.endswith(" --profile standard --rounds 12")
    assert found.note.startswith("12 rounds in about ")
    assert found.note.endswith(" on an idle machine")
    assert found.fetch == "kit data fetch mnist cifar-10"
    assert found.lacks.startswith("intervals within ± 5% (8 of 18 are wider, up to ± ")
    assert found.lacks.endswith(" and real data")
    quick = reliability(analysis_of(measured(LEAD, launches=6, noise=0.2))).next
    assert quick
    assert quick.command.endswith(" --profile standard")


def with_epochs(record):
    """Return a launch whose budget is one epoch."""
    return record.model_copy(update={"request": replace(record.request, budget=Budget(epochs=1))})


def test_the_time_of_the_next_level_does_not_count_epochs():
    """The same launches, but each trained for an hour more."""
    records, longer = measured(LEAD), []
    for record in records:
        assert record.result
        assert record.result.telemetry
        telemetry = replace(record.result.telemetry, to_at=record.result.telemetry.to_at + 3600)
        result = replace(record.result, telemetry=telemetry)
        longer.append(record.model_copy(update={"result": result, "seconds": record.seconds + 3600}))
    whole = [[with_epochs(record) for record in each] for each in (records, longer)]
    notes = [found.note for each in whole if (found := reliability(analysis_of(each, "full")).next)]
    assert len(notes) == 2
    assert notes[0] == notes[1]
    assert notes[0].endswith("; it measures speeds, but trains no whole epochs")
    quick = reliability(analysis_of(longer)).next
    assert quick
    assert "about 30 h" in quick.note, "a quick launch with slow steps trains for as long again"


def test_a_run_with_narrow_intervals_is_told_only_what_it_lacks():
    mixed = one_each(measured(LEAD, launches=5, noise=0.001, data="real"), measured(LEAD, launches=5, noise=0.001))
    analysis = replace(analysis_of(mixed, "standard"), warnings=[])
    found = reliability(analysis).next
    assert found
    assert found.command.endswith(" --profile standard")
    assert found.note.startswith("about ")
    assert found.note.endswith(" or more")
    assert (found.fetch, found.lacks) == ("kit data fetch cifar-10", "real data for cifar-cnn")
    assert found.caveat == ""
    jump = RunWarning(WarningCode.JUMP, examples.cell(NETWORKS[0], "torch").key, "It jumped.", "Look.")
    unsteady = reliability(replace(analysis, warnings=[jump])).next
    assert unsteady
    assert unsteady.note.endswith(" on an idle machine")
    assert unsteady.lacks.startswith("a steady machine (in training, 1 of 6 cells was not steady)")
    chosen = analysis.run.plan.model_copy(update={"data": "synthetic"})
    again = reliability(replace(analysis, run=replace(analysis.run, plan=chosen))).next
    assert again
    assert "--data" not in again.command
