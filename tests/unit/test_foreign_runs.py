"""Test runs whose files come from a stranger: what --resume executes, and that invalid files only end commands."""

from __future__ import annotations

import json
import shutil
import stat
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kit.engines import registry
from kit.engines.base import EngineEntry
from kit.model.errors import EngineError, UsageError
from kit.model.plan import MAX_LAUNCHES
from kit.storage import chosen_interpreters
from kit.storage.run_folder import RunFolder
from scenarios.contract.ranges import MAX_INT
from tests import examples, fakes
from tests.command import NO_GPU, Kit
from tests.fuzz import STRANGE, places

ONE = ("run", "--scenario", "mnist-cnn", "--framework", "torch", "--device", "cpu", "--profile", "smoke")
Document = dict[str, Any]


class NamedEngine(fakes.FakeEngine):
    """A fake engine that keeps the interpreters with which it was made."""

    interpreters: list[str]


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> NamedEngine:
    """Offer the fake engine only, as any other engine."""
    fake = NamedEngine(refused=NO_GPU)
    fake.interpreters = []

    def make(sources: object, interpreter: str) -> NamedEngine:
        fake.interpreters.append(interpreter)
        return fake

    entry = EngineEntry("fake", "the fake engine", make, makes="image", takes_interpreter=True, auto_rank=1)
    monkeypatch.setattr(registry, "entries", lambda: [entry])
    return fake


def stopped_run(kit: Kit, engine: NamedEngine, *options: str) -> Path:
    """Return the folder of a run that was stopped before its only launch."""

    def stop(name: str) -> None:
        if name == "launch":
            raise KeyboardInterrupt

    engine.on_call = stop
    assert kit(*ONE, "--data", "synthetic", *options).code == 130
    engine.on_call = lambda name: None
    engine.interpreters.clear()
    (folder,) = Path("reports").glob("*/")
    return folder


def edit(folder: Path, **changes: object) -> None:
    """Change fields of a plan."""
    file = folder / "plan.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


@pytest.mark.parametrize("name", ["system", sys.executable])
def test_resume_uses_the_interpreter_that_this_user_named(kit: Kit, engine: NamedEngine, name: str) -> None:
    folder = stopped_run(kit, engine, "--env", name)
    path = str(Path(shutil.which("python3") or "").absolute()) if name == "system" else name
    assert json.loads((folder / "plan.json").read_text())["environment"] == path
    (kept,) = Path("KIT_CACHE_DIR/interpreters").iterdir()
    assert (stat.S_IMODE(kept.stat().st_mode), stat.S_IMODE(kept.parent.stat().st_mode)) == (0o600, 0o700)
    resumed = kit("run", "--resume", str(folder))
    assert (resumed.code, engine.interpreters) == (0, [path]), resumed.err
    assert len(engine.launched) == 1


def test_resume_does_not_execute_an_interpreter_that_only_the_plan_names(kit: Kit, tmp_path: Path) -> None:
    program, trace = tmp_path / "python", tmp_path / "executed"
    program.write_text(f"#!/bin/sh\ntouch {trace}\n")
    program.chmod(0o755)
    plan = examples.plan([examples.planned()]).model_copy(update={"engine": "local", "environment": str(program)})
    folder = RunFolder.create(tmp_path / "run", plan, examples.machine())
    refused = kit("run", "--resume", str(folder.path))
    assert (refused.code, trace.exists()) == (UsageError.exit_code, False)
    message = " ".join(refused.err.split())
    assert f"plan.json names the interpreter {program}, which you did not name for this run." in message
    assert f"name it with `kit run --resume {folder.path} --env {program}`." in message
    assert kit("run", "--resume", str(folder.path), "--env", str(program)).code == EngineError.exit_code
    assert trace.exists()


def test_a_plan_that_names_another_interpreter_than_the_user_needs_env(kit: Kit, engine: NamedEngine) -> None:
    folder = stopped_run(kit, engine, "--env", "system")
    edit(folder, environment="/opt/evil")
    assert kit("run", "--resume", str(folder)).code == UsageError.exit_code
    assert (engine.interpreters, engine.launched) == ([], [])
    assert kit("run", "--resume", str(folder), "--env", sys.executable).code == 0
    assert engine.interpreters == [sys.executable]


def test_env_does_not_apply_to_a_run_that_makes_its_environments(kit: Kit, engine: NamedEngine) -> None:
    folder = stopped_run(kit, engine)
    refused = kit("run", "--resume", str(folder), "--env", "system")
    assert (refused.code, engine.interpreters) == (UsageError.exit_code, [])
    assert "--env does not apply" in refused.err
    assert kit("run", "--resume", str(folder), "--env", "").code == 0
    assert engine.interpreters == [""]


