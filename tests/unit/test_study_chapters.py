"""Test the chapters of the report about studies: all measured, partly, and nothing, also with a GPU."""

from __future__ import annotations

import re
from base64 import b64decode
from dataclasses import replace

import pytest

from kit.analysis.reliability import reliability
from kit.analysis.run_analysis import analyze_run
from kit.analysis.step_parts import StepParts
from kit.analysis.study_values import StudyValues
from kit.planning import catalog
from kit.report.render import render
from kit.report.section import ReportInput
from kit.report.sections import studies as section
from kit.report.studies.chapter import make_chapter
from kit.report.view import make_view
from scenarios.contract.predictions import HeldOutPrediction
from tests.study_runs import BOTH, SCENARIOS, STUDIES, TITLES, chapter, part, study_run, texts


@pytest.mark.parametrize("name", STUDIES)
def test_each_part_is_filled_by_a_full_run_on_both_devices_except_for_notes(name):
    shown = chapter(name, devices=BOTH, epochs=True)
    empty = [part.title for part in shown.parts if not part.form]
    assert empty == [part.title for part in STUDIES[name].file.parts if part.kind == "note"]
    assert not shown.heading.startswith("Not measured")
    assert [lack.text for lack in shown.missing] == (
        ["kit measures one GPU, so only published figures are shown for 2 GPUs."] if name == "mnist-batch-sweep" else []
    )


@pytest.mark.parametrize("name", STUDIES)
def test_a_quick_run_on_the_cpu_fills_what_needs_only_speed_and_names_the_commands_of_the_rest(name):
    shown, file = chapter(name), STUDIES[name].file
    for of, made in zip(file.parts, shown.parts, strict=True):
        speed = of.kind not in {"note", "gpu", "curves"} and "speed" in of.needs
        assert bool(made.form) == speed, made.title
        commands = [lack.command for lack in made.lacks]
        if not speed and of.kind != "note":
            assert commands[0].startswith(f"kit run --study {name}")
            assert ("--profile full" in commands[0]) == ("epochs" in of.needs)
            gpu_alone = name == "cifar-epochs"  # all others compare with the CPU, in the same run
            on_gpu = any(place.device == "cuda" for place in STUDIES[name].places_of(of))
            assert any("--device cuda" in command for command in commands) == (on_gpu and gpu_alone)
            assert any("on a GPU" in lack.text and lack.command for lack in made.lacks) == on_gpu
    assert any("Not measured on a GPU" in lack.text for lack in shown.missing)


@pytest.mark.parametrize("name", STUDIES)
def test_a_run_without_a_result_has_only_gray_parts(name):
    run = study_run(name)
    nothing = chapter(name, replace(run, records=[]))
    assert nothing.heading == "Not measured: no cell of the study has a result"
    assert not any(part.form for part in nothing.parts)
    assert all(part.lacks[0].command for part in nothing.parts if "photos" not in part.title)


def test_published_and_measured_figures_stand_next_to_their_ratio():
    shown = chapter("mnist-cpu-vs-gpu", devices=BOTH, epochs=True)
    rows = texts(shown, "The study's figures")
    torch_s = 5 * 60_000 / 900  # 5 epochs at 900 images/s
    *_, here, ratio = rows["Training time · CPU"]
    assert rows["Training time · CPU"][0] == "350.68 s"
    assert float(here.removesuffix(" s ± 0.8%")) == pytest.approx(torch_s, rel=0.01)
    assert float(ratio.removesuffix("×")) == pytest.approx(torch_s / 350.68, rel=0.01)
    published, *gains = rows["GPU over CPU"]
    assert (published, gains[1::2]) == ("1×", ["12×"] * 3)
    assert all(re.fullmatch(r"12\.0× ± 0\.\d%", value) for value in gains[::2])
    assert rows["CPU utilization · CPU"][0] == "40.4%"
    assert shown.heading.startswith("The GPU trains at 12× the speed of the CPU (± 0.7% or less) (published: 1×)")


