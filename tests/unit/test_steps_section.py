"""Test what the report says about the steps of cells and about the steadiness of launches."""

from __future__ import annotations

import html
from dataclasses import replace

import pytest

from kit.analysis.diagnosis_rules import Bottleneck
from kit.analysis.launch_windows import launch_windows
from kit.analysis.limit_labels import LABELS, LIMIT_RULES, NEAR_CEILING
from kit.analysis.reliability import reliability
from kit.analysis.run_analysis import analyze_run
from kit.analysis.warnings import RunWarning, WarningCode
from kit.model.formatting import format_si
from kit.model.record import HostSamples, Record
from kit.planning import catalog
from kit.report.render import render
from kit.report.section import ReportInput
from kit.report.sections import steadiness, steps, warnings
from kit.report.view import make_view
from scenarios.contract.cell import Cell
from tests import report_runs
from tests.examples import cell, record, request
from tests.unit.test_headings import TITLES, source_of
from tests.unit.test_report import Document


@pytest.fixture(scope="module")
def cuda() -> ReportInput:
    """Return the run of all networks on a CPU and a GPU."""
    return ReportInput(analyze_run(report_runs.cuda(), catalog.scenarios()), TITLES)


def test_the_evidence_has_the_time_of_the_chart(cuda: ReportInput) -> None:
    found = cuda.analysis.diagnoses
    assert len(found) == 36
    for diagnosis in found:
        assert diagnosis.parts
        assert diagnosis.evidence.startswith(f"A step takes {format_si(diagnosis.parts.total, 's')}")


def test_the_heading_names_unclear_causes_last_and_the_network_of_a_cause_that_only_one_has(cuda: ReportInput) -> None:
    (sentence,) = [s for s in steps.SECTION.data(cuda).heading.split(". ") if s.startswith("GPU: ")]
    labels = [d.label for d in cuda.analysis.diagnoses if "/cuda/" in d.key]
    assert labels.count("no clear cause") > len(labels) / 3  # the most frequent one
    assert sentence.endswith(
        f", waiting for data in 3 (catdog-cnn), no clear cause in {labels.count('no clear cause')}"
    )


def test_the_page_says_where_the_steps_come_from_and_shows_commands_as_code(cuda: ReportInput) -> None:
    page = render(make_view(cuda.analysis, TITLES))
    shown = Document(page).text
    assert "as measured in the first launch of the cell." in shown
    assert "the busy share of the GPU counts the kernels of all parts" in shown
    starved = "kit run --scenario catdog-cnn --framework {} --device cuda --workers 4 --engine fake"
    alike = starved.format("tensorflow --framework onnxruntime --framework torch")
    assert html.unescape(page).count(f"<code>{alike}</code>") == 1, "one command for cells that differ only in this"
    gain = "Without waiting for data, training would speed up 7.1×. Faster loading cannot gain more."
    assert f"{gain} Measured with 1.0 of 2 CPUs busy." in shown


def test_all_frameworks_need_no_name_and_an_unsteady_cell_promises_nothing(cuda: ReportInput) -> None:
    """The same run, in which the speed of PyTorch on the GPU jumped."""
    photos = [key for key in (d.key for d in cuda.analysis.diagnoses) if key.startswith("catdog-cnn/")]
    (jumped,) = [key for key in photos if "/torch/cuda/" in key]
    jump = RunWarning(WarningCode.JUMP, jumped, "The speed jumped.", "Look.")
    known = replace(cuda.analysis, frameworks=("onnxruntime", "tensorflow", "torch"), warnings=[jump])
    found = steps.SECTION.data(replace(cuda, analysis=known))
    (changes,) = [network.changes for network in found.networks if network.details.startswith("catdog-cnn")]
    (words, gain) = next((words, gain) for about, words, gain in changes if about.startswith("GPU, waiting for data"))
    assert "`kit run --scenario catdog-cnn --device cuda --workers 4 --engine fake`" in words
    assert "The photos were synthetic." in words
    assert gain.startswith(
        "Without waiting for data, training would speed up 7.1× in TensorFlow and 7.1× in ONNX Runtime."
    )


def test_only_a_gpu_can_be_busy_for_a_shorter_time() -> None:
    on_cpu = source_of([record(request(cell()))])
    assert not steps.SECTION.data(on_cpu).busy
    assert "busy share of the GPU" not in Document(render(make_view(on_cpu.analysis, TITLES))).text


def test_workers_of_a_launch_are_in_the_advice() -> None:
    launch = record(request(replace(cell("catdog-cnn"), workers=3)))
    source = source_of([launch])
    slow = replace(source.analysis.diagnoses[0], bottleneck=Bottleneck.INPUT_BOUND)
    source = replace(source, analysis=replace(source.analysis, diagnoses=[slow]))
    (((_, _, gain),),) = [network.changes for network in steps.SECTION.data(source).networks]
    assert gain.endswith(" Measured with 3 workers, 1.9 of 2 CPUs busy.")


def launches(framework: str, *speeds: float) -> list[Record]:
    """Return a launch for each speed in images/s."""
    return [record(request(cell(framework=framework), launch=n), speed) for n, speed in enumerate(speeds, 1)]


