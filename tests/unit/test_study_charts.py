"""Test the charts of studies: learning curves, lines over a varied field, bars, dots and heat maps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kit.analysis.pairing import Measure
from kit.analysis.run_analysis import analyze_run
from kit.planning import catalog, studies
from kit.report.render import render
from kit.report.view import make_view
from tests.examples import with_speed
from tests.study_runs import BEST_EPOCH, BOTH, FLAT_BATCH, SCENARIOS, STUDIES, TITLES, chapter, part, study_run

TWO_NETWORKS = """
title = "T"
question = "Q?"
conclusion = "flattening"
source = "S."
software = "S"
hardware = { cpu = "C", cuda = "G" }

[cells.batches]
scenario = "catdog-cnn"
variants = ["default", "conv"]
batch = [64, 128, 256]

[cells.loader]
scenario = "catdog-cnn"
variants = ["default", "conv"]
batch = [64, 128]
workers = [1, 2]

[[parts]]
kind = "lines"
title = "Lines"
cells = ["batches"]
measures = ["images_per_s"]
x = "batch"

[[parts]]
kind = "heat"
title = "Heat"
cells = ["loader"]
measures = ["images_per_s"]
x = "batch"
y = "workers"
"""


def test_learning_curves_mark_where_overfitting_begins():
    shown = chapter("cifar-epochs", devices=BOTH, epochs=True)
    charts = part(shown, "Learning curves").content
    assert [chart.title for chart in charts.charts] == ["Loss, CPU", "Accuracy, CPU", "Loss, GPU", "Accuracy, GPU"]
    assert all(len(chart.spots) == 3 for chart in charts.charts)
    assert len(charts.findings) == 6
    assert f"after epoch {BEST_EPOCH}, with the lowest validation loss of 0.9" in charts.findings[0]
    loss, accuracy = charts.charts[:2]
    assert {line.name: len(line.marks) for line in accuracy.lines if line.outline} == {
        "published, validation": 3,  # epochs 1, 9 (the best) and 15
        "published, training": 2,
    }
    assert loss.spots[0].at == pytest.approx(100 * (BEST_EPOCH - 1) / 14, abs=0.01)
    assert shown.heading == (
        f"Overfitting begins on the CPU after epoch {BEST_EPOCH} and on the GPU after epoch {BEST_EPOCH}, where "
        "the validation loss is lowest"
    )


def test_the_curve_over_the_batch_size_marks_where_it_flattens():
    shown = chapter("mnist-batch-sweep", devices=BOTH, launches=5)
    time, on_gpu = part(shown, "Training time").content.charts
    assert [text for _, text in time.x_ticks] == ["32", "64", "128", "256", "512", "1,024", "2,048"]
    at = {text: at for at, text in time.x_ticks}[str(FLAT_BATCH)]
    assert {spot.at for spot in time.spots} == {at}
    assert [line.name for line in time.lines] == [
        "TensorFlow",
        "ONNX Runtime",
        "PyTorch",
        "published: 2× Xeon E5-2670 v3",
    ]
    assert [line.name for line in on_gpu.lines][3:] == ["published: Tesla P100", "published: 2× Tesla P100"]
    assert all(len(line.marks) == 7 for chart in (time, on_gpu) for line in chart.lines)
    findings = part(shown, "Training time").content.findings
    assert findings[0] == "TensorFlow, CPU: flat from batch 256 on (95% interval: 256)."
    assert findings[-1].startswith("A curve is flat from a value on if no later step to the next value")
    assert "gains 5% or more" in findings[-1]
    rows = {row[0]: row[1:] for row in part(shown, "Training time").figures[0].rows}
    assert rows["2 GPUs · batch 2048"] == ("14.67 s (2× Tesla P100)", *["–"] * 6)


def test_a_curve_that_rises_to_its_last_value_has_no_point(monkeypatch):
    monkeypatch.setattr("tests.study_runs.FLAT_BATCH", 2048)
    time = part(chapter("mnist-batch-sweep", launches=5), "Training time").content
    assert time.findings[0] == "TensorFlow, CPU: not flat up to batch 2048 (95% interval: 2048 or more)."
    assert not time.charts[0].spots


def test_a_point_that_the_launches_do_not_show_is_not_marked():
    run = study_run("mnist-batch-sweep", frameworks=("torch",))
    noisy = []
    for record in run.records:  # rounds differ by more than the curve rises
        factor = 3.0 if record.launch == 1 and record.cell.batch in {64, 256, 1024} else 1.0
        speed = record.result.training.images_per_s * factor
        noisy.append(with_speed(record, Measure.TRAINING, speed))
    shown = chapter("mnist-batch-sweep", replace(run, records=noisy))
    time = part(shown, "Training time").content
    uncertain, _, doubtful = time.findings
    assert uncertain == "PyTorch, CPU: too uncertain to say where it becomes flat."
    assert doubtful == "Some values are doubtful. The table marks them."
    whiskers = [mark.whisker for mark in time.charts[0].lines[0].marks]
    assert [whisker is None for whisker in whiskers] == [False, True, False, True, False, True, False]
    html = render(make_view(analyze_run(replace(run, records=noisy), SCENARIOS), TITLES, STUDIES))
    section = html.partition('id="study-mnist-batch-sweep"')[2].partition("</section>")[0]
    assert section.count("95% interval over launches") == 1
    assert not chapter("mnist-batch-sweep", launches=1).whiskers
    assert not time.charts[0].spots
    assert shown.heading == (
        "On the CPU, the speed is too uncertain to say where it becomes flat; 3 of 7 speeds are doubtful"
    )
    (table,) = [each for each in part(shown, "Training time").figures if each.caption == "Training time"]
    marked = [row[0].endswith(("64", "256", "1024")) for row in table.rows if any("⚠" in text for text in row)]
    assert marked == [True] * 3
    assert section.count("⚠&nbsp;marks doubtful speeds and times") == 1
    steady = chapter("mnist-batch-sweep")
    assert not steady.doubtful
    assert "⚠" not in str(steady)


def test_bars_keep_their_length_if_launches_differ_widely():
    """Two launches, one 40 times as fast: their interval would make the axis a thousand times as long as the bars."""
    run = study_run("mlp-cpu-vs-gpu", frameworks=("torch",))
    apart = [with_speed(r, Measure.TRAINING, 4000.0 if r.launch == 1 else 100.0) for r in run.records]
    (rows,) = part(chapter("mlp-cpu-vs-gpu", replace(run, records=apart)), "Training time of the wide").content
    assert rows.bars
    assert max(dot.at for row in rows.rows for dot in row.strip.dots) > 50


def test_learning_curves_of_both_lanes_have_their_own_dashes():
    run = study_run("cifar-epochs", frameworks=("torch",), epochs=True, launches=1)
    tuned = []
    for record in run.records:
        cell = replace(record.cell, lane="tuned")
        parts = {"request": replace(record.request, cell=cell), "result": replace(record.result, cell=cell)}
        tuned.append(record.model_copy(update={"cell": cell, **parts}))
    shown = chapter("cifar-epochs", replace(run, records=[*run.records, *tuned]))
    measured = [part.content for part in shown.parts if part.title.startswith("Learning curves")]
    for chart in measured[0].charts:
        lines = [line for line in chart.lines if line.framework]
        assert len({line.dash for line in lines}) == len(lines) == 4


def test_single_launches_have_a_point_without_an_interval():
    shown = chapter("mnist-batch-sweep", frameworks=("torch",), launches=1)
    finding, _ = part(shown, "Training time").content.findings
    assert finding == "PyTorch, CPU: flat from batch 256 on (in one launch each)."
    assert shown.heading == "On the CPU, the speed is flat from batch 256 on (in one launch each)"


def test_accuracies_after_fewer_epochs_than_in_the_study_are_named_under_their_chart():
    run, short = study_run("mnist-batch-sweep", frameworks=("torch",), epochs=True), []
    for record in run.records:
        training = replace(record.result.training, epochs=record.result.training.epochs[:2])
        short.append(record.model_copy(update={"result": replace(record.result, training=training)}))
    title, notes = (
        "Validation accuracy",
        ("Accuracies or losses were measured after fewer epochs than in the study: 2 of 10 epochs.",),
    )
    assert part(chapter("mnist-batch-sweep", replace(run, records=short)), title).content.findings == notes
    assert part(chapter("mnist-batch-sweep", run), title).content.findings == ()


def test_the_heat_map_has_workers_by_batch_size():
    maps = part(chapter("catdog-depth"), "Loader workers").content
    assert [made.framework for made in maps] == ["tensorflow", "onnxruntime", "torch"]
    assert maps[0].columns == ("batch 32", "batch 64")
    assert [name for name, _ in maps[0].rows] == ["1 worker", "2 workers", "4 workers"]
    levels = [[value.level for value in values] for _, values in maps[2].rows]
    assert levels[2][1] == 100
    assert levels[0][0] == min(min(row) for row in levels)
    assert [values[1].published for _, values in maps[0].rows] == ["", "", "64 images/s (desktop VM)"]


def test_the_ladder_has_one_row_per_variant_with_its_published_accuracy():
    shown = chapter("catdog-depth", epochs=True)
    (ladder,) = part(shown, "Best validation accuracy").content
    measured = [row for row in ladder.rows if row.values]
    assert [row.label for row in measured] == [
        f"{name} · CPU" for name in ("default", "conv", "conv-dropout", "no-augment", "128")
    ]
    assert [row.published for row in measured] == ["80%", "84%", "90%", "85%", "94%"]
    assert [framework for framework, _ in measured[0].values] == ["tensorflow", "onnxruntime", "torch"]
    assert shown.heading == (  # not from cells without epochs; the made-up accuracies are equal
        "Best validation accuracy of 74.0% with each network, means over 3 frameworks; the order of the variants "
        "cannot be told from so few trainings (1 seed)"
    )
    assert measured[0].strip.dots[0].at < measured[0].strip.published[0].at  # 74% is below the published 80%


def changed(run, change):
    """Return a run whose trainings are changed. change: called with each training and its cell."""
    records = []
    for record in run.records:
        result = replace(record.result, training=change(record.result.training, record.cell))
        records.append(record.model_copy(update={"result": result}))
    return replace(run, records=records)


def test_a_chapter_uses_its_own_first_epochs_of_a_longer_training():
    def longer(training, _):
        more = [replace(each, index=each.index + 15, test_loss=0.1) for each in training.epochs]
        return replace(training, epochs=[*training.epochs, *more])

    run = study_run("cifar-epochs", frameworks=("torch",), epochs=True, launches=1)
    usual, long = chapter("cifar-epochs", run), chapter("cifar-epochs", changed(run, longer))
    assert part(long, "Learning curves").content == part(usual, "Learning curves").content
    assert long.heading == usual.heading


def test_a_best_accuracy_without_an_epoch_is_not_drawn_at_the_last_one(monkeypatch):
    def published(study):
        monkeypatch.setitem(STUDIES, "cifar-epochs", study)
        accuracy = part(chapter("cifar-epochs", frameworks=("torch",), epochs=True), "Learning curves").content.charts[
            1
        ]
        (line,) = [line for line in accuracy.lines if line.name == "published, validation"]
        return len(line.marks)

    study = STUDIES["cifar-epochs"]
    unknown = [replace(each, epoch=None) if each.measure == "best_accuracy" else each for each in study.figures]
    assert (published(study), published(replace(study, figures=tuple(unknown)))) == (3, 2)


def test_a_training_that_failed_does_not_hide_how_the_accuracies_of_the_others_differ():
    def diverged(training, cell):
        accuracy = 0.09 if cell.batch == 32 else 0.95 if cell.batch == 64 else 0.99
        return replace(training, epochs=[replace(each, test_accuracy=accuracy) for each in training.epochs])

    run = study_run("mnist-batch-sweep", frameworks=("torch",), epochs=True, launches=1)
    (chart,) = part(chapter("mnist-batch-sweep", changed(run, diverged)), "Validation accuracy").content.charts
    low, middle, high, *_ = (mark.y for mark in chart.lines[0].marks)
    assert (low - middle) / (low - high) == pytest.approx((0.95 - 0.09) / (0.99 - 0.09), abs=1e-3)


def test_charts_of_several_networks_name_them(tmp_path, monkeypatch):
    file = tmp_path / "two.toml"
    file.write_text(TWO_NETWORKS)
    monkeypatch.setitem(STUDIES, "two", studies.read(file, SCENARIOS, catalog.frameworks()))
    shown = chapter("two", frameworks=("torch",))
    lines = part(shown, "Lines").content
    assert [chart.title.rpartition(", ")[2] for chart in lines.charts] == ["default", "conv"]
    assert [words.partition(": ")[0] for words in lines.findings[:2]] == [
        "PyTorch, default, CPU",
        "PyTorch, conv, CPU",
    ]
    maps = part(shown, "Heat").content
    assert [each.title for each in maps] == ["PyTorch, default, CPU", "PyTorch, conv, CPU"]
    assert all(cell.level for each in maps for _, row in each.rows for cell in row)
    assert len({cell.text for each in maps for _, row in each.rows for cell in row}) > 1