def test_times_are_projected_until_the_epochs_are_trained():
    quick = texts(chapter("cifar-epochs"), "Time")
    full = texts(chapter("cifar-epochs", devices=BOTH, epochs=True), "Time")
    assert all(value.startswith("≈ ") for value in quick["Training time · CPU"][1::2])
    assert not any("≈" in value for value in full["Training time · CPU"])
    assert full["Training time · GPU"][0] == "385.03 s (Tesla T4)"  # 50 epochs
    gpu_s = 50 * 50_000 / (900 * 12 * 32**0.5 / 8)
    assert float(full["Training time · GPU"][-2].removesuffix(" s ± 0.0%")) == pytest.approx(gpu_s, rel=0.01)
    assert quick["Time per epoch · CPU · epoch 1"][1:] == ("–",) * 6  # no whole epoch was timed


def test_an_epoch_after_a_resume_does_not_count_its_warm_up():
    run, resumed = study_run("mnist-cpu-vs-gpu", frameworks=("torch",), epochs=True, launches=1), []
    for record in run.records:
        training = record.result.training
        # A set of a tenth of the published size, such as that of synthetic photos.
        epochs = [
            replace(each, images=each.images // 10, seconds=each.seconds / 10 + 50 * (each.index == 4))
            for each in training.epochs
        ]
        changed = replace(record.result, training=replace(training, epochs=epochs, resumed_from=[3]))
        resumed.append(record.model_copy(update={"result": changed}))
    times = []
    for records in (run.records, resumed):
        analysis = analyze_run(replace(run, records=records), SCENARIOS)
        times.append(StudyValues(analysis).find(analysis.cells[0], "training_s", 5).value)
    assert times[1] == pytest.approx(times[0] / 10, rel=0.05)


def test_a_part_whose_gpu_cells_have_not_run_yet_says_so_although_others_of_its_network_have():
    run = study_run("catdog-depth", devices=BOTH, frameworks=("torch",))
    begun = [r for r in run.records if r.cell.device == "cpu" or r.cell.workers is None]
    lacks = [lack.text for lack in part(chapter("catdog-depth", replace(run, records=begun)), "Loader").lacks]
    assert "Not measured on a GPU: no launch on the GPU has run yet." in lacks


def test_a_profile_of_a_stranger_is_quoted_in_commands():
    run = study_run("mnist-cpu-vs-gpu", frameworks=("torch",))
    plan = run.plan.model_copy(update={"profile": "x; rm -rf ~"})
    lacks = [lack for part in chapter("mnist-cpu-vs-gpu", replace(run, plan=plan)).parts for lack in part.lacks]
    commands = [lack.command for lack in lacks if "rm" in lack.command]
    assert commands
    assert all(command.endswith("--profile 'x; rm -rf ~'") for command in commands)


def test_times_are_those_of_a_typical_launch_with_its_interval():
    run = study_run("cifar-epochs", epochs=True, frameworks=("torch",), launches=3)
    factors = {1: 3.0, 2: 1.0, 3: 1.1}  # the first launch was disturbed
    records = []
    for record in run.records:
        training = record.result.training
        slower = [replace(e, seconds=e.seconds * factors[record.launch]) for e in training.epochs]
        result = replace(record.result, training=replace(training, epochs=slower))
        records.append(record.model_copy(update={"result": result}))
    analysis = analyze_run(replace(run, records=records), SCENARIOS)
    (summary,) = analysis.cells
    values, usual = StudyValues(analysis), [e.seconds for e in records[1].result.training.epochs]
    whole, first = values.find(summary, "training_s", 15), values.find(summary, "epoch_s", 15, epoch=1)
    assert whole.value == pytest.approx(1.1 * sum(usual), rel=0.01)
    assert first.value == pytest.approx(1.1 * usual[0], rel=0.01)
    for value in (whole, first):
        assert value.interval.low < value.value < value.interval.high
        assert not value.projected
    once = replace(run, records=records[:1])
    assert StudyValues(analyze_run(once, SCENARIOS)).find(summary, "training_s", 15).interval is None


def test_a_ratio_to_a_published_range_has_both_ends():
    shown = chapter("cifar-epochs", devices=BOTH, epochs=True)
    published, *_, here, ratio = texts(shown, "Time")["Time per step · CPU"]
    assert published == "45 to 71 ms"
    value = float(here.removesuffix(" ms ± 0.8%"))
    low, high = (float(end) for end in ratio.removesuffix("×").split(" to "))
    assert (low, high) == (pytest.approx(value / 71, rel=0.05), pytest.approx(value / 45, rel=0.05))
    use = texts(chapter("catdog-depth", devices=BOTH), "How busy")
    assert use["default · GPU"][:3] == ("0 to 10% (Tesla V100)", "60%", "6.0× or more")


def test_synthetic_data_has_curves_but_no_accuracies():
    shown = chapter("cifar-epochs", epochs=True, data="synthetic")
    charts = part(shown, "Learning curves").content.charts
    assert all("synthetic data" in chart.title for chart in charts)
    assert not any(line.outline for chart in charts for line in chart.lines)
    assert not part(shown, "Accuracy and loss").form
    (lack,) = [each for each in part(shown, "Accuracy and loss").lacks if "synthetic" in each.text]
    assert lack.command == "kit run --study cifar-epochs --profile full"
    assert shown.heading == "Not measured: no cell trained whole epochs on real data"


def test_networks_with_synthetic_data_are_labeled_beside_real_ones():
    run = study_run("mlp-cpu-vs-gpu", epochs=True, data="synthetic")
    real = {r.key: r for r in study_run("mlp-cpu-vs-gpu", epochs=True).records if r.cell.scenario == "cifar-mlp"}
    shown = chapter("mlp-cpu-vs-gpu", replace(run, records=[real.get(r.key, r) for r in run.records]))
    rows = [row[0] for table in part(shown, "What limits the training").content for row in table.rows]
    assert {"fashion" in row.lower() for row in rows} == {True, False}
    assert all(("synthetic data" in row) == ("fashion" in row.lower()) for row in rows)
    charts = part(shown, "Training time of the deep network").content.charts
    outputs = ("default", "sigmoid")
    assert [chart.title for chart in charts] == [f"Training time, CPU, {each}, synthetic data" for each in outputs]
    (lack,) = [each for each in shown.missing if "accuracies" in each.text]
    assert lack.text.startswith("The data of Dense network on Fashion-MNIST")
    assert lack.text.endswith(" is synthetic, so accuracies on it say nothing about the published ones.")
    assert lack.command == "kit run --study mlp-cpu-vs-gpu --profile full"
    alone = chapter("mlp-cpu-vs-gpu", run)
    assert not any(
        "synthetic" in row[0] for table in part(alone, "What limits the training").content for row in table.rows
    )


def test_a_part_that_was_not_measured_shows_what_was_published():
    speedup = part(chapter("mlp-cpu-vs-gpu"), "What the GPU gains with the wide")
    assert not speedup.form
    (table,) = speedup.figures
    (row,) = table.rows
    assert row[1] == "14×"
    assert "sigmoid" in row[0]
    html = render(make_view(analyze_run(study_run("mlp-cpu-vs-gpu"), SCENARIOS), TITLES, STUDIES))
    assert "<summary>Published figures</summary>" in html


def test_causes_have_the_shares_that_authors_suspect():
    shown = part(chapter("mnist-cpu-vs-gpu", devices=BOTH), "What limits the training")
    (table,) = shown.content
    assert table.headers[2:4] == ("Waiting for data", "Fixed cost per step")
    assert all(share.endswith("%") for row in table.rows for share in row[2:4])
    assert shown.findings[1] == (
        "On the GPU, waiting for data takes 10% of a step, and a cost that does not depend on the batch size takes 0%."
    )
    analysis = analyze_run(study_run("mnist-cpu-vs-gpu"), SCENARIOS)
    steps = [StepParts(0.0, 80.0, 15.0, 5.0), StepParts(0.0, 55.0, 5.0, 40.0), StepParts(0.0, 70.0, 10.0, 20.0)]
    found = [replace(each, parts=step) for each, step in zip(analysis.diagnoses, steps, strict=True)]
    varied = make_chapter(ReportInput(replace(analysis, diagnoses=found), TITLES), STUDIES["mnist-cpu-vs-gpu"])
    (finding,) = part(varied, "What limits the training").findings
    assert "waiting for data takes 5% to 40% of a step" in finding
    assert finding.endswith(" takes 5% to 15%.")


def test_the_devices_and_the_build_are_those_that_the_framework_reports():
    run = study_run("mlp-cpu-vs-gpu", frameworks=("torch",))
    (table,) = part(chapter("mlp-cpu-vs-gpu", run), "The devices and builds").content
    row = dict(zip(table.headers, table.rows[0], strict=True))
    assert (row["Devices that it sees"], row["Build"]) == ("cpu", "is_example: True")
    older = []
    for record in run.records:
        result = replace(record.result, evidence=replace(record.result.evidence, build=None))
        older.append(record.model_copy(update={"result": result}))
    (table,) = part(chapter("mlp-cpu-vs-gpu", replace(run, records=older)), "The devices and builds").content
    row = dict(zip(table.headers, table.rows[0], strict=True))
    assert (row["Devices that it sees"], row["Build"]) == ("–", "–")


def test_rows_without_a_figure_are_left_out():
    rows = [
        row
        for table in part(chapter("mlp-cpu-vs-gpu", epochs=True), "Validation accuracy").content
        for row in table.rows
    ]
    assert [row[0] for row in rows if "CPU" in row[0]]
    assert not [row for row in rows if set(row[1:]) == {"–"}]


def test_a_single_framework_and_a_failed_cell_leave_the_rest():
    run = study_run("mnist-batch-sweep", frameworks=("torch",))
    kept = [record for record in run.records if record.cell.batch != 64]
    shown = chapter("mnist-batch-sweep", replace(run, records=kept))
    assert any(lack.text == "Not measured: CPU · batch 64." for lack in shown.missing)
    assert len(part(shown, "Training time").content.charts[0].lines[0].marks) == 6


def test_a_network_that_changed_since_the_run_is_not_compared():
    run = study_run("mnist-cpu-vs-gpu")
    older = [r.model_copy(update={"request": replace(r.request, spec="0" * 64)}) for r in run.records]
    shown = chapter("mnist-cpu-vs-gpu", replace(run, records=older))
    assert shown.heading == "Not comparable: this kit defines the networks of the study differently"
    assert "Defined differently since the run: mnist-cnn." in [lack.text for lack in shown.parts[0].lacks]


def test_only_runs_of_studies_have_chapters_in_the_order_of_the_plan():
    run = study_run("cifar-epochs")
    both = run.plan.model_copy(update={"studies": ["mnist-cpu-vs-gpu", "cifar-epochs", "gone"]})
    analysis = analyze_run(replace(run, plan=both), SCENARIOS, catalog.frameworks())
    view = make_view(analysis, TITLES, STUDIES)
    found = [(of.anchor, data.heading) for of, data in view.open if of.anchor.startswith("study-")]
    assert [anchor for anchor, _ in found] == ["study-mnist-cpu-vs-gpu", "study-cifar-epochs", "study-gone"]
    assert found[2][1] == "Not shown: the file of the study is missing"
    assert found[0][1] == "Not measured: no cell of the study has a result"
    html = render(view)
    assert STUDIES["cifar-epochs"].file.question in html
    assert "kit run --study cifar-epochs --profile full" in html
    none = analyze_run(replace(run, plan=run.plan.model_copy(update={"studies": []})), SCENARIOS)
    assert not section.SECTION.sections(ReportInput(none, TITLES, STUDIES))


def test_the_next_command_repeats_the_study():
    following = reliability(analyze_run(study_run("cifar-epochs", frameworks=("torch",)), SCENARIOS)).next
    assert following
    same = "--study cifar-epochs --framework torch --device cpu"
    assert following.command == f"kit run {same} --profile standard"


@pytest.mark.parametrize("name", STUDIES)
def test_the_page_of_a_study_escapes_texts_and_names_its_charts(name):
    study = STUDIES[name]
    hostile = replace(study, file=study.file.model_copy(update={"title": "<script>alert(1)</script>"}))
    analysis = analyze_run(study_run(name, devices=BOTH, epochs=True), SCENARIOS)
    html = render(make_view(analysis, TITLES, {name: hostile}))
    assert "<script" not in html
    assert "&lt;script&gt;" in html
    assert html.count('role="img"') == html.count('role="img" aria-label="') > 0


def test_what_a_stopped_run_left_out_is_measured_by_resuming_it():
    run = study_run("catdog-depth", epochs=True)
    deep, loader, busy = "Training speed of each variant", "Loader workers by batch size", "How busy the GPU was"
    assert part(chapter("catdog-depth", run), loader).form
    stopped = replace(run, records=[r for r in run.records if r.cell.variant != "deep" and r.cell.workers is None])
    commands = [
        lack.command for title in (deep, loader, busy) for lack in part(chapter("catdog-depth", stopped), title).lacks
    ]
    resume = f"kit run --resume {run.plan.run}"
    on_gpu = "kit run --study catdog-depth --profile full"
    assert commands == [on_gpu, resume, on_gpu, resume, on_gpu]
    before_gpu = study_run("catdog-depth", epochs=True, devices=("cpu", "cuda"))
    before_gpu = replace(before_gpu, records=[r for r in before_gpu.records if r.cell.device == "cpu"])
    assert [lack.command for lack in part(chapter("catdog-depth", before_gpu), busy).lacks] == [resume]
    other = stopped.plan.model_copy(
        update={"launches": [launch for launch in run.plan.launches if not launch.cell.workers]}
    )
    lacks = part(chapter("catdog-depth", replace(stopped, plan=other)), loader).lacks
    assert lacks[-1].command == "kit run --study catdog-depth --profile full"


def test_a_stopped_quick_run_cannot_fill_a_part_that_needs_epochs():
    run = study_run("catdog-depth")
    lacks = part(chapter("catdog-depth", replace(run, records=[])), "Best validation accuracy").lacks
    assert lacks[-1].command == "kit run --study catdog-depth --profile full"


def test_the_command_for_what_a_run_left_out_has_the_options_of_the_run():
    run = study_run("mlp-cpu-vs-gpu", epochs=True, frameworks=("torch",))
    plan = run.plan.model_copy(update={"data": "real", "seed": 3, "epochs": 2, "keep_weights": False})
    lacks = part(chapter("mlp-cpu-vs-gpu", replace(run, plan=plan)), "What the GPU gains with the wide network").lacks
    options = "--framework torch --data real --seed 3 --profile full"
    assert lacks[-1].command == f"kit run --study mlp-cpu-vs-gpu {options} --epochs 2 --no-weights"
    made = study_run("cifar-epochs", data="synthetic")
    made = replace(made, plan=made.plan.model_copy(update={"data": "synthetic"}))
    commands = [lack.command for lack in part(chapter("cifar-epochs", made), "Learning curves").lacks]
    assert commands[0] == "kit run --study cifar-epochs --profile full", "only real data have an accuracy"


@pytest.mark.parametrize("name", STUDIES)
def test_what_published_times_include_is_a_choice(name):
    said = [words for words in chapter(name).choices if "evaluation" in words]
    assert len(said) == (name not in {"catdog-depth", "mlp-cpu-vs-gpu"})  # these two have no published time


def test_a_measure_without_a_value_keeps_its_published_figures():
    speeds, gains = part(chapter("catdog-depth"), "Training speed of each variant").content
    assert len(speeds.rows) == 9  # six on the CPU, and three published ones on a GPU
    missing = ("–",) * 6
    assert gains.rows == (
        ("128 · GPU", "23× (Tesla V100)", *missing),
        ("deep · GPU", "100× (Tesla V100)", *missing),
    )


def test_a_chapter_names_the_machine_the_day_and_the_versions_beside_those_of_the_publication():
    assert dict(chapter("cifar-epochs").facts)["Here"] == (
        "Made-up CPU of a test, 1 core, no GPU. "
        "Measured on 1 January 2026 in the profile quick with TensorFlow 1.0, ONNX Runtime 1.0 and PyTorch 1.0."
    )


def test_a_speedup_lacks_the_cpu_too():
    run = study_run("mlp-cpu-vs-gpu", devices=("cuda",))
    (lack,) = part(chapter("mlp-cpu-vs-gpu", run), "What the GPU gains with the wide network").lacks
    assert lack.text.startswith("Not measured: ")


def test_the_chapter_shows_augmented_photos_and_only_then_allows_pictures():
    run = study_run("catdog-depth")
    analysis = analyze_run(run, SCENARIOS)
    view = make_view(analysis, TITLES, STUDIES)
    html = render(view)
    small = next(r.result.augmented for r in run.records if r.cell.variant == "" and r.result.augmented)
    (shown,) = re.findall(r'<img src="data:image/jpeg;base64,([^"]*)"', html)
    assert b64decode(shown) == run.pictures[small.digest]
    assert "img-src data:" in html.partition("<title>")[0]
    caption = part(chapter("catdog-depth", run), "Examples").content.caption
    assert "64×64 pixels" in caption
    assert "zoomed by up to 20%" in caption
    assert "sheared by up to 0.2°" in caption
    gone = replace(run, pictures={})
    assert "img-src" not in render(make_view(analyze_run(gone, SCENARIOS), TITLES, STUDIES)).partition("<body>")[0]
    (lack, *_) = part(chapter("catdog-depth", gone), "Examples").lacks
    assert lack.text == "The picture of augmented photos is missing in the folder of the run, or has changed."
    older = [r.model_copy(update={"result": replace(r.result, augmented=None)}) for r in run.records]
    (lack, *_) = part(chapter("catdog-depth", replace(run, records=older)), "Examples").lacks
    assert lack.text == "The run has no picture of augmented photos."
    assert lack.command == "kit run --study catdog-depth"


def test_predictions_of_test_photos_have_each_framework_with_probabilities():
    shown = part(chapter("catdog-depth", epochs=True, devices=BOTH), "Predictions of photos of the test set")
    (table,) = shown.content
    assert shown.title.endswith(": default · CPU")
    assert table.headers == ("Index in the test set", "Label", "TensorFlow", "ONNX Runtime", "PyTorch")
    assert table.rows[0] == ("7", "cats", "cats, 91.0%", "cats, 83.0%", "cats, 97.0%")
    assert table.rows[4] == ("407", "cats", *(f"dogs, {share}.0% (wrong)" for share in (91, 83, 97)))
    assert table.rows[10] == ("Correct", "", *["9 of 10"] * 3)
    assert [other.caption for other in shown.figures][:2] == ["default · GPU", "conv · CPU"]
    assert len(shown.figures) == 9  # five variants on two devices
    synthetic = chapter("catdog-depth", epochs=True, data="synthetic")
    assert not part(synthetic, "Predictions of photos").form
    run = study_run("catdog-depth", epochs=True, frameworks=("torch",))
    strange = [HeldOutPrediction(0, 0, [0.2, 0.3, 0.5])]  # of a data set with three classes
    records = [r.model_copy(update={"result": replace(r.result, held_out=strange)}) for r in run.records]
    assert not part(chapter("catdog-depth", replace(run, records=records)), "Predictions of photos").form


def test_what_the_authors_answered_stands_beside_the_answer():
    html = render(make_view(analyze_run(study_run("mlp-cpu-vs-gpu"), SCENARIOS), TITLES, STUDIES))
    assert "What its authors found:</b> Yes. The GPU wins with both networks" in html


def test_a_study_that_a_plan_names_twice_has_one_chapter():
    run = study_run("cifar-epochs", frameworks=("torch",))
    twice = replace(run, plan=run.plan.model_copy(update={"studies": ["cifar-epochs"] * 2}))
    html = render(make_view(analyze_run(twice, SCENARIOS), TITLES, STUDIES))
    assert html.count('<section id="study-cifar-epochs"') == 1
