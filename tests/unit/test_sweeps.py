"""Runs in which a number varies: names and order of their cells, the curves, and where these flatten."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from kit.analysis.answers import answers
from kit.analysis.comparison import compare, group_means
from kit.analysis.gate import GateOutcome, gate
from kit.analysis.pairing import Measure
from kit.analysis.reliability import reliability
from kit.analysis.run_analysis import RunAnalysis, analyze_run
from kit.analysis.summaries import short_names
from kit.analysis.sweeps import Curve, curves
from kit.cli import side_by_side, tables
from kit.cli.tables import Marks
from kit.model.errors import UsageError
from kit.model.record import Record
from kit.model.run import Run
from kit.model.swept import SweptField
from kit.planning import catalog
from kit.planning.selection import Selection, narrow_cells, select_cells
from kit.report.flattening import flat_words
from kit.report.section import ReportInput
from kit.report.sections.sweeps import SECTION
from scenarios.contract.cell import MAX_WORKERS, Cell
from scenarios.spec import Dense, digest, with_hidden_layers
from tests import campaigns, examples, report_runs

SCENARIOS = catalog.scenarios()
TITLES = {"torch": "PyTorch", "tensorflow": "TensorFlow", "onnxruntime": "ONNX Runtime"}
BATCHES = (32, 64, 128, 256)


def cell(field: SweptField, value: int | None, scenario: str = "mnist-cnn", **changes: Any) -> Cell:
    return replace(examples.cell(scenario), **{field: value}, **changes)


def measured(cells: Sequence[Cell], speeds: Sequence[Sequence[float]]) -> list[Record]:
    """Return the records of cells. speeds: of each cell in each round."""
    return [
        examples.record(examples.request(of, launch=launch), speed)
        for of, own in zip(cells, speeds, strict=True)
        for launch, speed in enumerate(own, start=1)
    ]


def analyzed(records: Sequence[Record]) -> RunAnalysis:
    return analyze_run(examples.run(records), SCENARIOS)


def curve(speeds: Sequence[Sequence[float]]) -> Curve:
    """Return the curve over the batch size. speeds: of each batch size in each round."""
    records = measured([cell("batch", batch) for batch in BATCHES], speeds)
    analysis = analyzed(records)
    (found,) = curves(analysis.cells, analysis.rates[Measure.TRAINING], SCENARIOS, "batch")
    return found


def noisy(speeds: Sequence[float], noise: float, seed: int, rounds: int = 5) -> list[list[float]]:
    generator = random.Random(seed)
    return [[speed * (1 + generator.gauss(0, noise)) for _ in range(rounds)] for speed in speeds]


@pytest.mark.parametrize(
    ("speeds", "value", "earliest", "latest"),
    [
        ((100, 200, 300, 306), 128, 128, 128),
        ((100, 102, 99, 101), 32, 32, 32),
        ((100, 101, 200, 204), 128, 128, 128),  # a plateau before a gain is not the end
        ((100, 200, 300, 330), 256, 256, 256),
    ],
)
def test_a_curve_flattens_where_all_further_steps_gain_little(
    speeds: tuple[float, ...], value: int, earliest: int, latest: int
) -> None:
    found = curve(noisy(speeds, 0.002, seed=1)).flattening
    assert (found.value, found.earliest, found.latest) == (value, earliest, latest)


def test_steps_whose_gain_is_unclear_widen_the_interval() -> None:
    found = curve(noisy((100, 200, 212, 214), 0.03, seed=1)).flattening
    assert (found.earliest, found.latest) == (64, 256)
    assert found.value in BATCHES[1:]


def test_paired_steps_are_not_widened_by_a_machine_that_changes_its_speed() -> None:
    machine = (1.0, 1.3, 1.0, 1.3, 0.8)
    found = curve([[speed * factor for factor in machine] for speed in (100, 200, 300, 303)])
    assert (found.flattening.earliest, found.flattening.latest) == (128, 128)
    assert found.cells[0].interval
    assert found.cells[0].interval.half_width > 0.2


def test_a_single_launch_has_an_estimate_without_an_interval() -> None:
    found = curve([[100], [200], [300], [306]])
    assert found.single
    assert (found.flattening.value, found.flattening.earliest, found.flattening.latest) == (128, None, None)


def test_the_interval_has_the_true_point_in_95_percent_of_runs() -> None:
    true, runs = (100, 130, 150, 153), 400  # the point is 128
    found = [curve(noisy(true, 0.04, seed)).flattening for seed in range(runs)]
    held = sum((f.earliest or 0) <= 128 <= (f.latest or 0) for f in found)
    assert held >= 0.94 * runs
    assert sum(f.earliest == f.latest for f in found) < runs / 2, "the noise should leave doubt"


def test_cells_of_different_values_are_no_contest() -> None:
    one, other = cell("workers", 1, "catdog-cnn"), cell("workers", 2, "catdog-cnn", framework="tensorflow")
    records = measured([one, other, replace(one, framework="tensorflow")], [[100, 101], [200, 202], [150, 151]])
    (contest,) = analyzed(records).contests[Measure.TRAINING]
    assert {summary.cell.workers for summary in contest.cells} == {1}


def test_group_means_join_the_values_of_a_sweep() -> None:
    records = measured([cell("hidden_layers", n, "fashion-mlp") for n in (1, 2, 3)], [[100, 101, 102]] * 3)
    base, new = (Run(examples.plan([]), examples.machine(), records) for _ in range(2))
    (mean,) = group_means(compare(base, new, Measure.TRAINING))
    assert (mean.group, mean.cells) == ("torch/cpu/stock/fp32", 3)


def test_rows_of_a_comparison_are_in_the_order_of_the_values() -> None:
    cells = [cell("hidden_layers", n, "fashion-mlp", batch=batch) for batch in (128, 32) for n in (10, None, 2)]
    run = examples.run(measured(cells, [[100]] * 6))
    section = side_by_side.comparison_section(compare(run, run, Measure.TRAINING), [run, run], 1, Measure.TRAINING)
    names = [row[0].rstrip("*") for row in section.rows]
    assert names == [
        f"fashion-mlp/torch/cpu/b{batch}{depth}" for depth in ("/hidden2", "", "/hidden10") for batch in (32, 128)
    ]
    assert short_names([cell("workers", 4, "catdog-cnn")]) == ["catdog-cnn/torch/cpu"]


def test_the_gate_judges_each_value_of_a_sweep_alone() -> None:
    cells = [cell("hidden_layers", n, "fashion-mlp") for n in (10, 2)]
    steady = [100.0, 101.0, 99.0, 100.5, 99.5]
    base = examples.run(measured(cells, [steady, steady]))
    slower = examples.run(measured(cells, [[0.8 * speed for speed in steady], steady]))
    judged = gate(base, slower, 0.05, Measure.TRAINING)
    found = {judgment.comparison.cell.key: judgment.outcome for judgment in judged.cells}
    assert [found[each.key] for each in cells] == [GateOutcome.REGRESSION, GateOutcome.PASSED]
    shown = [row[0].rstrip("*") for row in side_by_side.gate_section(judged, [base, slower]).rows]
    assert shown == [f"fashion-mlp/torch/cpu/hidden{n}" for n in (2, 10)]


def test_the_scenarios_own_number_of_layers_has_no_suffix() -> None:
    selection = Selection(("fashion-mlp",), frameworks=("torch",), devices=("cpu",), hidden_layers=(1, 5))
    one, five = select_cells(selection, SCENARIOS, campaigns.FRAMEWORKS)
    assert [one.key[-8:], five.key[-4:]] == ["/hidden1", "/b32"]
    assert narrow_cells(replace(selection, hidden_layers=(5,)), [one, five], SCENARIOS, "r1") == [five]
    with pytest.raises(UsageError, match="no ok launch of a cell with --hidden-layers 3"):
        narrow_cells(replace(selection, hidden_layers=(3,)), [one, five], SCENARIOS, "r1")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"workers": (2,)}, "--workers applies to scenarios that load photos, but mnist-cnn"),
        ({"scenarios": ("catdog-cnn",), "workers": (MAX_WORKERS + 1,)}, "--workers must be between 1 and 256"),
        ({"scenarios": ("cifar-mlp",), "hidden_layers": (2,)}, "cifar-mlp has no equal hidden layers"),
        ({"hidden_layers": (0,)}, "--hidden-layers must be between 1 and 100"),
    ],
)
def test_numbers_that_a_scenario_cannot_have_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        select_cells(replace(Selection(("mnist-cnn",)), **changes), SCENARIOS, campaigns.FRAMEWORKS)


def test_hidden_layers_change_the_network_its_digest_and_its_title() -> None:
    scenario = SCENARIOS["fashion-mlp"][""]
    two = with_hidden_layers(scenario, 2)
    assert [layer.units for layer in two.layers if isinstance(layer, Dense)] == [500, 500, 10]
    assert two.title == f"{scenario.title}, 2 hidden layers"
    assert digest(two) != digest(scenario) == digest(with_hidden_layers(scenario, 5))


def test_networks_with_other_hidden_layers_are_analyzed_by_their_own_layers() -> None:
    analysis = analyzed(measured([cell("hidden_layers", n, "fashion-mlp") for n in (1, None)], [[1000]] * 2))
    assert analysis.scenarios == SCENARIOS, "a cell with its own layers does not mean that the scenario has changed"
    one, five = (diagnosis.intensity for diagnosis in analysis.diagnoses)
    assert one
    assert five
    assert one != pytest.approx(five, rel=0.01)
    source = ReportInput(analysis, TITLES)
    assert [source.network(summary.cell)[-15:] for summary in source.measured] == [" 1 hidden layer", "5 hidden layers"]


def test_answers_count_networks_not_values() -> None:
    cells = [cell("batch", batch, framework=name) for batch in (64, 128) for name in ("torch", "tensorflow")]
    analysis = analyzed(measured(cells, [[1000, 1010], [500, 505], [1200, 1212], [600, 606]]))
    found = answers(analysis, TITLES)
    assert "mnist-cnn at 1,210 images/s" in found.speed.headline
    assert "2 comparisons" in found.framework.headline
    following = reliability(analysis).next
    assert following
    assert "--batch 64 --batch 128" in following.command


def test_a_table_has_a_row_for_each_value_within_80_columns() -> None:
    analysis = analyze_run(report_runs.sweeps(2), SCENARIOS)
    table, *_ = tables.tables(analysis, TITLES, Marks(frozenset(), frozenset(), frozenset()), {})
    lines = table.lines(80)
    assert max(map(len, lines)) <= 80
    names = [line.partition("  " if line[0] != " " else "   ")[0].rstrip() for line in lines[2:]]
    assert [name for name in names if not name.startswith(" ")] == ["catdog-cnn", "fashion-mlp", "mnist-cnn-dropout"]
    assert [name.strip() for name in names[1:4]] == ["1 worker", "2 workers", "4 workers"]
    assert [name.strip() for name in names[5:8]] == ["1 hidden layer", "3 hidden layers", "5 hidden layers"]
    assert [name.strip() for name in names[9:]] == [f"batch {2**n}" for n in range(5, 12)]


def test_the_report_has_a_chart_for_each_scenario_and_field() -> None:
    data = SECTION.data(ReportInput(analyze_run(report_runs.sweeps(3), SCENARIOS), TITLES))
    by_axis = {chart.lines.x_title: chart for chart in data.charts}
    assert set(by_axis) == {"batch size", "loader workers", "hidden layers"}
    batches, workers = by_axis["batch size"], by_axis["loader workers"]
    assert {(line.framework, line.device) for line in batches.lines.lines} == {
        (name, device) for name in TITLES for device in ("cpu", "cuda")
    }
    places = [mark.at for mark in batches.lines.lines[0].marks]
    steps = [after - before for before, after in itertools.pairwise(places)]
    assert steps == pytest.approx([steps[0]] * 6, abs=0.02), "doubled values are equally far apart"
    assert all(mark.whisker and mark.whisker[0] < mark.y < mark.whisker[1] for mark in batches.lines.lines[0].marks)
    assert [row[0] for row in workers.table.rows] == ["1", "2", "4"]
    assert "over the loader workers, the speed is flat from 2 workers on" in data.heading
    assert "With 5 hidden layers, training runs at 0.20× the speed with 1" in data.heading
    assert "launch each" not in data.heading
    once = SECTION.data(ReportInput(analyze_run(report_runs.sweeps(1), SCENARIOS), TITLES))
    assert once.heading.count("(in one launch each)") == 3


def test_launches_that_show_nothing_are_no_answer() -> None:
    cells = [cell("workers", n, "catdog-cnn") for n in (1, 2)]
    data = SECTION.data(ReportInput(analyzed(measured(cells, [[100, 900], [130, 300]])), TITLES))
    unclear = "too uncertain to say where it becomes flat"
    assert data.heading == f"Over the loader workers, the speed is {unclear}"
    assert [line.name for line in data.charts[0].lines.lines] == [f"PyTorch CPU: {unclear}"]


def test_one_sentence_about_flat_curves_serves_all_charts_and_headings() -> None:
    flat, steep = curve(noisy((100, 200, 300, 306), 0.002, 1)), curve(noisy((100, 200, 300, 400), 0.002, 1))
    open_end = curve(noisy((100, 200, 212, 214), 0.03, seed=1))
    assert flat_words([flat]) == "flat from batch 128 on (95% interval: 128)"
    assert flat_words([steep]) == "not flat up to batch 256 (95% interval: 256 or more)"
    assert flat_words([open_end]).endswith(" (95% interval: 64 or more)")
    assert flat_words([flat, steep, flat]) == (
        "flat from batch 128 on in 2 of 3 curves and not flat up to batch 256 in 1 of 3 curves"
    )
    sooner = curve([[100], [102], [99], [101]])
    assert flat_words([flat, sooner]) == "flat from batch 32 to 128 on (with too few common launches)"
    falling = curve(noisy((100, 110, 108, 60), 0.002, 1))
    assert flat_words([falling]) == "highest near batch 64 (95% interval: 64)"
    assert flat_words([flat, falling, steep]) == (
        "flat from batch 128 on in 1 of 3 curves, highest near batch 64 in 1 of 3 curves and not flat up to batch 256 "
        "in 1 of 3 curves"
    )
    for speeds, words in {
        (100, 110, 108, 106): "flat from batch 64 on",
        (100, 110, 108, 104): "highest near batch 64",
        (100, 50, 60, 55): "flat from batch 128 on",  # the first value is faster
        (100, 104, 108, 112): "flat from batch 32 on",
    }.items():
        assert flat_words([curve([[speed] for speed in speeds])]) == f"{words} (in one launch each)"


def test_two_fields_at_once_have_a_chart_for_each_value_of_one() -> None:
    cells = [cell("workers", n, "catdog-cnn", batch=batch) for n in (1, 2, 4) for batch in (32, 64)]
    data = SECTION.data(ReportInput(analyzed(measured(cells, [[100 * place] for place in range(1, 7)])), TITLES))
    assert [(chart.lines.x_title, chart.lines.title[-8:]) for chart in data.charts] == [
        ("loader workers", "batch 32"),
        ("loader workers", "batch 64"),
    ]


def test_a_chart_of_a_depth_says_it_once_and_charts_are_in_the_order_of_the_depths() -> None:
    cells = [cell("hidden_layers", n, "fashion-mlp", batch=batch) for n in (None, 1) for batch in (32, 64, 128)]
    data = SECTION.data(ReportInput(analyzed(measured(cells, [[100 * place] for place in range(1, 7)])), TITLES))
    titles = [chart.lines.title for chart in data.charts]
    assert titles == [f"Dense network on Fashion-MNIST, {words}" for words in ("1 hidden layer", "5 hidden layers")]


def test_a_run_without_a_sweep_has_no_chart() -> None:
    assert SECTION.data(ReportInput(analyzed(measured([cell("workers", None)], [[1.0]])), TITLES)) is None


def test_records_from_before_sweeps_stay_readable() -> None:
    record = examples.record()
    old = json.loads(record.to_json())
    for part in (old["cell"], old["request"]["cell"], old["result"]["cell"]):
        assert [part.pop("workers"), part.pop("hidden_layers")] == [None, None]
    assert old["result"]["evidence"]["placement"].pop("workers") is None
    assert Record.from_json(json.dumps(old), "old") == record


@pytest.mark.parametrize(("name", "value"), [("hidden_layers", 10**9), ("workers", 0)])
def test_a_record_of_a_stranger_with_an_impossible_number_is_refused(name: str, value: int) -> None:
    """A network of so many layers would fill the memory before anything could refuse it."""
    data = json.loads(examples.record().to_json())
    data["cell"][name] = value
    with pytest.raises(UsageError, match=name):
        Record.from_json(json.dumps(data), "strange")
