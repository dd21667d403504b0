"""Test the commands for one machine: help, list, data, plan, build and clean."""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kit.engines import registry
from kit.engines.docker import DockerEngine
from kit.environments.package_sources import Sources
from kit.host import machine_lock
from kit.model.errors import EngineError, ImageError
from tests import fakes
from tests.command import Called, Kit
from tests.programs import program

ROOT = Path(__file__).parents[2]


def test_the_help_imports_nothing_heavy() -> None:
    program = "import atexit, sys; atexit.register(lambda: print(*sys.modules)); from kit.cli import main; main()"
    modules = subprocess.run(
        [sys.executable, "-c", program, "--help"], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "typer" in modules
    assert not {"rich", "pydantic", "pandas", "numpy", "docker", "requests", "jinja2", "psutil"} & set(modules)


def test_planning_imports_nothing_that_only_results_need() -> None:
    program = "import sys, kit.execution.workflow; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert not {"pandas", "jinja2"} & set(modules)


COMMANDS = [
    "doctor",
    "list",
    "data",
    "study",
    "plan",
    "build",
    "run",
    "report",
    "compare",
    "gate",
    "index",
    "export",
    "pack",
    "unpack",
    "predict",
    "weights",
    "settings",
    "clean",
]
SUBCOMMANDS = ["data fetch", "data add", "data verify", "data list", "study list", "study show", "weights export"]


def listed(text: str) -> dict[str, str]:
    """The names and summaries of the commands in a help text."""
    rows = text.partition("Commands:\n")[2].partition("\n\n")[0].splitlines()
    return {name: " ".join(summary) for name, *summary in map(str.split, rows)}


def test_the_help_lists_commands_in_order_with_whole_summaries(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    summaries = listed(kit("--help").out)
    assert list(summaries) == COMMANDS
    assert all(summary.endswith(".") and not summary.endswith("...") for summary in summaries.values())


@pytest.mark.parametrize(
    ("command", "sections"),
    [
        ("plan", ["Select", "Duration", "Machine", "Packages", "Output", "Options"]),
        ("run", ["Select", "Duration", "Machine", "Packages", "Output", "Options"]),
        ("build", ["Select", "Machine", "Packages", "Output", "Options"]),
        ("gate", ["Arguments", "Output", "Options"]),
        ("doctor", ["Packages", "Output", "Options"]),
    ],
)
def test_the_help_groups_options(kit: Kit, command: str, sections: list[str]) -> None:
    text = kit(command, "--help").out
    assert re.findall(r"^(\w+):$", text, re.MULTILINE) == sections
    assert max(map(len, text.splitlines())) <= 80


def test_plan_and_run_share_their_options(kit: Kit) -> None:
    of_plan, of_run = (
        set(re.findall(r"^  (--[\w-]+)", kit(name, "--help").out, re.MULTILINE)) for name in ("plan", "run")
    )
    assert of_run - of_plan == {"--out", "--resume", "--retry-failed", "--open"}
    assert of_plan < of_run


def test_the_version_is_that_of_the_package(kit: Kit) -> None:
    assert kit("--version") == Called(0, f"kit {importlib.metadata.version('kit')}\n", "")


@pytest.mark.parametrize(
    "command", [name for name in COMMANDS if name not in {"data", "study", "weights"}] + SUBCOMMANDS
)
def test_every_help_ends_with_an_example(kit: Kit, command: str) -> None:
    called = kit(*command.split(), "--help")
    assert called.code == 0
    assert called.out.rstrip().splitlines()[-1].strip().startswith(f"Example: kit {command}")


def test_list_shows_what_exists(kit: Kit) -> None:
    text = kit("list").out
    for words in ("catdog-cnn", "conv-dropout", "TensorFlow", "Fashion-MNIST"):
        assert words in text
    assert set(json.loads(kit("list", "datasets", "--json").out)) == {"datasets"}


def test_the_listed_layers_and_optimizers_have_their_type(kit: Kit) -> None:
    (scenario,) = [
        each
        for each in json.loads(kit("list", "scenarios", "--json").out)["scenarios"]
        if (each["name"], each["variant"]) == ("mnist-cnn", "default")
    ]
    assert [layer["type"] for layer in scenario["layers"]][:2] == ["Conv", "MaxPool"]
    assert scenario["layers"][0]["filters"] == 32
    assert scenario["optimizer"]["type"] == "Adam"


@pytest.mark.parametrize(
    "command",
    [("fetch", "mnist", "mnst"), ("add", "mnst", "."), ("verify", "mnist", "mnst")],
    ids=lambda words: words[0],
)
def test_an_unknown_data_set_is_refused_before_anything_begins(kit: Kit, command: tuple[str, ...]) -> None:
    refused = kit("data", *command)
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.startswith("Unknown data set 'mnst'")


def test_make_sets_up_with_one_line_and_shows_what_fails(tmp_path: Path) -> None:
    for name in ("Makefile", "pyproject.toml", "requirements-dev.lock"):
        (tmp_path / name).symlink_to(ROOT / name)
    python = program(tmp_path / "python", 'echo "$@" >> calls\n[ "$2" != venv ] || mkdir -p .venv/bin\n')
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/python").symlink_to(python)
    command = ["make", "-C", str(tmp_path), "--no-print-directory", "setup", f"PYTHON={python}"]
    made = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (made.stdout, made.stderr) == ("Setting up .venv (about a minute) ...\n", "")
    assert (tmp_path / "calls").read_text().count("pip install") == 2
    (tmp_path / ".venv/bin/kit").unlink()
    program(python, 'case "$*" in *pip*) echo "no index answers" >&2; exit 1; esac\n')
    failed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert failed.returncode == 2
    assert failed.stderr.startswith("no index answers\n")


def test_the_help_of_make_fits_80_columns() -> None:
    help_text = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "measure this machine" in help_text
    assert max(map(len, help_text.splitlines())) <= 80


def test_the_list_of_data_sets_says_how_to_get_missing_ones(kit: Kit) -> None:
    header, row, *_ = kit("data", "list").out.splitlines()
    assert header.split()[-2:] == ["Digest", "Note"]
    assert row.endswith(f"kit data fetch {row.split()[0]}")


def test_verify_without_data_sets_names_the_command_that_downloads_them(kit: Kit) -> None:
    called = kit("data", "verify")
    assert called.code == 0
    assert "No data set is ready" in called.out


def test_a_plan_builds_and_runs_nothing(kit: Kit, engine: fakes.FakeEngine) -> None:
    called = kit("plan")
    assert called.code == 0
    assert re.search(r"^catdog-cnn/torch/cpu/stock/fp32/b32 +2$", called.out, re.MULTILINE)
    assert re.search(r"^catdog-cnn/torch/cuda/stock/fp32/b32 +2 +skipped$", called.out, re.MULTILINE)
    assert "36 launches" in called.out
    planned = json.loads(kit("plan", "--json").out)
    assert len(planned["launches"]) == 72
    assert planned["seconds"] > 0
    assert not [call for call in engine.calls if call.startswith(("prepare", "launch"))]
    assert not Path("reports").exists()


def test_build_builds_what_can_run_here_or_what_is_named(kit: Kit, engine: fakes.FakeEngine) -> None:
    made = json.loads(kit("build", "--json").out)
    assert [(e["framework"], e["device"]) for e in made] == [(f, "cpu") for f in ("onnxruntime", "tensorflow", "torch")]
    assert "kit-torch:cuda" in kit("build", "--framework", "torch", "--device", "cuda").out

    def full(name: str) -> None:
        raise ImageError("It cannot be built.", "Read the log.")

    engine.on_call = full
    failed = kit("build")
    assert (failed.code, failed.out) == (ImageError.exit_code, "")
    assert failed.err.endswith("It cannot be built.\nRead the log.\n")


def test_a_build_of_nothing_gives_the_reason(kit: Kit, engine: fakes.FakeEngine) -> None:
    engine.refused = {("torch", "cpu"): "It lacks torch.", ("torch", "cuda"): "No GPU."}
    called = kit("build", "--framework", "torch")
    assert (called.code, called.out) == (EngineError.exit_code, "")
    assert "It lacks torch." in called.err


def no_daemon(self: object) -> dict[str, str]:
    raise EngineError("No docker engine answers.", "Start it.")


def test_auto_is_docker_if_it_answers_and_local_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kit.engines.docker.DockerEngine.describe", lambda self: {"version": "20.10"})
    engine, note = registry.choose("auto", "", Sources())
    assert (engine.name, note) == ("docker", "Using Docker 20.10.")
    assert registry.choose("auto", "system", Sources())[0].name == "local"
    monkeypatch.setattr("kit.engines.docker.DockerEngine.describe", no_daemon)
    engine, note = registry.choose("auto", "", Sources())
    assert (engine.name, note) == ("local", "No docker engine answers. Using the local engine.")
    with pytest.raises(EngineError):
        registry.choose("docker", "", Sources())


def test_clean_refuses_to_remove_environments_during_a_run(kit: Kit, engine: fakes.FakeEngine) -> None:
    with machine_lock.measuring("r1"):
        called = kit("clean", "--environments")
    assert (called.code, called.out) == (EngineError.exit_code, "")
    assert "r1" in called.err


@pytest.mark.parametrize("left", [[], ["process 7"]])
def test_clean_names_an_engine_that_does_not_answer_and_cleans_the_others(
    kit: Kit, monkeypatch: pytest.MonkeyPatch, left: list[str]
) -> None:
    def answer(self: DockerEngine) -> dict[str, str]:
        if self.name == "podman":
            return {"version": "4"}
        raise EngineError("You are not allowed to use\ndocker's socket.", "Join its group.")

    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr("kit.engines.docker.DockerEngine.describe", answer)
    monkeypatch.setattr("kit.engines.docker.DockerEngine.sweep", lambda self, alive: [f"container {self.name}-7"])
    monkeypatch.setattr("kit.engines.local.LocalEngine.sweep", lambda self, alive: left)
    called = kit("clean")
    assert called.code == EngineError.exit_code, "docker may still have leftovers"
    assert called.out.splitlines() == ["container podman-7", *left]
    assert called.err.splitlines() == [
        "docker was not cleaned: You are not allowed to use docker's socket.",
        "Solve this (`kit doctor` checks Docker), then run `kit clean` again.",
    ]


def test_clean_does_not_mention_an_engine_that_is_not_installed(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(self: DockerEngine) -> dict[str, str]:
        raise EngineError(f"No {self.name} engine answers.", "Start it.")

    monkeypatch.setattr("shutil.which", lambda name: "/usr/bin/docker" if name == "docker" else None)
    monkeypatch.setattr("kit.engines.docker.DockerEngine.describe", answer)
    monkeypatch.setattr("kit.engines.local.LocalEngine.sweep", lambda self, alive: [])
    called = kit("clean")
    assert (called.code, called.out) == (EngineError.exit_code, "")
    assert called.err.splitlines()[0] == "docker was not cleaned: No docker engine answers."


@pytest.mark.parametrize("used", [True, False])
def test_clean_needs_podman_only_if_it_was_used(kit: Kit, monkeypatch: pytest.MonkeyPatch, used: bool) -> None:
    def answer(self: DockerEngine) -> dict[str, str]:
        if self.name == "podman":
            raise EngineError("No podman engine answers.", "Start it.")
        return {"version": "1"}

    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr("kit.engines.docker.DockerEngine.sweep", lambda self, alive: [])
    monkeypatch.setattr("kit.engines.local.LocalEngine.sweep", lambda self, alive: [])
    if used:
        monkeypatch.setattr("kit.engines.docker.DockerEngine.describe", lambda self: {})
        registry.choose("podman", "", Sources())
    monkeypatch.setattr("kit.engines.docker.DockerEngine.describe", answer)
    called = kit("clean")
    assert called.code == (EngineError.exit_code if used else 0)
    assert ("podman was not cleaned" in called.err) is used


def test_clean_needs_no_uv(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> str:
        raise FileNotFoundError("uv")

    monkeypatch.setattr("uv.find_uv_bin", missing)
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr("kit.engines.docker.DockerEngine.describe", no_daemon)
    monkeypatch.setattr("kit.engines.local.LocalEngine.sweep", lambda self, alive: ["process 7"])
    monkeypatch.setattr("kit.environments.uv_environments.remove_all", lambda: ["torch-cpu-0"])
    called = kit("clean", "--environments")
    assert (called.code, called.out.splitlines()) == (0, ["process 7", "environment torch-cpu-0"])
