"""Test the answers of studies: speedups, overfitting and accuracies, also where launches decide nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kit.analysis.accuracy_ladder import make_ladder
from kit.analysis.diagnosis import Diagnosis
from kit.analysis.diagnosis_rules import Bottleneck
from kit.analysis.intervals import Interval
from kit.analysis.overfitting import Overfitting, find_overfitting
from kit.analysis.pairing import Measure
from kit.analysis.run_analysis import analyze_run
from kit.analysis.study_speedup import judge_speedups
from kit.analysis.study_values import StudyValue
from kit.model.record import Record
from kit.model.run import Run
from kit.planning.study_files import STEADY, VALIDATED, VALIDATION
from kit.report.render import render
from kit.report.view import make_view
from scenarios.contract.cell import Lane
from scenarios.contract.result import Epoch
from tests.examples import with_speed
from tests.study_runs import BOTH, SCENARIOS, STUDIES, TITLES, chapter, part, study_run


def with_epochs(run: Run, change: Callable[[Record, Epoch], Epoch]) -> Run:
    """Return a run with other results of its whole epochs."""
    records = []
    for record in run.records:
        training = record.result.training
        epochs = [change(record, epoch) for epoch in training.epochs]
        result = replace(record.result, training=replace(training, epochs=epochs))
        records.append(record.model_copy(update={"result": result}))
    return replace(run, records=records)


def with_losses(run: Run, losses: dict[str, Sequence[float]]) -> Run:
    """Return a run with other validation losses on a kind of device."""

    def change(record: Record, epoch: Epoch) -> Epoch:
        own = losses.get(record.cell.device)
        return replace(epoch, test_loss=own[epoch.index - 1]) if own else epoch

    return with_epochs(run, change)


@pytest.mark.parametrize(
    ("losses", "lowest", "begun"),
    [
        ([1.5, 1.2, 1.0, 1.1, 1.2, 1.3, 1.4], 3, True),
        ([1.5, 1.2, 1.0, 1.1, 1.2, 1.3], 3, None),  # three rising epochs may be chance
        ([1.0, 0.9, 0.8, 0.82, 0.81, 0.83, 0.80, 0.82, 0.81], 3, False),  # it fluctuates around its minimum
        ([1.0, 0.9, 0.8, 0.7, 0.6], 5, None),
        ([1.0] * 9, 1, False),
    ],
)
def test_overfitting_begins_at_the_lowest_loss_before_a_rising_trend(losses, lowest, begun):
    assert find_overfitting(losses) == Overfitting(lowest, begun)


FALLING = [2 - 0.1 * epoch for epoch in range(15)]  # the lowest is the last one
FLAT = [1.0, 0.9, *(0.8 + 0.01 * (epoch % 2) for epoch in range(13))]


@pytest.mark.parametrize(
    ("on_the_cpu", "words"),
    [
        (FALLING, "15 epochs on the CPU are too few to show overfitting (lowest loss: epoch 15)"),
        (FLAT, "no overfitting shows on the CPU within 15 epochs"),
    ],
)
def test_a_device_without_overfitting_says_whether_it_can_be_seen_yet(on_the_cpu, words):
    both = with_losses(study_run("cifar-epochs", devices=BOTH, epochs=True), {"cpu": on_the_cpu})
    begins = "Overfitting begins on the GPU after epoch 7, where the validation loss is lowest"
    assert chapter("cifar-epochs", both).heading == f"{begins}; {words}"
    alone = with_losses(study_run("cifar-epochs", epochs=True), {"cpu": on_the_cpu})
    assert chapter("cifar-epochs", alone).heading == f"{words[0].upper()}{words[1:]}"


def test_curves_of_a_device_that_differ_are_counted():
    losses = {"tensorflow": FALLING, "onnxruntime": FLAT, "torch": FLAT}
    run = study_run("cifar-epochs", epochs=True)
    mixed = with_epochs(run, lambda r, e: replace(e, test_loss=losses[r.cell.framework][e.index - 1]))
    assert chapter("cifar-epochs", mixed).heading == (
        "15 epochs on the CPU are too few to show overfitting in 1 of 3 curves (lowest loss: epoch 15)"
    )


def test_losses_of_synthetic_data_show_no_overfitting():
    curves = part(chapter("cifar-epochs", epochs=True, data="synthetic"), "Learning curves").content
    assert curves.charts
    assert not curves.findings
    assert not any(chart.spots for chart in curves.charts)


def trainings(*accuracies, seed=0):
    return {(name, seed): [accuracy] for name, accuracy in zip("abc", accuracies, strict=False)}


def test_a_ladder_counts_only_differences_that_exceed_those_between_trainings():
    base, noisy = trainings(0.800, 0.806, 0.803), trainings(0.815, 0.790, 0.808)
    better, worse = trainings(0.850, 0.855, 0.852), trainings(0.820, 0.827, 0.823)
    ladder = make_ladder([base, noisy, better, worse], [0.80, 0.84, 0.85, 0.90])
    assert (ladder.pairs, ladder.seeds) == (6, 1)
    assert ladder.decided == 3  # base < better, base < worse, worse < better; noisy is not told apart from any
    assert ladder.agreeing == 2
    one = make_ladder([trainings(0.80), trainings(0.94)], [0.80, 0.94])
    assert (one.pairs, one.decided) == (1, 0)  # one training shows nothing of chance
    unknown = make_ladder([base, better], [0.80, None])
    assert unknown.pairs == 0


def test_the_answer_says_how_many_pairs_are_told_apart():
    run = study_run("catdog-depth", epochs=True)
    rise = {"": 0.0, "conv": 0.03, "conv-dropout": 0.06, "no-augment": 0.09, "128": 0.12, "deep": 0.0}
    noise = {"tensorflow": 0.001, "onnxruntime": -0.001, "torch": 0.0}

    def raised(record: Record, epoch: Epoch) -> Epoch:
        more = rise[record.cell.variant] + noise[record.cell.framework]
        return replace(epoch, test_accuracy=epoch.test_accuracy + more)

    better = with_epochs(run, raised)
    shown = chapter("catdog-depth", better)
    assert shown.heading.endswith(
        "; in 10 of 10 pairs, variants differ by more than trainings of the same variant do (1 seed), "
        "and 9 of these 10 have the published order"
    )
    rise = dict.fromkeys(rise, 0.0) | {"conv-dropout": 0.06, "128": 0.12}
    steps = [r for r in with_epochs(run, raised).records if r.cell.variant in {"", "conv-dropout", "128"}]
    assert chapter("catdog-depth", replace(run, records=steps)).heading.endswith(
        "; in 3 of 3 pairs, variants differ by more than trainings of the same variant do (1 seed), "
        "and all of these have the published order"
    )
    alone = [record for record in better.records if record.cell.framework == "torch"]
    shown = chapter("catdog-depth", replace(run, records=alone))
    assert shown.heading.endswith("; the order of the variants cannot be told from so few trainings (1 seed)")


def between(value: float, low: float, high: float) -> StudyValue:
    return StudyValue(value, Interval(value, low, high))


def test_speedups_are_counted_by_what_their_intervals_say():
    near, far, wide = between(0.98, 0.95, 1.02), between(0.8, 0.7, 0.9), between(1.0, 0.3, 3.0)
    mixed = judge_speedups([near, far, wide], [])
    assert (mixed.count, mixed.tied, mixed.undecided, mixed.slower, mixed.low, mixed.high) == (3, 1, 1, 1, 0.8, 1.0)
    assert judge_speedups([StudyValue(1.0)], []).tied == 0  # one launch decides nothing


def test_a_speedup_without_an_interval_decides_nothing_and_a_limit_holds_for_most_cells():
    alone = judge_speedups([StudyValue(0.5), between(0.5, 0.4, 0.6)], [])
    assert (alone.slower, alone.single) == (1, True)
    limits = [Diagnosis(str(n), Bottleneck.INPUT_BOUND, "", "", None, None, None, "waiting for data") for n in range(2)]
    unclear = replace(limits[0], bottleneck=Bottleneck.UNCLEAR, label="unclear")
    assert judge_speedups([StudyValue(2.0)], [*limits, unclear]).limit == "waiting for data"
    assert judge_speedups([StudyValue(2.0)], [*limits, unclear, unclear]).limit == ""  # not more than half


def on_gpu(run: Run, speeds: Callable[[Record], float]) -> Run:
    """Return a run with other training speeds on the GPU."""
    return replace(
        run,
        records=[with_speed(r, Measure.TRAINING, speeds(r)) if r.cell.device == "cuda" else r for r in run.records],
    )


def test_a_speedup_that_launches_do_not_show_is_undecided():
    run = study_run("mnist-cpu-vs-gpu", devices=BOTH, frameworks=("torch", "tensorflow"))
    apart = on_gpu(run, lambda record: 300.0 if record.launch == 1 else 3000.0)
    heading = chapter("mnist-cpu-vs-gpu", apart).heading
    assert heading.startswith("Undecided: the GPU trains at ")
    assert heading.count("because launches differ") == 1
    assert heading.endswith("; 2 of 2 speedups are doubtful")
    one = on_gpu(run, lambda r: 12_000.0 if r.cell.framework == "torch" else 300.0 if r.launch == 1 else 3000.0)
    assert ", undecided in 1 of 2 cells (published: 1×)" in chapter("mnist-cpu-vs-gpu", one).heading
    same = {(r.cell.framework, r.launch): r.result.training.images_per_s for r in run.records if r.cell.device == "cpu"}
    tied = on_gpu(run, lambda record: same[record.cell.framework, record.launch])
    assert chapter("mnist-cpu-vs-gpu", tied).heading.startswith("A tie: the GPU trains at 1.000× the speed of the CPU")


def test_a_doubtful_time_of_the_answer_is_called_so():
    run = study_run("mnist-cpu-vs-gpu", frameworks=("torch", "tensorflow"))

    def heading(unsteady: str) -> str:
        records = []
        for record in run.records:  # PyTorch is always the fastest
            factor = 3.0 if record.cell.framework == unsteady and record.launch == 1 else 1.0
            speed = (9000.0 if record.cell.framework == "torch" else 1000.0) * factor
            records.append(with_speed(record, Measure.TRAINING, speed))
        return chapter("mnist-cpu-vs-gpu", replace(run, records=records)).heading

    assert " (doubtful) on the CPU in PyTorch; the speedup" in heading("torch")
    assert "doubtful" not in heading("tensorflow")


def test_a_published_speedup_names_its_network_beside_others():
    run = study_run("mlp-cpu-vs-gpu", devices=BOTH, frameworks=("torch",), launches=1)
    heading = chapter("mlp-cpu-vs-gpu", run).heading
    (wide,) = [scenario for variant, scenario in SCENARIOS["cifar-mlp"].items() if variant == "sigmoid"]
    assert heading.endswith(f"the speed of the CPU in one launch each (published: 14× for {wide.title})")
    others = replace(run, records=[r for r in run.records if r.cell.label != "cifar-mlp+sigmoid"])
    assert "published" not in chapter("mlp-cpu-vs-gpu", others).heading


def test_launches_that_have_no_common_round_are_not_called_single():
    run = study_run("mnist-cpu-vs-gpu", devices=BOTH, frameworks=("torch",))
    missing = [r for r in run.records if not (r.cell.device == "cpu" and r.launch == 2)]
    assert (
        "the speed of the CPU with too few common launches"
        in chapter("mnist-cpu-vs-gpu", replace(run, records=missing)).heading
    )


def test_frameworks_that_trained_on_different_devices_have_no_speedup():
    run = study_run("mnist-cpu-vs-gpu", devices=BOTH, frameworks=("torch", "tensorflow"))
    kept = [r for r in run.records if (r.cell.device == "cuda") == (r.cell.framework == "torch")]
    heading = chapter("mnist-cpu-vs-gpu", replace(run, records=kept)).heading
    assert heading.endswith(
        "not known: no network was trained on both the GPU and the CPU in the same framework, lane and precision"
    )


def in_lane(run: Run, lane: Lane) -> list[Record]:
    """Return the records of a run as those of another lane."""
    cells = [replace(record.cell, lane=lane) for record in run.records]
    return [
        record.model_copy(update={"cell": cell, "request": replace(record.request, cell=cell)})
        for record, cell in zip(run.records, cells, strict=True)
    ]


def test_an_unusual_lane_is_named_in_the_answer_and_beside_each_value():
    run = study_run("mnist-cpu-vs-gpu", devices=BOTH, frameworks=("torch",))
    tuned = in_lane(run, "tuned")
    on_the_cpu = [record for record in tuned if record.cell.device == "cpu"]
    one_sided = chapter("mnist-cpu-vs-gpu", replace(run, records=[*run.records, *on_the_cpu]))
    assert "tuned" not in one_sided.heading, "no speedup is of the tuned lane"
    shown = chapter("mnist-cpu-vs-gpu", replace(run, records=[*run.records, *tuned]))
    assert " (stock and tuned) " in f"{shown.heading} "
    rows = next(of for of in shown.parts if of.form == "rows").content[0].rows
    assert [text.startswith("tuned ") for _, text in rows[0].values] == [False, True]
    dense = study_run("mlp-cpu-vs-gpu", frameworks=("torch",))
    both = replace(dense, records=[*dense.records, *in_lane(dense, "tuned")])
    (devices,) = part(chapter("mlp-cpu-vs-gpu", both), "The devices and builds").content
    assert [row[0] for row in devices.rows] == ["PyTorch · CPU", "PyTorch · CPU tuned"]
    assert devices.rows[0][4].endswith(" (cifar-mlp+sigmoid)"), "the counts are of one network"


def test_accuracies_are_means_over_the_frameworks_that_all_variants_have():
    accuracy = {"tensorflow": 0.60, "onnxruntime": 0.70, "torch": 0.80}
    run = with_epochs(
        study_run("catdog-depth", epochs=True, launches=1),
        lambda record, epoch: replace(epoch, test_accuracy=accuracy[record.cell.framework]),
    )
    start = "Best validation accuracy of 70.0% with each network, means over 3 frameworks;"
    assert chapter("catdog-depth", run).heading.startswith(start)
    lacks = [r for r in run.records if (r.cell.variant, r.cell.framework) != ("128", "tensorflow")]
    heading = chapter("catdog-depth", replace(run, records=lacks)).heading
    assert heading.startswith("Best validation accuracy of 75.0% with each network")
    assert ", means over 2 frameworks" in heading
    base = [r for r in run.records if not r.cell.variant]
    heading = chapter("catdog-depth", replace(run, records=base)).heading
    assert heading.startswith("Best validation accuracy of 70.0% (")
    assert heading.endswith("), mean over 3 frameworks")
    kept = {"": "torch", "conv": "tensorflow"}
    apart = [r for r in run.records if kept.get(r.cell.variant) == r.cell.framework]
    assert ", from different trainings" in chapter("catdog-depth", replace(run, records=apart)).heading


def test_accuracies_of_several_launches_of_one_framework_are_means():
    run = study_run("catdog-depth", epochs=True, frameworks=("torch",))
    assert ", means over several trainings; " in chapter("catdog-depth", run).heading


@pytest.mark.parametrize(("rise", "order"), [(0.1, "published"), (-0.1, "opposite")])
def test_a_single_decided_pair_is_named_in_the_singular(rise, order):
    noise = {"tensorflow": 0.001, "onnxruntime": -0.001, "torch": 0.0}
    run = study_run("catdog-depth", epochs=True, launches=1)
    two = replace(run, records=[r for r in run.records if r.cell.variant in {"", "128"}])
    changed = with_epochs(
        two, lambda r, e: replace(e, test_accuracy=0.6 + noise[r.cell.framework] + rise * (r.cell.variant == "128"))
    )
    heading = chapter("catdog-depth", changed).heading
    assert "; in 1 of 1 pair, variants differ by more than " in heading
    assert heading.endswith(f", and this pair has the {order} order")


@pytest.mark.parametrize("name", STUDIES)
def test_what_differs_follows_from_the_measures(name):
    shown = {measure for part in STUDIES[name].file.parts for measure in part.shown}
    differs = STUDIES[name].file.differences
    assert (STEADY in differs, VALIDATION in differs) == ("speedup" in shown, bool(VALIDATED & shown))


def test_values_after_fewer_epochs_have_no_ratio_to_the_published_ones():
    run = study_run("mnist-batch-sweep", epochs=True, launches=1, frameworks=("torch",))
    records = []
    for record in run.records:
        training = replace(record.result.training, epochs=record.result.training.epochs[:2])
        records.append(record.model_copy(update={"result": replace(record.result, training=training)}))
    tables = part(chapter("mnist-batch-sweep", replace(run, records=records)), "Validation accuracy").figures
    here = [row[2:] for table in tables for row in table.rows if "after 2 epochs" in row[2]]
    assert here
    assert {ratio for _, ratio in here} == {"–"}


losses = st.lists(st.floats(-1e100, 1e100), min_size=15, max_size=15)


@given(test=losses, train=losses, accuracies=st.lists(st.floats(0, 1), min_size=15, max_size=15))
@example(test=[1e-170, 1e-165] * 7 + [0.0], train=[5e-324] * 15, accuracies=[0.0, 5e-324] * 7 + [0.0])
@settings(max_examples=5, deadline=None)
def test_losses_of_a_stranger_are_drawn_whatever_they_are(test, train, accuracies):
    run = with_epochs(
        study_run("cifar-epochs", epochs=True, launches=1, frameworks=("torch",)),
        lambda _, epoch: replace(
            epoch,
            test_loss=test[epoch.index - 1],
            train_loss=train[epoch.index - 1],
            test_accuracy=accuracies[epoch.index - 1],
            train_accuracy=accuracies[-epoch.index],
        ),
    )
    html = render(make_view(analyze_run(run, SCENARIOS), TITLES, STUDIES))
    assert "Loss, CPU" in html