def test_a_choice_that_cannot_be_kept_does_not_stop_the_run(kit: Kit, engine: NamedEngine) -> None:
    Path("KIT_CACHE_DIR").mkdir()
    Path("KIT_CACHE_DIR/interpreters").touch()
    called = kit(*ONE, "--data", "synthetic", "--env", "system")
    assert called.code == 0
    assert "--resume will need --env again" in called.err


def test_resume_says_that_the_results_will_identify_the_machine(kit: Kit, engine: NamedEngine) -> None:
    folder = stopped_run(kit, engine, "--identify")
    assert "The results will name this host, its user and its GPUs" in kit("run", "--resume", str(folder)).err


def test_old_choices_are_forgotten(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KIT_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(chosen_interpreters, "MAX_FOLDER_BYTES", 3 * len("/bin/python"))
    for number in range(10):
        chosen_interpreters.remember(f"r{number}", "/bin/python")
    assert len(list((tmp_path / "interpreters").iterdir())) == 3


def cell_with(**changes: object) -> Callable[[Document], None]:
    return lambda plan: plan["launches"][1]["cell"].update(changes)


def launch_with(**changes: object) -> Callable[[Document], None]:
    return lambda plan: plan["launches"][1].update(changes)


def plan_with(**changes: object) -> Callable[[Document], None]:
    return lambda plan: plan.update(changes)


def repeat_launches(plan: Document) -> None:
    plan["launches"] = [{**plan["launches"][0], "launch": number} for number in range(1, MAX_LAUNCHES + 2)]


# The field that the message names, and a change of the plan.
INVALID: dict[str, list[Callable[[Document], Any]]] = {
    "launches.1.launch:": [launch_with(launch=n) for n in (0, -1, 1.5, "1", None, True, MAX_LAUNCHES + 1, 10**400)],
    "launches.1.key:": [launch_with(key="mnist-cnn/tensorflow/cpu/stock/fp32/b64"), launch_with(key="other")],
    "launches.1.named:": [launch_with(named="yes"), lambda plan: plan["launches"][1].pop("named")],
    "launches.1.cell: Unknown framework": [cell_with(framework=name) for name in ("pytorch", "", "../torch")],
    "launches.1.cell: The plan has": [cell_with(scenario="mnist"), cell_with(variant="deep")],
    "launches.1.cell: It has 2 devices": [cell_with(devices=2)],
    "launches.1.cell: Cell.devices:": [cell_with(devices=n) for n in (0, -1, "1", True, float("1e3"))],
    "launches.1.cell.devices:": [cell_with(devices=float("nan")), cell_with(devices=1 << 64)],
    "launches.1.cell: Batch": [cell_with(batch=n) for n in (60_001, 2**53, MAX_INT)],
    "launches.1.cell: Cell.batch:": [cell_with(batch=n) for n in (0, -1, None, [64])],
    "launches.1.cell: Cell.device: 'tpu' is not one of cpu, cuda": [cell_with(device="tpu")],
    "launches.1.cell: Cell.device:": [cell_with(device=name) for name in ("gpu", "", None)],
    "launches.1.cell: Cell.lane:": [cell_with(lane="fast")],
    "launches.1.cell: Cell.precision:": [cell_with(precision="fp16")],
    "launches.1.cell: Cell: unknown keys speed": [cell_with(speed=1)],
    "launches.1.cell: Cell: missing keys batch": [lambda plan: plan["launches"][1]["cell"].pop("batch")],
    "launches: the launch mnist-cnn/torch/cpu/stock/fp32/b64 #1 is there twice": [
        lambda plan: plan["launches"].append(plan["launches"][0])
    ],
    "launches:": [plan_with(launches=None), plan_with(launches={}), repeat_launches, lambda plan: plan.pop("launches")],
    "run:": [plan_with(run=name) for name in ("../x", "a/b", "", ".", "..", "x\n", "x" * 101, 7, None)],
    "profile:": [plan_with(profile=name) for name in ("quik", "", "../x", None)],
    "engine:": [plan_with(engine=name) for name in ("dokcer", "", None)],
    "environment:": [plan_with(environment=None)],
    "seed:": [plan_with(seed=n) for n in (-1, 2**32, 1.0, "0", None, True)],
    "data:": [plan_with(data="fake")],
    "epochs:": [plan_with(epochs=n) for n in (-1, 0, 10_001, 1.5, "3", 2**70)],
    "timeout_s:": [plan_with(timeout_s=n) for n in (0, -1, 0.5, 1e9, 1e308, None, "60", float("inf"), float("nan"))],
    "tune_s:": [plan_with(tune_s=n) for n in (0, 1e9)],
    "budget_s:": [plan_with(budget_s=n) for n in (0, 1e9)],
    "memory_bytes:": [plan_with(memory_bytes=n) for n in (0, 1, 1 << 51)],
    "threads:": [plan_with(threads=n) for n in (0, -1, 8193)],
    "threads: 8,192 threads are more than": [plan_with(threads=8192)],
    "gpus:": [plan_with(gpus=0)],
    "gpus: The GPUs '7' cannot be used": [plan_with(gpus="7")],
    "identify:": [plan_with(identify=1)],
    "pinned.x:": [plan_with(pinned={"x": {"allocator": "/opt/evil.so"}})],
    "pinned has 'mnist-cnn/torch/cpu/stock/fp32/b64'": [
        plan_with(pinned={"mnist-cnn/torch/cpu/stock/fp32/b64": {"layout": "nhwc"}})
    ],
    "surprise:": [plan_with(surprise=1)],
    "its schema is": [plan_with(schema="1"), lambda plan: plan.pop("schema")],
}


@pytest.mark.parametrize(
    ("field", "change"), [(field, change) for field, changes in INVALID.items() for change in changes]
)
def test_an_invalid_plan_is_refused_with_its_field_and_measures_nothing(
    kit: Kit, engine: NamedEngine, tmp_path: Path, field: str, change: Callable[[Document], Any]
) -> None:
    launches = [examples.planned(), examples.planned(framework="tensorflow")]
    folder = RunFolder.create(tmp_path / "run", examples.plan(launches), examples.machine())
    plan = json.loads((folder.path / "plan.json").read_text())
    change(plan)
    (folder.path / "plan.json").write_text(json.dumps(plan))
    called = kit("run", "--resume", str(folder.path))
    message = " ".join(called.err.split())
    assert (called.code, field in message, "plan.json" in message) == (2, True, True), called.err
    assert (engine.launched, engine.probed, folder.records()) == ([], [], [])


def test_a_valid_plan_is_resumed(kit: Kit, engine: NamedEngine, tmp_path: Path) -> None:
    launches = [examples.planned(batch=60_000), examples.planned(framework="tensorflow")]
    folder = RunFolder.create(tmp_path / "run", examples.plan(launches), examples.machine())
    assert kit("run", "--resume", str(folder.path)).code == 0
    assert len(engine.launched) == 2


def whole_run(path: Path) -> None:
    """Make a run with records of all purposes, a failed launch, and a launch that is still missing."""
    tuned = examples.request(lane="tuned")
    cells = [examples.planned(), examples.planned(launch=2), examples.planned(framework="tensorflow")]
    launches = [*cells, examples.planned(lane="tuned")]
    plan = examples.plan(launches).model_copy(update={"run": path.name})
    folder = RunFolder.create(path, plan, examples.machine())
    folder.save(examples.record())
    folder.save(examples.failed(examples.request(examples.cell(framework="tensorflow"))))
    folder.save(examples.record(tuned))
    folder.save(examples.record(examples.change(tuned, purpose="tune")))
    folder.save(examples.record(replace(tuned, cell=examples.probe_cell(), spec="", purpose="probe")))


@given(data=st.data())
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_changed_files_of_a_run_lead_to_documented_exit_codes_only(
    kit: Kit, engine: NamedEngine, tmp_path: Path, data: st.DataObject
) -> None:
    base, other, folder = (tmp_path / name for name in ("base", "other", "changed"))
    if not base.exists():
        whole_run(base)
        whole_run(other)
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(other, folder)
    file = data.draw(st.sampled_from(sorted(folder.rglob("*.json"))), "file")
    document = json.loads(file.read_text())
    for _ in range(data.draw(st.integers(1, 2), "changes")):
        holder, name = data.draw(st.sampled_from(places(document)), "place")
        match data.draw(st.sampled_from(["replace", "copy", "remove", "add"]), "change"):
            case "replace":
                holder[name] = data.draw(st.sampled_from(STRANGE), "value")
            case "copy":
                source, source_name = data.draw(st.sampled_from(places(document)), "source")
                holder[name] = json.loads(json.dumps(source[source_name]))
            case "remove":
                del holder[name]
            case "add":
                holder.append(holder[name]) if isinstance(holder, list) else holder.update(surprise=1)
    file.write_text(json.dumps(document))
    engine.launched.clear()
    commands = (f"report {folder}", f"compare {base} {folder}", f"gate {base} {folder}", f"settings {folder}")
    for command in (*commands, f"run --resume {folder} --retry-failed"):
        called = kit(*command.split())
        assert called.code in range(8), command
        assert "unexpected error" not in called.err, (command, called.err)
    assert called.code != UsageError.exit_code or not engine.launched