def test_cells_that_differ_only_between_launches_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """95.05 is 4.95% below 100, but the rule about outliers uses the logarithm of the ratio: 5.08%."""
    source = source_of([*launches("torch", 70, 100, 130, 90, 110), *launches("onnxruntime", 100, 100, 100, 100, 95.05)])
    doubts = [
        RunWarning(WarningCode.NOISY, cell().key, "The speed of equal work varies.", "Look."),
        RunWarning(WarningCode.OUTLIERS, cell(framework="onnxruntime").key, "One launch is far.", "Look."),
    ]
    source = replace(source, analysis=replace(source.analysis, warnings=doubts))
    every = steadiness.SECTION.data(source)
    assert every.heading == "No: 2 of 2 cells were not steady"
    apart = "1 cell was steady within each launch, but not from launch to launch"
    assert every.apart == f"{apart}: mnist-cnn/torch/cpu."
    monkeypatch.setattr(steadiness, "MAX_SPARKS", 9)
    some = steadiness.SECTION.data(source)
    assert (some.selected, some.drawn, some.omitted) == (True, "1 launch of 1 cell", 0)
    assert some.apart == f"{apart}, so it is not drawn: mnist-cnn/torch/cpu."
    (sparks,) = [cells for row in some.rows for cells in row.cells if cells]
    assert [spark.reasons for spark in sparks] == ["off the median launch by -5%"]
    page = Document(render(make_view(source.analysis, TITLES))).text
    assert "Only those that were not steady are drawn: 1 launch of 1 cell." in page


def test_the_framework_of_all_unsteady_cells_is_named() -> None:
    other = [record(request(cell("cifar-cnn"), launch=n)) for n in (1, 2, 3)]
    source = source_of([*launches("torch", 70, 100, 130), *other, *launches("tensorflow", 100, 100, 100)])

    def heading(*doubtful: Cell) -> str:
        doubts = [
            RunWarning(WarningCode.NOISY, each.key, "The speed of equal work varies.", "Look.") for each in doubtful
        ]
        return steadiness.SECTION.data(replace(source, analysis=replace(source.analysis, warnings=doubts))).heading

    torch, tensorflow = (cell(), cell("cifar-cnn")), cell(framework="tensorflow")
    assert heading(*torch) == "No: 2 of 3 cells were not steady, all in PyTorch"
    assert heading(torch[1], tensorflow) == "No: 2 of 3 cells were not steady"


def test_cells_of_which_too_little_was_measured_are_not_called_steady() -> None:
    short, repeated = launches("torch", 100), launches("tensorflow", 100, 101)
    for records, heading, fact in (
        (short, "Not known: too little was measured", "Too little was measured to say whether the cell was steady"),
        (
            [*short, *repeated],
            "Yes in 1 cell; too little was measured of 1 more",
            "Too little was measured to say whether 1 of 2 cells was steady",
        ),
        (repeated, "Yes: in 1 cell the speed was steady", "The cell was steady"),
    ):
        source = source_of(records)
        assert steadiness.SECTION.data(source).heading == heading
        (found,) = [fact for fact in reliability(source.analysis).facts if "steady" in fact.text]
        assert (found.good, found.text) == (records is repeated, fact)


def test_a_long_list_of_cells_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steadiness, "MAX_NAMES", 1)
    source = source_of([*launches("torch", 70, 100, 130), *launches("tensorflow", 70, 100, 130)])
    doubts = [
        RunWarning(WarningCode.NOISY, cell(framework=name).key, "The speed of equal work varies.", "Look.")
        for name in ("torch", "tensorflow")
    ]
    data = steadiness.SECTION.data(replace(source, analysis=replace(source.analysis, warnings=doubts)))
    assert data.apart == (
        "2 cells were steady within each launch, but not from launch to launch: mnist-cnn/torch/cpu and 1 more."
    )


def test_only_launches_that_the_warning_names_are_off_the_median() -> None:
    """Launches 2 to 6 differ by 10% among themselves, so only launch 1 is an outlier."""
    source = source_of(launches("torch", 300, 110, 90, 105, 95, 100))
    (warning,) = [each for each in source.analysis.warnings if each.code is WarningCode.OUTLIERS]
    assert "launch 1 (+" in warning.cause
    assert "launch 2" not in warning.cause
    windows = launch_windows(source.analysis.launches, [warning])
    assert [each.launch for each in windows if each.reasons] == [1]


def test_the_rule_below_the_bars_names_each_limit():
    """A cell on the wrong device has no bar."""
    assert {label for label, _ in LIMIT_RULES} == {*LABELS.values(), NEAR_CEILING} - {LABELS[Bottleneck.WRONG_DEVICE]}


def test_the_causes_of_unsteady_launches_are_counted_by_their_kind() -> None:
    source = source_of([*launches("torch", 70, 100, 130, 90, 110)])
    hot = HostSamples(
        at=[float(n) for n in range(20)], series={"gpu0_temperature_c": [90.0] * 20}, core_busy=[], cost_s=0.0
    )
    heated = {
        key: [replace(launch, record=launch.record.model_copy(update={"host_samples": hot})) for launch in own]
        for key, own in source.analysis.launches.items()
    }
    warning = RunWarning(WarningCode.HOT_GPU, cell().key, "The GPU reached 90 °C.", "Cool it.")
    source = replace(source, analysis=replace(source.analysis, launches=heated, warnings=[warning]))
    data = steadiness.SECTION.data(source)
    assert data.causes == "hot GPU in 5 launches"
    (spark, *_) = [spark for row in data.rows for sparks in row.cells for spark in sparks]
    assert spark.reasons == "GPU at 90 °C"


def test_a_group_of_warnings_says_what_it_is_about() -> None:
    source = source_of(launches("torch", 100, 101, 102))
    drift = RunWarning(WarningCode.DRIFT, "", "Over the run.", "Look.")
    found = [drift, replace(drift, about=cell().key, cause="In the cell.")]
    found.append(RunWarning(WarningCode.NO_CEILING, "ceilings/torch/cpu/stock/fp32/b1", "It failed.", "Look."))
    data = warnings.SECTION.data(replace(source, analysis=replace(source.analysis, warnings=found)))
    assert [group.where for group in data.groups] == ["the whole run and 1 cell", "1 probe"]
