"""Test what a run says while it measures: phases, launches, and the time that is left."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from kit.datasets.service import ResolvedData
from kit.execution import outlook, phases
from kit.execution.launch_report import LaunchReport
from kit.execution.workflow import Downloads, PreparedRun
from kit.host.load import Load
from kit.model.environment import EnvironmentKey
from kit.model.progress import Outcome, PlainProgress, Silent
from kit.model.record import HostSamples
from kit.planning import catalog
from kit.planning.estimates import INFERENCE_S, Estimate, Pace, request_seconds
from scenarios.contract.cell import CEILINGS
from scenarios.contract.epochs import EpochProgress
from scenarios.contract.reasons import Code, Reason, Status
from tests import examples
from tests.examples import cell, failed, planned, record, request
from tests.fakes import FakeEngine


@dataclass
class Shown:
    """A phase that keeps what it is told."""

    expected: float = 0
    done: float = 0
    texts: list[str] = field(default_factory=list)
    left: list[float | None] = field(default_factory=list)

    def expect(self, amount: float) -> None:
        self.expected += amount

    def advance(self, amount: float) -> None:
        self.done += amount

    def now(self, text: str, left_s: float | None = None) -> None:
        self.texts.append(text)
        self.left.append(left_s)

    def result(self, text: str) -> None:
        self.texts.append(text)

    def end(self, outcome: Outcome) -> None:
        pass


def reported(rounds: list[list[tuple[str, int, float]]]) -> tuple[Shown, list[str], LaunchReport]:
    """Report launches (framework, number, images/s) of mnist-cnn. Each took 10 s. A speed of 0 is a failure."""
    shown, lines = Shown(), list[str]()
    report = LaunchReport(shown, PlainProgress(lines.append), examples.plan([planned()]))
    for launches in rounds:
        wanted = [request(cell(framework=name), launch=number) for name, number, _ in launches]
        report.expect(wanted)
        for each, (_, _, speed) in zip(wanted, launches, strict=True):
            report.start(each)
            report.finish(record(each, speed, seconds=10.0) if speed else failed(each), of_base=False)
    return shown, lines, report


def test_a_single_launch_leaves_one_line_per_cell() -> None:
    shown, lines, report = reported([[("torch", 1, 1000.0), ("tensorflow", 1, 0.0)]])
    assert lines == [
        "mnist-cnn/torch/cpu/stock/fp32/b64: 1,000 images/s",
        "mnist-cnn/tensorflow/cpu/stock/fp32/b64: failed, It failed.",
    ]
    assert shown.texts[:2] == ["mnist-cnn in PyTorch", "mnist-cnn in PyTorch: 1,000 images/s"]
    assert (shown.expected, shown.done) == (2, 2)
    assert report.outcome() == Outcome("1 of 2 cells failed, 2 launches", good=False)


def test_with_several_launches_each_one_and_each_round_has_a_line() -> None:
    first = [(name, number, 1000.0 + number) for number in (1, 2, 3) for name in ("torch", "tensorflow")]
    _, lines, report = reported([first, [("torch", 4, 1000.0)]])
    assert lines == [
        "mnist-cnn/torch/cpu/stock/fp32/b64: 1,001 images/s",
        "mnist-cnn/tensorflow/cpu/stock/fp32/b64: 1,001 images/s",
        "Round 1: 2 launches, 20 s, about 40 s left",
        "mnist-cnn/torch/cpu/stock/fp32/b64, launch 2: 1,002 images/s",
        "mnist-cnn/tensorflow/cpu/stock/fp32/b64, launch 2: 1,002 images/s",
        "Round 2: 2 launches, 20 s, about 20 s left",
        "mnist-cnn/torch/cpu/stock/fp32/b64, launch 3: 1,003 images/s",
        "mnist-cnn/tensorflow/cpu/stock/fp32/b64, launch 3: 1,003 images/s",
        "Round 3: 2 launches, 20 s",
        "mnist-cnn/torch/cpu/stock/fp32/b64, launch 4: 1,000 images/s",
        "Round 4: 1 launch, 10 s",
    ]
    assert report.outcome() == Outcome("2 cells, 7 launches")


def test_epochs_are_shown_with_the_time_that_is_left_and_logged_once_a_minute() -> None:
    now = 0.0
    shown, lines = Shown(), list[str]()
    report = LaunchReport(shown, PlainProgress(lines.append), examples.plan([planned()]), clock=lambda: now)
    wanted = [request(cell(framework=name)) for name in ("torch", "tensorflow")]
    report.expect(wanted)
    report.start(wanted[0])
    typical_s = [request_seconds(each, catalog.scenarios()) for each in wanted]
    for epoch in range(1, 6):
        now = 40.0 * epoch
        report.epoch(EpochProgress(epoch, 25, 0.8123, 40.0))
        own_s = 40.0 * (25 - epoch) + INFERENCE_S
        # The other cell takes longer than its typical time by the same factor as this one.
        assert shown.left[-1] == pytest.approx(own_s + typical_s[1] / typical_s[0] * (now + own_s))
    assert shown.texts[-1] == "epoch 5 of 25, 81.2% test accuracy, mnist-cnn in PyTorch"
    reached = [line.partition(", 81.2% test accuracy, about ")[0] for line in lines]
    assert reached == [f"mnist-cnn/torch/cpu/stock/fp32/b64: epoch {epoch} of 25" for epoch in (2, 4)]


def test_the_time_left_is_that_of_whole_trainings_although_one_was_resumed_or_failed() -> None:
    now = 0.0
    shown = Shown()
    report = LaunchReport(shown, Silent(), examples.plan([planned()]), clock=lambda: now)
    wanted = [request(cell(framework=name)) for name in ("onnxruntime", "torch", "tensorflow")]
    typical_s = [request_seconds(each, catalog.scenarios()) for each in wanted]
    report.expect(wanted)
    report.start(wanted[0])
    report.finish(failed(wanted[0]), of_base=False)  # in a second
    report.start(wanted[1])
    assert shown.left[-1] == pytest.approx(sum(typical_s[1:]))
    now = 45.0
    report.epoch(EpochProgress(25, 25, 0.8, 40.0))  # the other 24 were trained before
    whole_s = 25 * 40.0 + INFERENCE_S
    assert shown.left[-1] == pytest.approx(INFERENCE_S + typical_s[2] / typical_s[1] * whole_s)
    measured = record(wanted[1], epochs=25, seconds=45.0)
    assert measured.result
    assert measured.result.training
    training = replace(measured.result.training, resumed_from=[20, 24])
    before_s = sum(epoch.seconds for epoch in training.epochs[:24])
    resumed = measured.model_copy(update={"result": replace(measured.result, training=training)})
    report.finish(resumed, of_base=False)
    report.start(wanted[2])
    assert shown.left[-1] == pytest.approx(typical_s[2] / typical_s[1] * (45.0 + before_s))


def test_it_says_why_a_training_began_anew() -> None:
    lines = list[str]()
    report = LaunchReport(Shown(), PlainProgress(lines.append), examples.plan([planned()]))
    report.expect([request()])
    report.start(request())
    measured = record()
    assert measured.result
    assert measured.result.training
    training = replace(measured.result.training, ignored_checkpoints=["It was altered."])
    report.finish(measured.model_copy(update={"result": replace(measured.result, training=training)}), of_base=False)
    assert lines[-1] == "mnist-cnn/torch/cpu/stock/fp32/b64: It was altered."


def test_it_warns_once_of_other_programs() -> None:
    lines = list[str]()
    report = LaunchReport(Shown(), PlainProgress(lines.append), examples.plan([planned()]))
    launches = [request(launch=number) for number in (1, 2, 3)]
    report.expect(launches)
    at = [float(second) for second in range(12)]
    for each, busy in zip(launches, (2.0, 3.1, 3.4), strict=True):  # the launch itself keeps 1.9 CPUs busy
        samples = HostSamples(at=at, series={"cpu_busy": [busy for _ in at]}, core_busy=[], cost_s=0.0)
        report.start(each)
        report.finish(record(each, host_samples=samples), of_base=False)
    (warning,) = [line for line in lines if line.startswith("!")]
    assert warning == lines[3], "it comes after the second launch"
    assert warning == (
        "! mnist-cnn in PyTorch: Other processes kept 1.2 of the machine's 2 logical CPUs busy while the cell trained. "
        "Stop them, or the speeds will be too low."
    )


def test_names_say_only_what_differs() -> None:
    both = examples.plan([planned(), planned(device="cuda")])
    report = LaunchReport(Shown(), Silent(), both)
    assert report.name(cell(device="cuda")) == "mnist-cnn in PyTorch on the GPU"
    tuned = request(lane="tuned", precision="bf16").cell
    assert report.name(tuned) == "mnist-cnn in PyTorch on the CPU, tuned, bf16"
    assert report.name(request(scenario=CEILINGS, batch=1).cell) == "Ceilings in PyTorch on the CPU"


def test_the_time_that_is_left_follows_what_was_measured() -> None:
    pace = Pace()
    assert pace.left_s([("a", 10.0), ("b", 20.0)]) == 30.0
    pace.add("a", 10.0, 40.0)
    assert pace.left_s([("b", 20.0)]) == 80.0, "this machine is four times slower than the typical one"
    pace.add("b", 20.0, 20.0)
    assert pace.left_s([("a", 10.0), ("b", 20.0), ("c", 10.0)]) == 40.0 + 20.0 + 20.0, (
        "a cell that was measured has its own pace"
    )
    assert pace.left_s([("a", 5.0)]) == 20.0, "a launch with a shorter proof takes less time"


def test_the_outcome_of_the_data_says_what_is_synthetic_or_missing() -> None:
    real = ResolvedData("real", None, "MNIST: published files")
    made = ResolvedData("synthetic", None, "MNIST: synthetic. No mirror answers. Fetch it.", "No mirror answers.")
    large = ResolvedData("synthetic", None, "Photos: synthetic. Too large. Fetch it.", "Too large.")
    resumed = ResolvedData("synthetic", None, "Photos: synthetic. Too large. Fetch it.")
    missing = Reason(Code.DATA_UNAVAILABLE, "No mirror answers.", "Try again.")
    assert phases.data_outcome({"A": real, "B": real}, "auto") == Outcome("2 data sets ready")
    assert phases.data_outcome({"A": made}, "synthetic") == Outcome("synthetic, as requested")
    one = Outcome("1 data set ready; synthetic: MNIST (No mirror answers)", good=False)
    assert phases.data_outcome({"A": real, "MNIST": made}, "auto") == one
    two = Outcome("synthetic: MNIST and Photos (Photos: Too large)", good=False)
    assert phases.data_outcome({"MNIST": resumed, "Photos": large}, "auto") == two
    none = Outcome("not available: MNIST (No mirror answers)", good=False)
    assert phases.data_outcome({"MNIST": missing}, "real") == none
    mirrors = Reason(Code.DATA_UNAVAILABLE, "The file could not be downloaded: one: 404; two: 403.", "Try again.")
    first = Outcome("not available: MNIST (The file could not be downloaded: one: 404)", good=False)
    assert phases.data_outcome({"MNIST": mirrors}, "real") == first


@pytest.mark.parametrize(
    ("needed", "existed", "outcome"),
    [
        (3, [False, False, False], Outcome("3 built")),
        (3, [True, False, True], Outcome("1 built, 2 ready")),
        (3, [True], Outcome("1 ready, 2 failed", good=False)),
    ],
)
def test_the_outcome_of_the_images_counts_them(needed: int, existed: list[bool], outcome: Outcome) -> None:
    assert phases.environments_outcome(needed, existed) == outcome


def test_the_outcome_of_the_ceilings_has_the_best_values_of_each_device() -> None:
    report = LaunchReport(Shown(), Silent(), examples.plan([planned()]))
    probes = [record(request(scenario=CEILINGS, purpose="probe", batch=1, device=device)) for device in ("cpu", "cuda")]
    one, both = (phases.ceilings_outcome(report, found) for found in (probes[:1], probes))
    assert one == Outcome("100 GFLOP/s matrix products, 20 GB/s memory")
    assert (
        both.text == "CPU 100 GFLOP/s matrix products, 20 GB/s memory; GPU 100 GFLOP/s matrix products, 20 GB/s memory"
    )
    probe = failed(request(scenario=CEILINGS, purpose="probe", batch=1), Status.FAILED)
    report.records.append((probe, False))
    assert phases.ceilings_outcome(report, [probe]) == Outcome("1 of 1 probe failed", good=False)


def test_only_load_that_results_will_show_is_named() -> None:
    assert outlook.describe_load(None) is None
    assert outlook.describe_load(Load(2, 0.2, 0.0, ("sshd",))) is None
    assert outlook.describe_load(Load(2, 1.94, 0.0, ("python3", "chrome"))) == (
        "! Other programs use 1.9 of 2 CPUs (python3, chrome). Stop them, or the speeds will be too low."
    )
    assert outlook.describe_load(Load(1, 0.3, 0.0, ())) == (
        "! Other programs use 0.3 of 1 CPU. Stop them, or the speeds will be too low."
    )


def test_a_run_says_what_it_will_do() -> None:
    plan = examples.plan([planned(number, device=device) for device in ("cpu", "cuda") for number in (1, 2)])
    assert outlook.describe_launches(plan, ()) == "1 cell on the CPU and 1 on the GPU, 2 launches each (quick)."
    skipped: set[EnvironmentKey] = {("torch", "cuda")}
    assert (
        outlook.describe_launches(plan, skipped)
        == "1 cell on the CPU, 2 launches each (quick). 1 on the GPU is skipped."
    )
    assert outlook.describe_launches(plan, {*skipped, ("torch", "cpu")}).endswith("are skipped.")
    assert "each in both runs" in outlook.describe_launches(plan, skipped, runs=2)
    standard = plan.model_copy(update={"profile": "standard"})
    assert "2 launches or more each (standard)" in outlook.describe_launches(standard, ())
    plans_nothing_to_build = PreparedRun(plan, FakeEngine(), "", {}, Estimate(2883.0, 0, ()), Downloads(0, ()))
    assert plans_nothing_to_build.summary(examples.machine())[2].startswith("About 49 min and no more disk space. Ctrl")
    assert plans_nothing_to_build.details()[-1] == "Total: about 49 min and no more disk space"
    note = "No docker engine answers. Using the local engine."
    assert outlook.describe_place(examples.machine(), note) == (
        "Example CPU, 2 CPUs, 8.0 GiB, no NVIDIA GPU · No docker engine answers. Using the local engine"
    )
