"""Test the tables of results, with their marks and leaders, at several widths."""

from __future__ import annotations

from pathlib import Path

import pytest

from kit.analysis.pairing import Measure
from kit.analysis.reliability import reliability
from kit.analysis.run_analysis import RunAnalysis, analyze_run
from kit.analysis.warnings import RunWarning, WarningCode
from kit.cli import results, tables
from kit.cli.tables import UNSTEADY, Marks
from kit.execution.reporting import FinishedRun
from kit.host import program
from kit.model.record import HostSamples, Record
from kit.planning import catalog
from scenarios.contract.reasons import Code, Status
from tests import examples
from tests.examples import cell, failed, record, request

TITLES = {"tensorflow": "TensorFlow", "onnxruntime": "ONNX Runtime", "torch": "PyTorch"}
NONE = Marks(frozenset(), frozenset(), frozenset())


def analyzed(*records: Record) -> RunAnalysis:
    return analyze_run(examples.run(records), catalog.scenarios())


def launches(scenario: str, variant: str = "", device: str = "cpu", **speeds: list[float]) -> list[Record]:
    """One launch of a framework per speed."""
    return [
        record(request(cell(scenario, name, device, variant), launch=number), speed)
        for name, own in speeds.items()
        for number, speed in enumerate(own, start=1)
    ]


def shown(analysis: RunAnalysis, width: int = 80, marks: Marks = NONE) -> list[str]:
    """The lines of the first table."""
    won = {"training": analysis.contests[Measure.TRAINING]}
    return tables.tables(analysis, TITLES, marks, won)[0].lines(width)


def test_frameworks_are_columns_in_a_fixed_order_and_networks_are_rows() -> None:
    analysis = analyzed(
        *launches("mnist-cnn", torch=[3490.0], tensorflow=[6640.0], onnxruntime=[4730.0]),
        *launches("catdog-cnn", "conv-dropout", torch=[578.0], tensorflow=[1070.0]),
    )
    assert shown(analysis) == [
        "Training, images/s       TensorFlow  ONNX Runtime  PyTorch  Ahead¹",
        "─" * 75,
        "catdog-cnn+conv-dropout       1,070             –      578  TensorFlow 1.9×",
        "mnist-cnn                     6,640         4,730    3,490  TensorFlow 1.4×",
    ]


def test_a_table_that_is_too_wide_gives_each_network_its_own_lines() -> None:
    analysis = analyzed(*launches("catdog-cnn", "conv-dropout", torch=[578.0], tensorflow=[1070.0]))
    assert shown(analysis, 50) == [
        "Training, images/s",
        "──────────────────",
        "catdog-cnn+conv-dropout",
        "  TensorFlow  1,070",
        "  PyTorch       578",
        "  Ahead¹: TensorFlow 1.9×",
    ]
    assert shown(analysis, 200) == shown(analysis)


def test_marks_do_not_move_the_digits() -> None:
    analysis = analyzed(*launches("mnist-cnn", torch=[578.0]), *launches("cifar-cnn", torch=[906.0]))
    unsteady = Marks(frozenset({"cifar-cnn/torch/cpu/stock/fp32/b32"}), frozenset(), frozenset())
    cifar, mnist = shown(analysis, marks=unsteady)[2:]
    assert cifar.endswith(" 906!")
    assert cifar.index("906") == mnist.index("578")


def test_a_latency_has_a_mark_only_if_the_whole_launch_was_disturbed() -> None:
    analysis = analyzed(*launches("mnist-cnn", torch=[578.0]))
    own = frozenset({"mnist-cnn/torch/cpu/stock/fp32/b64"})
    marked = [
        tables.tables(analysis, TITLES, Marks(own, frozenset(), disturbed), {})[1].rows[0][1]
        for disturbed in (own, frozenset())
    ]
    assert [value.endswith("!") for (value,) in marked] == [True, False]


