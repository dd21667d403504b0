"""The command line: what is typed, what is printed, and with which exit code it ends."""

from __future__ import annotations

import errno
import importlib.metadata
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

import pytest

from kit import cli
from kit.cli import results
from kit.engines import registry
from kit.engines.docker import DockerEngine
from kit.environments.package_sources import Sources
from kit.host import machine_lock
from kit.model.errors import EngineError, ImageError
from kit.storage import run_names
from kit.storage.run_folder import RunFolder
from scenarios.contract.reasons import Code, Reason, Status
from tests import examples, fakes

NO_GPU = {(framework, "cuda"): "No GPU." for framework in ("onnxruntime", "tensorflow", "torch")}


class Called(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


Kit = Callable[..., Called]


@pytest.fixture
def kit(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Kit:
    """Type a command in an empty folder, with empty caches."""
    monkeypatch.chdir(tmp_path)
    for name in ("KIT_CACHE_DIR", "KIT_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setattr("signal.signal", lambda number, handler: None)
    monkeypatch.setattr("kit.environments.package_sources._pip_settings", lambda environment: {})  # half a second each

    def call(*arguments: str) -> Called:
        monkeypatch.setattr(sys, "argv", ["kit", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        told = capsys.readouterr()
        return Called(int(ended.value.code or 0), told.out, told.err)

    return call


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> fakes.FakeEngine:
    """The engine that every command gets: a machine without GPU."""
    fake = fakes.FakeEngine(refused=NO_GPU)
    monkeypatch.setattr(registry, "choose", lambda name, environment, sources: (fake, "Using the fake engine."))
    monkeypatch.setattr("kit.host.machine_lock.PATH", tmp_path / "lock")
    return fake


def test_the_help_imports_nothing_heavy() -> None:
    program = "import kit.cli, sys; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert "typer" in modules
    assert not {"rich", "pydantic", "pandas", "numpy", "docker", "requests", "jinja2", "psutil"} & set(modules)


COMMANDS = [
    "doctor",
    "list",
    "plan",
    "build",
    "run",
    "report",
    "settings",
    "compare",
    "gate",
    "clean",
    *(f"data {name}" for name in ("fetch", "add", "verify", "list")),
]


def test_the_version_is_the_package_s(kit: Kit) -> None:
    assert kit("--version") == Called(0, f"kit {importlib.metadata.version('kit')}\n", "")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_help_ends_with_an_example(kit: Kit, command: str) -> None:
    called = kit(*command.split(), "--help")
    assert called.code == 0
    assert called.out.rstrip().splitlines()[-1].strip().startswith(f"Example: kit {command}")


BAD = {
    "run": ["--all", "kit list"],
    "rum": ["Did you mean 'run'"],
    "run --everything": ["No such option"],
    "run --all --epochs many": ["--epochs"],
    "run --all --scenario mnist-cn": ["Did you mean 'mnist-cnn'?", "cifar-mlp"],
    "run --scenario mnist-cnn --variant dep": ["variant", "default"],
    "run --framework pytorch": ["Did you mean 'torch'?", "onnxruntime"],
    "run --device gpu": ["device 'gpu'", "cuda"],
    "run --all --lane tunned": ["Did you mean 'tuned'?"],
    "run --all --precision fp16": ["fp32"],
    "run --all --profile quik": ["Did you mean 'quick'?", "smoke"],
    "run --all --data fake": ["real", "synthetic"],
    "run --all --timeout 90": ["not a duration", "90s"],
    "run --all --memory 4x": ["not an amount of memory", "4g"],
    "run --all --batch 0": ["--batch"],
    "run --all --epochs 3": ["--profile full"],
    "run --all --retry-failed": ["--resume"],
    "run --resume nothing": ["no run 'nothing'", "--out"],
    "run --resume nothing --profile full": ["--profile", "without --resume"],
    "run --all --ca-bundle /nowhere": ["/nowhere"],
    "run --all --ca-bundle /proc/self/mem": ["/proc/self/mem", "cannot be read", "--ca-bundle"],
    "run --all --out /dev/null": ["/dev/null is a file", "Name a folder with --out"],
    "run --all --out /dev/null/runs": ["/dev/null is a file", "Name a folder with --out"],
    "run --all --tune 0s": ["not a duration"],
    "run --all --tune 30s": ["no meaning in the stock lane", "--lane tuned"],
    "plan --all --tune 30s": ["no meaning in the stock lane"],
    "run --all --settings /nowhere/s.json": ["/nowhere/s.json cannot be read", "kit settings"],
    "settings nothing": ["no run 'nothing'"],
    "plan --framework pytorch": ["Did you mean 'torch'?"],
    "build --framework pytorch": ["Did you mean 'torch'?"],
    "build --device gpu": ["device 'gpu'", "cuda"],
    "list framework": ["Did you mean 'frameworks'?"],
    "report nothing": ["no run 'nothing'"],
    "compare nothing": ["Missing argument", "RUN"],
    "compare nothing more": ["no run 'nothing'"],
    "gate nothing more": ["no run 'nothing'"],
    "gate nothing more --max-regression 5": ["'5' is not a share", "5%"],
    "data fetch mnits": ["Did you mean 'mnist'?"],
    "data verify mnits": ["Did you mean 'mnist'?"],
    "data add mnits .": ["Did you mean 'mnist'?"],
}


@pytest.mark.parametrize("command", BAD)
@pytest.mark.usefixtures("engine")
def test_bad_input_ends_with_code_2_and_says_what_there_is(kit: Kit, command: str) -> None:
    called = kit(*command.split())
    assert called.code == 2
    assert not called.out
    for words in BAD[command]:
        assert words in called.err
    assert "Traceback" not in called.err


RUN = ("run", "--scenario", "mnist-cnn", "--profile", "smoke", "--data", "synthetic")


def test_a_run_shows_engine_cost_results_and_report(kit: Kit, engine: fakes.FakeEngine) -> None:
    called = kit(*RUN)
    assert called.code == 0
    for words in (
        "Using the fake engine.",
        "3 launches",
        "of disk",
        "mnist-cnn/torch/cpu/stock/fp32/b64: 1,000 images/s",
    ):
        assert words in called.err
    assert re.search(r"^mnist-cnn/torch/cpu\* +ok +1,000 +~60\.0 +1\.50$", called.out, re.MULTILINE)
    assert "* measured on synthetic data\nMNIST: synthetic, as asked for\n" in called.out
    assert re.search(r"^3 launches skipped: No GPU\.", called.out, re.MULTILINE)
    report = Path(called.out.strip().splitlines()[-1].removeprefix("Report: "))
    assert re.fullmatch(r"reports/\d{8}-\d{6}-[0-9a-f]{4}/index\.html", str(report))
    assert "mnist-cnn" in report.read_text()


def test_a_run_as_json_prints_nothing_else(kit: Kit, engine: fakes.FakeEngine) -> None:
    called = kit(*RUN, "--framework", "torch", "--json")
    summary = json.loads(called.out)
    assert (called.code, called.err) == (0, "")
    assert summary["exit_code"] == 0
    assert [launch["status"] for launch in summary["launches"]] == ["ok", "skipped"]
    assert summary["cells"][0]["images_per_s"] == 1000
    assert Path(summary["report"]).is_file()


def test_a_failure_is_shown_and_retried_by_the_id_of_the_run(kit: Kit, engine: fakes.FakeEngine) -> None:
    def fails(asked: object, folder: object) -> object:
        raise EngineError("The engine refused.", "Ask again.")

    engine.worker = fails  # type: ignore[assignment]
    broken = kit(*RUN, "--framework", "torch", "--device", "cpu", "--json")
    assert broken.code == EngineError.exit_code
    run = json.loads(broken.out)["run"]
    engine.worker = fakes.works
    assert kit("run", "--resume", run).code == EngineError.exit_code  # nothing is missing
    mended = kit("run", "--resume", run, "--retry-failed")
    assert mended.code == 0
    assert "1 failed, 1 ok" in mended.out or "1 ok, 1 failed" in mended.out
    assert kit("report", run, "--out", "copy.html").out.rstrip().endswith("Report: copy.html")
    assert Path("copy.html").is_file()
    assert "There is: " + run in kit("report", run[:-1]).err


def saved(name: str, speeds: dict[str, list[float]]) -> None:
    """A run below reports/, with launches of these speeds of torch's cells of these scenarios."""
    launches = [
        (examples.cell(scenario), number, speed)
        for scenario, of_cell in speeds.items()
        for number, speed in enumerate(of_cell, start=1)
    ]
    plan = examples.plan([examples.planned(number, **vars(cell)) for cell, number, _ in launches])
    folder = RunFolder.create(Path("reports") / name, plan.model_copy(update={"run": name}), examples.machine())
    for cell, number, speed in launches:
        folder.save(examples.record(examples.request(cell, launch=number), speed))


STEADY = [1000.0, 1004.0, 996.0, 1002.0, 998.0]
SLOW = [speed * 0.9 for speed in STEADY]


def test_compare_shows_every_run_against_the_first(kit: Kit) -> None:
    saved("before", {"mnist-cnn": STEADY, "cifar-cnn": STEADY})
    saved("after", {"mnist-cnn": SLOW, "fashion-mlp": STEADY})
    saved("again", {"mnist-cnn": STEADY, "cifar-cnn": STEADY})
    called = kit("compare", "before", "reports/after", "again")
    assert (called.code, called.err) == (0, "")
    assert re.search(
        r"^mnist-cnn/torch/cpu\* +1,000 +900 +0\.900 +0\.\d{3}-0\.9\d{2} +slower$", called.out, re.MULTILINE
    )
    assert re.search(r"^cifar-cnn/torch/cpu\* +1,000 +absent +missing$", called.out, re.MULTILINE)
    assert re.search(r"^mnist-cnn/torch/cpu\* +1,000 +1,000 +1\.000 +0\.\d{3}-1\.\d{3} +tie$", called.out, re.MULTILINE)
    assert max(map(len, called.out.splitlines())) <= 80
    document = json.loads(kit("compare", "before", "after", "--json").out)
    assert [run["run"] for run in document["runs"]] == ["before", "after"]
    slower = document["comparisons"][0]["cells"][0]
    assert (slower["verdict"], slower["base"]["launches"]) == ("slower", 5)
    assert slower["interval"][0] < slower["ratio"] < slower["interval"][1] < 1


@pytest.mark.parametrize(
    ("new", "allowed", "code", "words"),
    [
        ({"mnist-cnn": STEADY}, "5%", 0, "Passed; 1 of 1 cell judged."),
        ({"mnist-cnn": SLOW}, "5 %", 1, "Failed: 1 regression; 1 of 1 cell judged."),
        ({"mnist-cnn": SLOW}, "0.15", 0, "Passed; 1 of 1 cell judged."),
        ({"cifar-cnn": STEADY}, "5%", 2, "Failed: 1 lost; 0 of 1 cell judged."),
    ],
)
def test_the_gate_ends_with_its_judgement(
    kit: Kit, new: dict[str, list[float]], allowed: str, code: int, words: str
) -> None:
    saved("before", {"mnist-cnn": STEADY})
    saved("after", new)
    called = kit("gate", "before", "after", "--max-regression", allowed)
    assert (called.code, called.err) == (code, "")
    assert called.out.rstrip().endswith(words)
    as_json = kit("gate", "before", "after", "--max-regression", allowed, "--json")
    assert as_json.code == json.loads(as_json.out)["exit_code"] == code


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_gate_without_intervals_judges_nothing(kit: Kit, options: list[str]) -> None:
    saved("before", {"mnist-cnn": STEADY})
    saved("after", {"mnist-cnn": STEADY[:1]})
    called = kit("gate", "before", "after", *options)
    assert (called.code, called.out) == (2, "")
    assert called.err.rstrip().endswith("--profile standard.")


@pytest.mark.parametrize("command", ["compare", "gate"])
def test_a_run_is_not_held_against_itself(kit: Kit, command: str) -> None:
    saved("before", {"mnist-cnn": STEADY})
    called = kit(command, "before", "reports/before")
    assert (called.code, called.out) == (2, "")
    assert "before is named twice" in called.err


def test_a_run_of_a_newer_kit_is_refused(kit: Kit, engine: fakes.FakeEngine) -> None:
    folder = Path(json.loads(kit(*RUN, "--framework", "torch", "--json").out)["folder"])
    plan = json.loads((folder / "plan.json").read_text())
    (folder / "plan.json").write_text(json.dumps(plan | {"schema": 99}))
    called = kit("run", "--resume", str(folder))
    assert (called.code, called.out) == (2, "")
    assert "newer kit" in called.err


def test_cuda_by_name_without_a_gpu_is_an_engine_error(kit: Kit, engine: fakes.FakeEngine) -> None:
    called = kit(*RUN, "--device", "cuda")
    assert called.code == EngineError.exit_code
    assert "No GPU." in called.err


@pytest.mark.parametrize(
    ("option", "code"), [("--device cuda", 3), ("--threads 9999", 2), ("--gpus 7", 2), ("--framework torch", 3)]
)
def test_a_run_that_cannot_start_leaves_no_folder(kit: Kit, engine: fakes.FakeEngine, option: str, code: int) -> None:
    with machine_lock.measuring("r1") if option == "--framework torch" else nullcontext():
        called = kit(*RUN, *option.split())
    assert (called.code, called.out) == (code, "")
    assert not Path("reports").exists()


@pytest.mark.parametrize(("number", "code"), [(errno.EACCES, 6), (errno.ENOSPC, 6), (errno.ECHILD, 1)])
def test_a_disk_that_fails_where_nobody_looked_is_a_disk_error(
    kit: Kit, engine: fakes.FakeEngine, number: int, code: int
) -> None:
    def breaks(name: str) -> None:
        raise OSError(number, os.strerror(number), "/x/y")

    engine.on_call = breaks
    called = kit("build")
    assert called.code == code
    assert ("/x/y cannot be used" in called.err) == (code == 6)


def test_a_plan_builds_and_runs_nothing(kit: Kit, engine: fakes.FakeEngine) -> None:
    called = kit("plan")
    assert called.code == 0
    assert re.search(r"^catdog-cnn/torch/cpu/stock/fp32/b32 +1$", called.out, re.MULTILINE)
    assert re.search(r"^catdog-cnn/torch/cuda/stock/fp32/b32 +1 +skipped$", called.out, re.MULTILINE)
    assert "18 launches" in called.out
    planned = json.loads(kit("plan", "--json").out)
    assert len(planned["launches"]) == 36
    assert planned["seconds"] > 0
    assert not [call for call in engine.calls if call.startswith(("prepare", "launch"))]
    assert not Path("reports").exists()


def test_build_makes_what_can_run_here_or_what_is_named(kit: Kit, engine: fakes.FakeEngine) -> None:
    made = json.loads(kit("build", "--json").out)
    assert [(e["framework"], e["device"]) for e in made] == [(f, "cpu") for f in ("onnxruntime", "tensorflow", "torch")]
    assert "kit-torch:cuda" in kit("build", "--framework", "torch", "--device", "cuda").out

    def full(name: str) -> None:
        raise ImageError("It cannot be built.", "Read the log.")

    engine.on_call = full
    failed = kit("build")
    assert (failed.code, failed.out) == (ImageError.exit_code, "")
    assert failed.err.endswith("It cannot be built.\nRead the log.\n")


def test_a_build_that_can_make_nothing_says_why(kit: Kit, engine: fakes.FakeEngine) -> None:
    engine.refused = {("torch", "cpu"): "It lacks torch.", ("torch", "cuda"): "No GPU."}
    called = kit("build", "--framework", "torch")
    assert (called.code, called.out) == (EngineError.exit_code, "")
    assert "It lacks torch." in called.err


def test_a_run_of_an_unknown_profile_is_refused(kit: Kit, engine: fakes.FakeEngine) -> None:
    folder = Path(json.loads(kit(*RUN, "--framework", "torch", "--device", "cpu", "--json").out)["folder"])
    plan = json.loads((folder / "plan.json").read_text())
    (folder / "plan.json").write_text(json.dumps(plan | {"profile": "quik"}))
    for file in (folder / "records").iterdir():
        file.unlink()
    called = kit("run", "--resume", str(folder))
    assert (called.code, called.out) == (2, "")
    assert "Did you mean 'quick'" in called.err


def test_clean_takes_nothing_away_from_a_run_that_measures(kit: Kit, engine: fakes.FakeEngine) -> None:
    with machine_lock.measuring("r1"):
        called = kit("clean", "--environments")
    assert (called.code, called.out) == (EngineError.exit_code, "")
    assert "r1" in called.err


@pytest.mark.parametrize("left", [[], ["process 7"]])
def test_clean_says_which_engine_did_not_answer_and_cleans_the_others(
    kit: Kit, monkeypatch: pytest.MonkeyPatch, left: list[str]
) -> None:
    def answer(self: DockerEngine) -> dict[str, str]:
        if self.name == "podman":
            return {"version": "4"}
        raise EngineError("You may not use\ndocker's socket.", "Join its group.")

    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr("kit.engines.docker.DockerEngine.describe", answer)
    monkeypatch.setattr("kit.engines.docker.DockerEngine.sweep", lambda self, alive: [f"{self.name}-7"])
    monkeypatch.setattr("kit.engines.local.LocalEngine.sweep", lambda self, alive: left)
    called = kit("clean")
    assert (called.code, called.err) == (0, "")
    assert called.out.splitlines() == [
        "docker was not cleaned: You may not use docker's socket.",
        "container podman-7",
        *left,
    ]


def test_clean_says_nothing_of_an_engine_that_is_not_installed(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(self: DockerEngine) -> dict[str, str]:
        raise EngineError(f"No {self.name} engine answers.", "Start it.")

    monkeypatch.setattr("shutil.which", lambda name: "/usr/bin/docker" if name == "docker" else None)
    monkeypatch.setattr("kit.engines.docker.DockerEngine.describe", answer)
    monkeypatch.setattr("kit.engines.local.LocalEngine.sweep", lambda self, alive: [])
    assert kit("clean").out.splitlines() == ["docker was not cleaned: No docker engine answers."]


def test_list_shows_what_exists(kit: Kit) -> None:
    text = kit("list").out
    for words in ("catdog-cnn", "conv-dropout", "TensorFlow", "Fashion-MNIST"):
        assert words in text
    assert set(json.loads(kit("list", "datasets", "--json").out)) == {"datasets"}


def test_an_unforeseen_error_is_one_line_and_a_file(
    kit: Kit, engine: fakes.FakeEngine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def breaks(name: str) -> None:
        raise ZeroDivisionError("by nothing")

    engine.on_call = breaks
    called = kit("build")
    assert called.code == 1
    assert "ZeroDivisionError: by nothing" in called.err
    assert "Traceback" not in called.err
    (log,) = (tmp_path / "KIT_CACHE_DIR").rglob("crash.log")
    assert "in breaks" in log.read_text()
    monkeypatch.setenv("KIT_DEBUG", "1")
    assert "in breaks" in kit("build").err


def no_daemon(self: object) -> dict[str, str]:
    raise EngineError("No docker engine answers.", "Start it.")


def test_auto_takes_docker_where_it_answers_else_local(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kit.engines.docker.DockerEngine.describe", lambda self: {"version": "20.10"})
    engine, note = registry.choose("auto", "", Sources())
    assert (engine.name, note) == ("docker", "Using Docker 20.10.")
    assert registry.choose("auto", "system", Sources())[0].name == "local"
    monkeypatch.setattr("kit.engines.docker.DockerEngine.describe", no_daemon)
    engine, note = registry.choose("auto", "", Sources())
    assert (engine.name, note) == ("local", "No docker engine answers. Using the local engine.")
    with pytest.raises(EngineError):
        registry.choose("docker", "", Sources())


@pytest.mark.parametrize(
    ("arguments", "words"), [("--engine dokcer", "'docker'"), ("--engine docker --env system", "--env")]
)
def test_an_engine_that_makes_no_sense_is_refused(kit: Kit, arguments: str, words: str) -> None:
    called = kit("run", "--all", *arguments.split())
    assert called.code == 2
    assert words in called.err


def test_an_interpreter_that_does_not_exist_is_bad_input(kit: Kit) -> None:
    called = kit("plan", "--framework", "torch", "--env", "/nowhere/python")
    assert (called.code, called.out) == (2, "")
    assert "There is no interpreter '/nowhere/python'.\nGive --env" in called.err


def test_verify_says_where_there_is_nothing_to_verify(kit: Kit) -> None:
    called = kit("data", "verify")
    assert called.code == 0
    assert "No data set is here" in called.out


def test_the_table_names_what_differs_and_what_failed() -> None:
    failed = Reason(Code.DEADLINE, "It took too long.", "Raise --timeout.")
    records = [
        examples.record(examples.request(key="a")),
        examples.record(examples.request(key="b", batch=128), status=Status.TIMEOUT, reason=failed, result=None),
        examples.record(examples.request(key="c", lane="tuned", data="real")),
    ]
    rows = results.table(records)
    assert [row[0] for row in rows] == [
        "mnist-cnn/torch/cpu/stock/fp32/b64*",
        "mnist-cnn/torch/cpu/stock/fp32/b128*",
        "mnist-cnn/torch/cpu/tuned/fp32/b64",
    ]
    assert rows[1][1:] == ["timeout", "", "", "", ""]
    assert results.notes(records)[-1] == "b timeout: It took too long. Raise --timeout."
    assert results.table(records[:1])[0][0] == "mnist-cnn/torch/cpu*"


def test_skipped_cells_have_no_row_beside_others() -> None:
    here = examples.record(examples.request(key="a"))
    lacking = examples.failed(examples.request(key="b", framework="tensorflow"), Status.SKIPPED)
    assert [row[1] for row in results.table([lacking, here])] == ["ok"]
    assert "b skipped: It failed. Look." in results.notes([lacking, here])
    assert [row[1] for row in results.table([lacking])] == ["skipped"]


def test_what_trained_no_epoch_has_no_accuracy_and_a_note_says_why() -> None:
    part, whole = examples.record(examples.request(key="a")), examples.record(examples.request(key="b"), epochs=2)
    assert any("--profile full" in note for note in results.notes([part]))
    assert not any("No accuracy" in note for note in results.notes([part, whole]))


def test_run_ids_sort_by_time_and_differ() -> None:
    assert len({run_names.new_run_id() for _ in range(20)}) > 1
    assert re.fullmatch(r"\d{8}-\d{6}-[0-9a-f]{4}", run_names.new_run_id())


@pytest.mark.parametrize("setting", ["KIT_CACHE_DIR", "KIT_DATA_DIR", "KIT_DATA_MIRROR"])
def test_a_home_folder_of_nobody_is_bad_input(
    kit: Kit, monkeypatch: pytest.MonkeyPatch, engine: fakes.FakeEngine, setting: str
) -> None:
    monkeypatch.delenv("KIT_DATA_DIR")
    monkeypatch.setenv(setting, "~nobody-has-this-name/kit")
    ended = kit("doctor") if setting == "KIT_DATA_MIRROR" else kit("data", "verify")
    assert ended.code == 2
    assert f"{setting} is '~nobody-has-this-name/kit', and there is no such user." in ended.err


def test_what_a_stranger_wrote_into_a_run_cannot_command_the_terminal(kit: Kit, tmp_path: Path) -> None:
    wanted = examples.planned()
    folder = RunFolder.create(tmp_path / "reports/a", examples.plan([wanted]), examples.machine())
    file = folder.save(examples.failed(message="\x1b]0;owned\x07"))
    shown = kit("report", "a")
    assert "\x1b" not in shown.out
    assert "?]0;owned?" in shown.out
    file.write_text(file.read_text().replace('"key": "mnist-cnn', '"key": "\\u001b[2J'))
    refused = kit("report", "a")
    assert refused.code == 2
    assert "\x1b" not in refused.err


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_reader_that_went_away_does_not_change_the_judgement(tmp_path: Path, options: list[str]) -> None:
    planned = [examples.planned(number) for number in range(1, 6)]
    for name in ("a", "b"):
        plan = examples.plan(planned).model_copy(update={"run": name})
        folder = RunFolder.create(tmp_path / name, plan, examples.machine())
        for launch in planned:
            folder.save(examples.record(examples.request(launch=launch.launch), images_per_s=1000.0 + launch.launch))
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run(
        [sys.executable, "-m", "kit", "gate", tmp_path / "a", tmp_path / "b", *options],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize("redirected", ["2>/dev/full", "2>&-"])
def test_the_exit_code_stands_also_where_nobody_can_be_told(redirected: str) -> None:
    done = subprocess.run(["sh", "-c", f"{sys.executable} -m kit report nothing {redirected}"], check=False)
    assert done.returncode == 2


def test_an_ascii_terminal_gets_a_table_all_the_same() -> None:
    ascii_only = os.environ | {"PYTHONIOENCODING": "ascii"}
    command = "from kit.cli.console import print_text; print_text('9 ± 1'); print_text('*')"
    program = f"import sys; from kit import cli; cli.app = lambda: exec({command!r}); cli.main()"
    done = subprocess.run([sys.executable, "-c", program], env=ascii_only, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "9 ? 1\n*\n")


def test_a_closed_stdout_is_no_crash() -> None:
    done = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m kit list >&-"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_settings_that_were_found_are_written_and_measured_with_elsewhere(
    kit: Kit, engine: fakes.FakeEngine, tmp_path: Path
) -> None:
    one = ("--scenario", "mnist-cnn", "--framework", "torch", "--device", "cpu")
    first = kit("run", *one, "--lane", "tuned", "--tune", "30s", "--json")
    assert first.code == 0, first.err
    assert len(engine.tuned) == 1
    assert kit("settings", json.loads(first.out)["run"], "--out", "s.json").code == 0
    key = "mnist-cnn/torch/cpu/tuned/fp32/b64"
    assert json.loads((tmp_path / "s.json").read_text())["cells"] == {key: examples.SETTINGS}

    second = kit("run", *one, "--lane", "tuned", "--settings", "s.json", "--json")
    assert second.code == 0, second.err
    assert len(engine.tuned) == 1, "nothing is searched"
    timed = kit("run", *one, "--lane", "tuned", "--tune", "90s", "--settings", "s.json")
    assert (timed.code, "--tune has no meaning" in timed.err) == (2, True)
    assert json.loads(kit("settings", json.loads(second.out)["run"]).out)["cells"] == {key: examples.SETTINGS}

    (tmp_path / "s.json").write_text(json.dumps({"schema": 1, "cells": {key: {"allocator": "/opt/evil.so"}}}))
    assert "the allocator '/opt/evil.so'" in kit("run", *one, "--lane", "tuned", "--settings", "s.json").err
    (tmp_path / "s.json").write_text('{"schema": 1, "cells": {}}')
    (tmp_path / "twice.json").write_text('{"schema": 1, "cells": {"a": {}, "a": {}}}')
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "huge.json").open("wb") as file:
        file.truncate(1 << 40)
    for name in ("s.json", "pipe", "twice.json", "huge.json"):
        refused = kit("run", *one, "--lane", "tuned", "--settings", name)
        assert refused.code == 2
        assert "Name a file that `kit settings` wrote" in " ".join(refused.err.split())
    (tmp_path / "s.json").write_text(json.dumps({"schema": 1, "cells": {"a/b\nExit": {}}}))
    assert "for 'a/b\\nExit', of which" in kit("run", *one, "--lane", "tuned", "--settings", "s.json").err
    stock = kit("run", *one, "--json")
    assert kit("settings", json.loads(stock.out)["run"]).code == 2
