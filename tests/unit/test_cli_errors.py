"""Test how commands fail: messages, exit codes and closed streams."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import fakes
from tests.command import Kit

BAD = {
    "run": ["--all", "kit list"],
    "rum": ["Did you mean 'run'"],
    "run --everything": ["No such option"],
    "run --all --epochs many": ["--epochs", "'many' is not a whole number", "for example 32"],
    "run --all --seed 1.5": ["--seed", "'1.5' is not a whole number", "for example 32"],
    "run --all --scenario mnist-cn": ["Did you mean 'mnist-cnn'?", "cifar-mlp"],
    "run --scenario mnist-cnn --variant dep": ["variant", "default"],
    "run --framework pytorch": ["Did you mean 'torch'?", "onnxruntime"],
    "run --device gpu": ["Unknown device 'gpu'", "Choose from: cpu, cuda."],
    "run --all --lane tunned": ["Unknown lane 'tunned'", "Did you mean 'tuned'?", "Choose from: stock, tuned."],
    "run --all --precision fp16": ["Unknown precision 'fp16'", "Choose from: bf16, fp32, tf32."],
    "run --all --profile Quick": ["Unknown profile 'Quick'", "Did you mean 'quick'?", "full, quick, smoke, standard."],
    "run --all --data fake": ["Unknown kind of data 'fake'", "Choose from: auto, real, synthetic."],
    "run --all --timeout 90": ["--timeout", "not a duration", "90s"],
    "run --all --memory 4x": ["--memory", "not a size", "4g"],
    "run --all --memory 1k": ["--memory must be between 64 MiB and", "but is 1.0 KiB"],
    "run --all --batch 0": ["--batch must be between 1 and 8,000", "images of catdog-cnn), but is 0"],
    "run --all --epochs 3": ["--profile full"],
    "run --all --rounds many": ["--rounds", "'many' is not a whole number"],
    "run --all --rounds 0": ["--rounds must be between 1 and 1,000, but is 0"],
    "run --all --rounds -1": ["but is -1"],
    "run --all --rounds 1000": ["has 36,000 launches", "at most 10,000", "Select fewer cells or rounds."],
    "run --all --profile standard --rounds 5 --budget 1h": ["--budget does not apply to a fixed number of rounds"],
    "run --against nothing": ["no run 'nothing'"],
    "plan --against nothing": ["no run 'nothing'"],
    "run --all --profile full --epochs 999999999999": ["--epochs must be between 1 and 10,000", "999,999,999,999"],
    "run --all --retry-failed": ["--resume"],
    "run --resume nothing": ["no run 'nothing'", "Give the folder"],
    "run --resume nothing --profile full": ["--profile", "without --resume"],
    "run --all --ca-bundle /nowhere": ["/nowhere"],
    "run --all --ca-bundle /proc/self/mem": ["/proc/self/mem", "cannot be read", "--ca-bundle"],
    "run --all --out /dev/null": ["/dev/null is a file", "Name a folder with --out"],
    "run --all --out=": ["--out", "The folder name is empty.", "for example reports"],
    "run --all --resume=": ["--resume", "The name of the run is empty.", "or its id"],
    "run --all --against=": ["--against", "The name of the run is empty."],
    "plan --against=": ["--against", "The name of the run is empty."],
    "run --all --out /dev/null/runs": ["/dev/null is a file", "Name a folder with --out"],
    "run --all --tune 0s": ["not a duration"],
    "run --all --tune 30s": ["does not apply to the stock lane", "--lane tuned"],
    "plan --all --tune 30s": ["does not apply to the stock lane"],
    "run --all --settings /nowhere/s.json": ["/nowhere/s.json cannot be read", "kit settings"],
    "settings nothing": ["no run 'nothing'"],
    "plan --framework pytorch": ["Did you mean 'torch'?"],
    "build --framework pytorch": ["Did you mean 'torch'?"],
    "build --device gpu": ["Unknown device 'gpu'", "cpu, cuda"],
    "list framework": ["Unknown kind 'framework'", "Did you mean 'frameworks'?", "datasets, frameworks, scenarios."],
    "report nothing": ["no run 'nothing'"],
    "compare nothing": ["Missing argument", "RUN"],
    "compare nothing more": ["no run 'nothing'"],
    "gate nothing more": ["no run 'nothing'"],
    "gate nothing more --rounds 5": ["--rounds applies to fresh rounds only", "--confirm"],
    "gate nothing more --max-regression 5": ["--max-regression", "'5' is not a share", "5%"],
    "data fetch mnits": ["Did you mean 'mnist'?"],
    "data verify mnits": ["Did you mean 'mnist'?"],
    "data add mnits .": ["Did you mean 'mnist'?"],
}


@pytest.mark.parametrize("command", BAD)
@pytest.mark.usefixtures("engine")
def test_bad_input_ends_with_code_2_and_names_the_choices(kit: Kit, command: str) -> None:
    called = kit(*command.split())
    assert called.code == 2
    assert not called.out
    for words in BAD[command]:
        assert words in called.err
    assert "Traceback" not in called.err


@pytest.mark.parametrize(("number", "code"), [(errno.EACCES, 6), (errno.ENOSPC, 6), (errno.ECHILD, 1)])
def test_an_unexpected_disk_failure_is_a_disk_error(kit: Kit, engine: fakes.FakeEngine, number: int, code: int) -> None:
    def breaks(name: str) -> None:
        raise OSError(number, os.strerror(number), "/x/y")

    engine.on_call = breaks
    called = kit("build")
    assert called.code == code
    assert ("/x/y cannot be used" in called.err) == (code == 6)


def test_an_unexpected_error_is_one_line_and_a_file(
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


@pytest.mark.parametrize(
    ("arguments", "words"), [("--engine dokcer", "'docker'"), ("--engine docker --env system", "--env")]
)
def test_an_invalid_engine_is_refused(kit: Kit, arguments: str, words: str) -> None:
    called = kit("run", "--all", *arguments.split())
    assert called.code == 2
    assert words in called.err


def test_a_missing_interpreter_is_bad_input(kit: Kit) -> None:
    called = kit("plan", "--framework", "torch", "--env", "/nowhere/python")
    assert (called.code, called.out) == (2, "")
    assert "There is no interpreter '/nowhere/python'.\nGive --env" in called.err


def test_an_out_folder_that_is_not_utf8_is_bad_input(kit: Kit, engine: fakes.FakeEngine, tmp_path: Path) -> None:
    called = kit("run", "--all", "--out", "\udcff")
    assert (called.code, called.out) == (2, "")
    assert "is not UTF-8.\nName another folder with --out." in called.err
    assert not [path for path in tmp_path.rglob("*") if path.name.startswith("\udcff")]


def test_a_base_image_with_a_line_break_is_bad_input(kit: Kit, engine: fakes.FakeEngine) -> None:
    called = kit("run", "--all", "--base-image", "debian:bookworm\n")
    assert (called.code, called.out, engine.calls) == (2, "", [])
    assert r"'debian:bookworm\n' is not the name of an image" in called.err
    assert "--base-image" in called.err


@pytest.mark.parametrize("setting", ["KIT_CACHE_DIR", "KIT_DATA_DIR", "KIT_DATA_MIRROR"])
def test_the_home_folder_of_an_unknown_user_is_bad_input(
    kit: Kit, monkeypatch: pytest.MonkeyPatch, engine: fakes.FakeEngine, setting: str
) -> None:
    monkeypatch.delenv("KIT_DATA_DIR")
    monkeypatch.setenv(setting, "~nobody-has-this-name/kit")
    ended = kit("doctor") if setting == "KIT_DATA_MIRROR" else kit("data", "verify")
    assert ended.code == 2
    assert f"{setting} is '~nobody-has-this-name/kit', but there is no such user." in ended.err


@pytest.mark.parametrize("redirected", ["2>/dev/full", "2>&-"])
def test_the_exit_code_is_kept_if_stderr_cannot_be_written(redirected: str) -> None:
    done = subprocess.run(["sh", "-c", f"{sys.executable} -m kit report nothing {redirected}"], check=False)
    assert done.returncode == 2


def test_an_ascii_terminal_gets_a_table() -> None:
    ascii_only = os.environ | {"PYTHONIOENCODING": "ascii"}
    command = "from kit.cli.console import print_text; print_text('9 ± 1'); print_text('*')"
    program = f"from kit.cli import commands, main; commands.app = lambda: exec({command!r}); main()"
    done = subprocess.run([sys.executable, "-c", program], env=ascii_only, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "9 ? 1\n*\n")


@pytest.mark.parametrize("command", ["list", "list --json", "--version", "--help"])
def test_results_that_cannot_be_written_are_a_disk_error(command: str) -> None:
    done = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m kit {command} >/dev/full"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 6
    assert done.stderr.startswith("The output cannot be used: No space left on device.\nFree disk space")
    assert len(done.stderr.splitlines()) == 2


def test_messages_for_a_closed_stderr_do_not_go_to_stdout() -> None:
    done = subprocess.run(["sh", "-c", f"{sys.executable} -m kit rum 2>&-"], capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (2, b"")


def test_a_closed_stdout_is_no_crash() -> None:
    done = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m kit list >&-"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("command", ["--version", "data verify", "data verify mnist", "clean"])
def test_a_closed_pipe_does_not_change_the_exit_code(kit: Kit, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.setattr("kit.datasets.service.verify", lambda name: None)
    monkeypatch.setattr("kit.execution.clean.clean", lambda sources, **options: [])
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w", encoding="utf-8") as stream:
        monkeypatch.setattr("sys.stdout", stream)
        assert kit(*command.split()).code == 0