@pytest.mark.parametrize(
    ("speeds", "unsteady", "words"),
    [
        ([[100.0], [120.0]], False, "PyTorch 1.2×"),
        ([[100.0], [120.0]], True, "too unsteady to call"),
        ([[100.0], [104.0]], False, "too close to call"),
        ([[100.0, 101.0, 99.0] * 2, [120.0, 121.0, 119.0] * 2], False, "PyTorch 1.2×"),
        ([[100.0, 105.0], [200.0, 210.0]], True, "PyTorch 2.0×"),
        ([[100.0, 101.0, 100.0], [100.0, 100.0, 101.0]], False, "tie"),
        ([[100.0, 110.0, 90.0], [101.0, 90.0, 110.0]], False, "undecided"),
        ([[100.0, 150.0], [300.0, 200.0]], False, "undecided"),
    ],
)
def test_a_winner_is_named_only_if_the_data_support_it(speeds: list[list[float]], unsteady: bool, words: str) -> None:
    analysis = analyzed(*launches("mnist-cnn", tensorflow=speeds[0], torch=speeds[1]))
    marks = Marks(frozenset({"mnist-cnn/torch/cpu/stock/fp32/b64"} if unsteady else ()), frozenset(), frozenset())
    head, _, row = shown(analysis, marks=marks)
    assert row.endswith(f"  {words}")
    assert head.endswith("Ahead¹" if len(speeds[0]) == 1 else "Fastest")


@pytest.mark.parametrize(
    ("count", "undecided", "words"),
    [
        (2, True, "geometric means of up to 2 launches, too few to be sure where it says undecided."),
        (2, False, "geometric means of up to 2 launches."),
        (4, True, "medians of up to 4 launches, too few to be sure where it says undecided."),
        (5, True, "medians of up to 5 launches."),
    ],
)
def test_what_a_speed_is_and_what_it_cannot_decide(count: int, undecided: bool, words: str) -> None:
    analysis = analyzed(*launches("mnist-cnn", torch=[100.0] * count))
    *_, line = results.caveats(
        analysis, Marks(frozenset(), frozenset(), frozenset()), single=False, undecided=undecided
    )
    assert line == f"   Speeds are {words} The report has their intervals."


def test_a_lead_in_a_single_launch_is_marked_next_to_winners() -> None:
    many = [100.0, 101.0, 99.0] * 2
    analysis = analyzed(
        *launches("mnist-cnn", tensorflow=many, torch=[2 * speed for speed in many]),
        *launches("cifar-cnn", tensorflow=[100.0], torch=[300.0]),
    )
    head, _, *rows = shown(analysis)
    assert head.endswith("Fastest")
    assert [row[row.index("PyTorch") :] for row in rows] == ["PyTorch 3.0×¹", "PyTorch 2.0×"]


def test_there_is_a_table_for_each_device_lane_and_precision() -> None:
    tuned = [record(request(lane="tuned", precision=precision), 900.0) for precision in ("bf16", "fp32")]
    analysis = analyzed(
        *launches("mnist-cnn", torch=[500.0]), *launches("mnist-cnn", device="cuda", torch=[800.0]), *tuned
    )
    found = [table.title for table in tables.tables(analysis, TITLES, NONE, {})]
    assert found[:4] == [
        "Training, images/s, CPU",
        "Training, images/s, CPU, tuned",
        "Training, images/s, CPU, tuned, bf16",
        "Training, images/s, GPU",
    ]
    assert len(found) == 8


def test_cells_that_differ_in_the_batch_size_have_rows() -> None:
    analysis = analyzed(record(request(), 500.0), record(request(batch=128), 600.0))
    assert [line[:13].rstrip() for line in shown(analysis)[2:]] == ["mnist-cnn", "  batch 64", "  batch 128"]


def test_all_of_many_rows_are_shown() -> None:
    every = [
        record(request(cell(name, "torch", "cpu", variant)), 500.0)
        for name, variants in catalog.scenarios().items()
        for variant in variants
    ]
    assert len(every) > 8
    assert len(shown(analyzed(*every))) == 2 + len(every)


def test_a_failed_cell_says_so_and_a_skipped_one_is_left_out() -> None:
    lacking = failed(request(cell("cifar-cnn", device="cuda")), Status.SKIPPED, Code.NO_DEVICE)
    analysis = analyzed(
        failed(request(cell("mnist-cnn", "torch"))), record(request(cell("mnist-cnn", "tensorflow"))), lacking
    )
    assert shown(analysis)[2:] == ["mnist-cnn                1,000   failed"]


