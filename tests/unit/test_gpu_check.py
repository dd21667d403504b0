"""Test the check of a GPU machine. Its commands are tried on the CPU in the slow tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from kit.host import gpus
from kit.model.errors import DiskError, EngineError, UsageError
from kit.storage.run_folder import RunFolder
from scenarios.contract.reasons import Status
from tests import examples, gpu_check
from tests.command import Kit
from tests.fakes_nvml import FakeGpu, install
from tests.gpu_check import FAIL, PASS, SKIP, Check, Line

FRAMEWORKS = dict.fromkeys(("onnxruntime", "tensorflow", "torch"), "")


def perform(check: Check, out: Path, left_s: float = 600) -> Line:
    return gpu_check.perform(check, out, dict(os.environ), left_s)


def test_every_run_of_the_check_can_be_planned(kit: Kit) -> None:
    runs = [check.command[3:] for check in gpu_check.checks("cpu", "", FRAMEWORKS) if "run" in check.command]
    assert len(runs) >= 9
    for options in runs:
        called = kit("plan", *options)
        assert called.code == 0, called.err


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([examples.record()], (PASS, "1 ok")),
        ([], (FAIL, "no launch has a record")),
        (
            [examples.record(), examples.failed(examples.request(launch=2), message="It broke.")],
            (FAIL, "1 ok, 1 failed\nmnist-cnn/torch/cpu/stock/fp32/b64: It broke."),
        ),
        (
            [examples.failed(status=Status.SKIPPED, message="No TF32.")],
            (SKIP, "1 skipped\nmnist-cnn/torch/cpu/stock/fp32/b64: No TF32."),
        ),
    ],
)
def test_a_run_passes_if_its_launches_are_ok_or_skipped_for_a_reason(tmp_path, records, expected):
    folder = RunFolder.create(tmp_path / "run", examples.plan([examples.planned()] * bool(records)), examples.machine())
    for record in records:
        folder.save(record)
    assert gpu_check.judge_records(tmp_path)[0] == FAIL
    folder.index.touch()
    assert gpu_check.judge_records(tmp_path) == expected


def test_a_run_with_a_missing_launch_fails(tmp_path):
    planned = [examples.planned(), examples.planned(2)]
    folder = RunFolder.create(tmp_path / "run", examples.plan(planned), examples.machine())
    folder.save(examples.record())
    folder.index.touch()
    assert gpu_check.judge_records(tmp_path) == (FAIL, "1 ok, but launches or the report are missing")


@pytest.mark.parametrize(
    ("program", "limit_s", "outcome", "remark"),
    [
        ("print(1)", 60, PASS, ""),
        ("print('It broke.\\n'); exit(3)", 60, FAIL, "exit code 3, see b-c.log\nIt broke."),
        ("exit(3)", 60, FAIL, "exit code 3, see b-c.log"),
        ("import time; time.sleep(1000)", 0.1, FAIL, "it took too long"),
    ],
)
def test_a_check_fails_by_its_exit_code_or_its_time(tmp_path, program, limit_s, outcome, remark):
    line = perform(Check("b, c", ("-c", program), limit_s), tmp_path)
    assert (line.name, line.outcome, line.remark) == ("b, c", outcome, remark)
    assert (tmp_path / "b-c.log").exists()


@pytest.mark.parametrize(
    ("code", "found", "outcome"), [(0, PASS, PASS), (1, SKIP, SKIP), (1, FAIL, FAIL), (3, PASS, FAIL)]
)
def test_exit_code_1_of_a_run_is_for_skipped_cells_if_its_records_pass(tmp_path, code, found, outcome):
    line = perform(Check("a", ("-c", f"exit({code})"), 60, lambda folder: (found, "")), tmp_path)
    assert line.outcome == outcome


def test_a_check_without_time_or_framework_does_not_start(tmp_path):
    check = Check("a", ("-c", "exit(3)"), 60)
    assert perform(check, tmp_path, left_s=1) == Line("a", FAIL, 0, "no time was left")
    assert perform(replace(check, skipped="no torch"), tmp_path) == Line("a", SKIP, 0, "no torch")
    assert not list(tmp_path.iterdir())


def test_the_page_has_one_line_per_check_and_the_reasons_of_what_failed():
    broken = Line("stock cells", FAIL, 61, "1 ok, 1 failed\nx: It broke.")
    lines = [Line("doctor", PASS, 3.2, ""), broken, Line("y", SKIP, 0, "no")]
    assert gpu_check.page(lines) == (
        "pass  doctor           3 s\n"
        "FAIL  stock cells     61 s  1 ok, 1 failed\n"
        "      x: It broke.\n"
        "skip  y                     no\n"
        "1 passed, 1 failed, 1 skipped\n"
    )


def test_a_damaged_run_fails_its_check_but_not_the_others(tmp_path):
    program = "import pathlib, sys; pathlib.Path(sys.argv[-1], 'run').mkdir(parents=True)"
    line = perform(Check("a", ("-c", program, "run"), 60, gpu_check.judge_records), tmp_path)
    assert line.outcome == FAIL
    assert "plan.json" in line.remark


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_the_running_check_and_keeps_the_page_and_the_archive(tmp_path, number):
    """The doctor is replaced by a program that sleeps. The interrupt reaches only the check itself."""
    (tmp_path / "sleeps.py").write_text(
        "import os, pathlib, time\n"
        "pathlib.Path('pid.new').write_text(str(os.getpid()))\n"
        "os.rename('pid.new', 'pid')\n"
        "time.sleep(600)\n"
    )
    program = (
        "import pathlib, signal\n"
        "from tests import gpu_check\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it\n"
        f"gpu_check.ROOT = pathlib.Path({str(tmp_path)!r})\n"
        "gpu_check.checks = lambda *_: [gpu_check.Check('never', ('-c', ''), 60)]\n"
        "before = gpu_check.perform\n"
        "gpu_check.perform = lambda check, *rest: before(gpu_check.Check(check.name, ('sleeps.py',), 60), *rest)\n"
        "gpu_check.command_line(['--device', 'cpu', '--out', 'check'])\n"
    )
    environment = os.environ | {"PYTHONPATH": str(gpu_check.ROOT)}
    process = subprocess.Popen(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    pid = tmp_path / "pid"
    while not pid.exists() and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(number)
    output = process.communicate()[0].decode()
    assert process.returncode == 130, output
    assert "interrupted. The checks after it did not run." in output
    assert "Traceback" not in output
    assert "never" not in output
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
    assert (tmp_path / "check.tar.gz").exists()


@pytest.fixture
def run(monkeypatch):
    """Return a function that calls the check. No check starts."""
    monkeypatch.setattr(gpu_check, "perform", lambda *_: pytest.fail("a check starts"))
    return lambda *arguments: gpu_check.main(["--device", "cpu", *arguments])


@pytest.mark.parametrize("there", ["check", "check.tar.gz"])
def test_results_of_an_earlier_check_are_not_overwritten(run, tmp_path, there):
    (tmp_path / there).write_text("x")
    with pytest.raises(UsageError, match=rf"{there} already exists") as caught:
        run("--out", str(tmp_path / "check"))
    assert "--out" in caught.value.remedy
    assert [file.name for file in tmp_path.iterdir()] == [there]


def test_a_folder_that_cannot_be_created_is_an_error_with_a_remedy(run):
    with pytest.raises(DiskError, match="/proc/check cannot be written") as caught:
        run("--out", "/proc/check")
    assert "--out" in caught.value.remedy


def test_an_unknown_interpreter_is_an_error_before_anything_is_written(run, tmp_path):
    with pytest.raises(UsageError, match="There is no interpreter 'nonsense'"):
        run("--env", "nonsense", "--out", str(tmp_path / "check"))
    assert not list(tmp_path.iterdir())


def test_a_check_on_cuda_needs_a_gpu_that_the_variable_leaves_visible(monkeypatch):
    install(monkeypatch, [])
    with pytest.raises(EngineError, match="No NVIDIA GPU is visible") as caught:
        gpu_check.require_gpu()
    assert "kit doctor" in caught.value.remedy
    install(monkeypatch, [FakeGpu()])
    gpu_check.require_gpu()
    for variable, message in {"-1": "hides every GPU", "7": "names the GPU '7'"}.items():
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
        with pytest.raises(UsageError, match=message):
            gpu_check.require_gpu()


def test_a_framework_without_code_for_the_gpu_is_skipped_everywhere(monkeypatch):
    """Otherwise its contract suite would pass without a test."""
    install(monkeypatch, [FakeGpu()])
    monkeypatch.setattr(gpus, "lack", lambda framework: ("No code.", "Do.") if framework.name == "torch" else None)
    refused = gpu_check.refusals("cuda", "")
    assert refused == {**FRAMEWORKS, "torch": "No code. Do."}
    skipped = {check.name: check.skipped for check in gpu_check.checks("cuda", "", refused) if check.skipped}
    assert skipped == dict.fromkeys(
        ["stock cells, torch", "contract suite, torch", "tf32 and bf16, torch", "tuned cells, torch"], "No code. Do."
    )


def test_a_check_of_no_framework_is_an_error(monkeypatch):
    install(monkeypatch, [FakeGpu()])
    monkeypatch.setattr(gpus, "lack", lambda framework: ("No code.", "Do."))
    with pytest.raises(EngineError, match=r"No framework can be checked on this machine. ONNX Runtime: No code. Do."):
        gpu_check.refusals("cuda", "")


@pytest.mark.parametrize(
    ("target", "wheels", "message"),
    [
        ("wheels", "", "Name one folder without spaces: WHEELS=FOLDER."),
        ("wheels", "two words", "Name one folder without spaces: WHEELS=FOLDER."),
        ("wheels", "file", "mkdir"),
        ("gpu-check", "two words", "Name one folder without spaces: WHEELS=FOLDER."),
        ("gpu-check", "missing", "has no wheels. Download them with: make wheels WHEELS="),
        ("gpu-check", "file", "has no wheels."),
        ("gpu-check", "empty", "has no wheels."),
    ],
)
def test_make_explains_a_folder_of_wheels_that_it_cannot_use(tmp_path, target, wheels, message):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    folder = str(tmp_path / wheels) if wheels else ""
    # `true` instead of Python: nothing is installed or downloaded.
    command = ["make", "-C", str(gpu_check.ROOT), target, f"WHEELS={folder}", "PYTHON=true", f"BIN={tmp_path}/bin"]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    assert made.returncode == 2
    assert message in made.stderr.splitlines()[0]