def test_accuracy_is_shown_after_whole_epochs_on_real_data() -> None:
    def titles(one: Record) -> list[str]:
        return [table.title for table in tables.tables(analyzed(one), TITLES, NONE, {})]

    assert "Test accuracy" in titles(record(request(data="real"), epochs=2))
    assert "Test accuracy" not in titles(record(request(data="synthetic"), epochs=2))
    assert "Test accuracy" not in titles(record(request(data="real")))


def test_the_table_of_accuracies_leaves_out_networks_and_rows_without_one() -> None:
    trained = [record(request(cell("mnist-cnn", name), data="real"), epochs=2) for name in ("torch", "tensorflow")]
    speeds = [
        record(request(batch=128, data="real")),
        record(request(cell("cifar-cnn", "torch"), data="real")),
    ]
    speed, *_, accuracy = tables.tables(analyzed(*trained, *speeds), TITLES, NONE, {})
    assert [name for name, _, _ in speed.rows] == ["cifar-cnn", "mnist-cnn", "  batch 64", "  batch 128"]
    assert [name for name, _, _ in accuracy.rows] == ["mnist-cnn", "  batch 64"]
    assert all("%" in value for value in accuracy.rows[1][1])


def test_failures_are_grouped_by_reason_with_their_remedy() -> None:
    texts = results.failures(
        [
            failed(
                request(cell(name, "torch")), Status.OUT_OF_MEMORY, message="It needs 9 GiB.", remedy="Raise --memory."
            )
            for name in ("mnist-cnn", "cifar-cnn")
        ]
        + [failed(request(cell(name, "torch", "cuda")), Status.SKIPPED) for name in ("mnist-cnn", "cifar-cnn")]
        + [failed(request(cell("fashion-mlp", "torch"), launch=number)) for number in (1, 2)],
        TITLES,
    )
    assert texts == [
        "Out of memory: mnist-cnn in PyTorch, cifar-cnn in PyTorch. It needs 9 GiB. Raise --memory.",
        "Failed: fashion-mlp in PyTorch, 2 launches. It failed. Look.",
        "Skipped: 2 cells in PyTorch on the GPU. It failed. Look.",
    ]


def test_synthetic_cells_are_marked_only_next_to_real_ones() -> None:
    made, real = record(request(data="synthetic")), record(request(cell("cifar-cnn"), data="real"))
    assert results.find_marks(analyzed(made)).synthetic == frozenset()
    mixed = analyzed(made, real)
    marks = results.find_marks(mixed)
    assert marks.synthetic == {made.key}
    (line,) = [
        line for line in results.caveats(mixed, marks, single=False, undecided=False) if "synthetic" in line.lower()
    ]
    (line,) = results._wrapped([line], 80)
    assert line == "*  synthetic data: speeds are estimates. `kit data fetch` gets the real sets."


def test_the_load_of_other_programs_is_named_as_the_cause() -> None:
    at = [float(second) for second in range(1, 12)]

    def launch(scenario: str, cpu_busy: float, cpu_steal: float = 0.0) -> Record:
        means = {"cpu_busy": cpu_busy, "cpu_steal": cpu_steal}
        series: dict[str, list[float | None]] = {name: [mean for _ in at] for name, mean in means.items()}
        samples = HostSamples(at=at, series=series, core_busy=[], cost_s=0.01)
        return record(request(cell(scenario)), host_samples=samples)

    def caveat(*records: Record) -> str:
        analysis = analyzed(*records)
        (line,) = [
            line
            for line in results.caveats(analysis, results.find_marks(analysis), single=False, undecided=False)
            if line.startswith(UNSTEADY)
        ]
        return line

    # A launch itself keeps 1.9 CPUs busy.
    loaded, stolen = launch("cifar-cnn", 2.9), launch("fashion-mlp", 1.9, cpu_steal=0.2)
    assert results.find_marks(analyzed(loaded)).disturbed == {loaded.key}
    assert results.find_marks(analyzed(launch("cifar-cnn", 1.9))).disturbed == frozenset()
    all_loaded = caveat(launch("mnist-cnn", 2.4), loaded)
    assert all_loaded == "!  not steady: other programs used up to 1.0 of 2 CPUs (2 of 2 cells)"
    some = caveat(loaded, stolen)
    assert (
        some == "!  not steady: other programs used up to 1.0 of 2 CPUs in 1 cell, or the speed changed (2 of 2 cells)"
    )
    facts = [fact.text for fact in reliability(analyzed(loaded, stolen)).facts]
    assert "Other programs used the CPUs during 1 of 2 cells: stop them and measure again" in facts
    quiet = reliability(analyzed(launch("mnist-cnn", 1.9), stolen)).facts
    assert not any("Other programs" in fact.text for fact in quiet)
    none = caveat(launch("mnist-cnn", 1.9), stolen)
    assert none == "!  not steady: the speed changed, or other programs ran (1 of 2 cells)"


def test_similar_errors_of_neighbors_are_one_short_sentence() -> None:
    cause = "Launches that follow each other have similar errors (lag-1 autocorrelation 0.90 over 40 launches)."
    warning = RunWarning(WarningCode.CORRELATED, "", cause, "Compare cells of one run by their ratios.")
    other = RunWarning(WarningCode.OLD_DRIVER, "", "The driver is old.", "Update it.")
    (line,) = results.warned([warning])
    assert line == "Warning: The speed of this machine changed during the run, so trust ratios more than speeds."
    assert results.warned([other, warning]) == ["Warning: The driver is old. Update it. 1 more in the report."]


def test_commands_have_the_name_that_a_shell_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "called", lambda: "'a b/kit'")
    analysis = analyzed(record(request(data="synthetic")))
    finished = FinishedRun(Path("reports/r1"), Path("reports/r1/index.html"), analysis, 0)
    text = "\n".join(results.lines(finished, TITLES, 80))
    assert "To be sure:  'a b/kit' run --scenario mnist-cnn " in text
    assert "`'a b/kit' data fetch` gets" in text


def test_lines_break_between_words_but_not_inside_a_command() -> None:
    assert results._wrapped(
        ["Skipped: 3 cells. `kit doctor` looks for a GPU.", "!  not steady: other programs ran"], 24
    ) == [
        "Skipped: 3 cells.",
        "  `kit doctor` looks for",
        "  a GPU.",
        "!  not steady: other",
        "   programs ran",
    ]


def test_the_fastest_in_common_rounds_is_named_although_a_failed_cell_missed_the_fast_rounds() -> None:
    drift = [1000.0 * (1 + 0.1 * number) for number in range(10)]
    ahead = [1.1 * speed * (1 + 0.001 * (number % 2)) for number, speed in enumerate(drift[:5])]
    (row,) = shown(analyzed(*launches("mnist-cnn", torch=drift, tensorflow=ahead)))[2:]
    assert row.split() == ["mnist-cnn", "1,320", "1,450", "TensorFlow", "1.1×"]


def test_a_difference_that_is_no_tie_is_not_called_one() -> None:
    ratios = [1.3, 1.06, 1.3, 1.06, 1.3]  # beyond the noise alone, but not among three pairs
    base = [1000.0, 1001.0, 1000.0, 999.0, 1000.0]
    ahead = [speed * ratio for speed, ratio in zip(base, ratios, strict=True)]
    analysis = analyzed(*launches("mnist-cnn", torch=ahead, tensorflow=base, onnxruntime=base))
    assert shown(analysis)[2].endswith("undecided")


def test_two_launches_that_decide_nothing_say_so_below_the_tables() -> None:
    for torch, few in (([300.0, 200.0], True), ([200.0, 202.0], False)):
        analysis = analyzed(
            *launches("mnist-cnn", tensorflow=[100.0, 101.0] if not few else [100.0, 150.0], torch=torch)
        )
        text = " ".join(results.lines(FinishedRun(Path("r1"), Path("r1/index.html"), analysis, 0), TITLES, 80))
        assert ("too few to be sure where it says undecided" in " ".join(text.split())) == few
