"""A plan carried out: order, isolation of failures, interruption at any point, resume."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kit.datasets.service import Source
from kit.execution.campaign import exit_code, run_campaign
from kit.host import machine_lock
from kit.model.errors import CorruptDataError, DataError, DiskError, EngineError, ImageError, Interrupted, UsageError
from kit.model.launch import Completion
from kit.model.progress import Silent
from kit.planning import catalog
from kit.planning.selection import Selection
from kit.storage.run_folder import RunFolder
from scenarios.contract import codec
from scenarios.contract.reasons import Code, Reason, Status
from scenarios.contract.request import RESULT_FILE
from tests import examples, fakes
from tests.campaigns import FRAMEWORKS, NAMES, ONE, fails, go, new_run, synthetic

pytestmark = pytest.mark.usefixtures("machine")

ROOT = Path(__file__).parents[2]
NO_GPU = {(name, "cuda"): "No NVIDIA GPU is visible." for name in NAMES}


def names(records):
    return [(record.key, record.launch) for record in records]


def test_every_planned_launch_gets_its_record_in_the_plan_s_order(tmp_path):
    folder, engine = new_run(tmp_path / "run", profile="standard"), fakes.FakeEngine()
    records = go(folder, engine)
    assert engine.launched == [(launch.key, launch.launch) for launch in folder.plan.launches]
    assert {record.status for record in records} == {Status.OK}
    assert exit_code(folder.plan, records) == 0
    assert engine.calls[0] == "sweep"
    assert sorted(engine.calls[1:4]) == [f"prepare {name} cpu" for name in NAMES]  # all, before anything is measured
    assert list((folder.path / "work").iterdir()) == []
    assert len(list((folder.path / "logs").iterdir())) == len(records) + len(folder.probes())


def test_launches_get_what_plan_and_machine_allow(tmp_path):
    engine = fakes.FakeEngine()
    folder = new_run(tmp_path / "run", threads=1, memory_bytes=1 << 30, timeout_s=7.0)
    records = go(folder, engine)
    assert {(len(x.cpus), x.memory_bytes, x.timeout_s, x.gpus) for x in engine.limits} == {(1, 1 << 30, 7.0, ())}
    assert {record.request.threads for record in records} == {1}


def test_ceilings_are_probed_once_a_run_before_the_cells_and_cost_no_cell_where_they_fail(tmp_path):
    def probes_of_torch_fail(asked, folder):
        if asked.purpose == "probe" and asked.framework == "torch":
            return fails(asked, folder)
        return fakes.works(asked, folder)

    folder, engine = new_run(tmp_path / "run"), fakes.FakeEngine(probes_of_torch_fail)
    records = go(folder, engine)
    assert {record.status for record in records} == {Status.OK}
    assert names(records) == sorted((launch.key, launch.launch) for launch in folder.plan.launches)
    assert sorted(engine.probed) == [(f"ceilings/{name}/cpu/fp32", 1) for name in NAMES]
    assert {p.request.framework: p.status for p in folder.probes()} == dict.fromkeys(NAMES, Status.OK) | {
        "torch": Status.FAILED
    }
    (folder.path / "records").joinpath(next((folder.path / "records").iterdir())).unlink()
    engine.worker = fakes.works
    go(RunFolder.open(folder.path), engine)
    assert len(engine.probed) == len(NAMES) + 1
    assert [p.status for p in folder.probes() if p.request.framework == "torch"] == [Status.FAILED, Status.OK]
    assert exit_code(folder.plan, folder.records()) == 0


def test_smoke_probes_nothing(tmp_path):
    engine = fakes.FakeEngine()
    go(new_run(tmp_path / "run", profile="smoke"), engine)
    assert engine.probed == []
    assert engine.launched


def noisy(asked, folder):
    """torch is noisy, by launch number; all others always give the same."""
    spread = 0.1 * (-1) ** asked.launch if asked.framework == "torch" and asked.purpose == "measure" else 0.0
    folder.log.write_text("working\n")
    codec.write(folder.scratch / RESULT_FILE, examples.result(asked, 1000.0 * (1 + spread)))
    return Completion(exit_code=0, seconds=10.0)


def test_a_precise_profile_goes_on_with_the_wide_cells_until_its_budget_is_spent_also_when_resumed(tmp_path):
    whole = new_run(tmp_path / "whole", ONE, profile="standard", budget_s=250.0)
    records = go(whole, fakes.FakeEngine(noisy))
    numbers = Counter(record.request.framework for record in records)
    assert numbers["onnxruntime"] == numbers["tensorflow"] == 5
    assert 7 <= numbers["torch"] <= 15  # fifteen launches of 10 s were planned, 250 s are granted
    assert sum(record.seconds for record in records) <= 250

    engine = fakes.FakeEngine(noisy)
    calls = itertools.count()

    def interrupt(name):
        if next(calls) == 45:
            raise KeyboardInterrupt

    engine.on_call = interrupt
    parts = new_run(tmp_path / "parts", ONE, profile="standard", budget_s=250.0)
    with pytest.raises(Interrupted):
        go(parts, engine)
    assert len(parts.records()) < len(records)
    engine.on_call = lambda name: None
    assert names(go(RunFolder.open(parts.path), engine)) == names(records)


class Killed(BaseException):
    """What `kill -9` looks like from inside: nothing after it runs but what the test counts as the next process."""


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_killed_anywhere_and_resumed_the_records_are_those_of_an_uninterrupted_run(data):
    with tempfile.TemporaryDirectory() as where:
        folder, engine = new_run(Path(where) / "run", ONE), fakes.FakeEngine()
        kind = data.draw(st.sampled_from([Killed, KeyboardInterrupt, signal.SIGTERM]), "kind")
        for _ in range(data.draw(st.integers(1, 3), "interruptions")):
            last = data.draw(st.integers(0, 15), "calls before it")
            calls = itertools.count()

            def interrupt(name, calls=calls, last=last):
                if next(calls) == last:
                    if isinstance(kind, signal.Signals):
                        os.kill(os.getpid(), kind)
                    else:
                        raise kind

            engine.on_call = interrupt
            with suppress(Killed, Interrupted):
                go(RunFolder.open(folder.path), engine)
        engine.on_call = lambda name: None
        records = go(RunFolder.open(folder.path), engine)
        planned = sorted((launch.key, launch.launch) for launch in folder.plan.launches)
        assert names(records) == planned
        assert {record.status for record in records} == {Status.OK}
        assert names(folder.probes()) == [(f"ceilings/{name}/cpu/fp32", 1) for name in NAMES]
        assert engine.running == []
        assert list((folder.path / "work").iterdir()) == []


DIE = """
import os, signal, sys
from pathlib import Path
from kit.host import machine_lock
from kit.planning import catalog
from kit.storage.run_folder import RunFolder
from tests import fakes
from tests.campaigns import FRAMEWORKS, go

def die_at_the_second_launch(asked, folder):
    if engine.launched:
        os.kill(os.getpid(), signal.SIGKILL)
    return fakes.works(asked, folder)

machine_lock.PATH = Path(sys.argv[2])
catalog.frameworks = lambda: FRAMEWORKS
engine = fakes.FakeEngine(worker=die_at_the_second_launch)
go(RunFolder.open(Path(sys.argv[1])), engine)
"""


def test_kill_9_leaves_a_run_that_can_be_completed(tmp_path):
    folder = new_run(tmp_path / "run", ONE)
    command = [sys.executable, "-c", DIE, str(folder.path), str(machine_lock.PATH)]
    assert subprocess.run(command, check=False, cwd=ROOT).returncode == -signal.SIGKILL
    assert len(folder.records()) == 1
    assert [entry.name for entry in (folder.path / "work").iterdir()] == [folder.work(folder.plan.launches[1]).name]
    records = go(RunFolder.open(folder.path), fakes.FakeEngine())
    assert names(records) == sorted((launch.key, launch.launch) for launch in folder.plan.launches)
    assert list((folder.path / "work").iterdir()) == []


def test_ctrl_c_tells_how_to_go_on_and_a_second_one_disturbs_nothing(tmp_path):
    def twice(name):
        if name == "launched":
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    folder, engine = new_run(tmp_path / "my run"), fakes.FakeEngine(on_call=twice)
    with pytest.raises(Interrupted, match=r"kit run --resume '.*/my run'"):
        go(folder, engine)
    assert folder.records() == []
    assert engine.running == []
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_clean_up_after_ctrl_c_while_building_is_not_disturbed_by_a_second_one(tmp_path):
    cleaned = []

    def interrupted(name):
        if name.startswith("prepare"):
            try:
                os.kill(os.getpid(), signal.SIGINT)
            finally:
                os.kill(os.getpid(), signal.SIGTERM)
                cleaned.append(name)

    with pytest.raises(Interrupted):
        go(new_run(tmp_path / "run", ONE), fakes.FakeEngine(on_call=interrupted))
    assert len(cleaned) == 1


def test_only_retry_failed_repeats_what_failed(tmp_path):
    folder, engine = new_run(tmp_path / "run"), fakes.FakeEngine()
    engine.worker = lambda asked, where: (fails if asked.framework == "torch" else fakes.works)(asked, where)
    records = go(folder, engine)
    assert exit_code(folder.plan, records) == 1
    assert go(folder, engine) == records
    engine.worker = fakes.works
    records = go(folder, engine, retry_failed=True)
    assert [(r.request.framework, r.launch) for r in records if r.launch > 1] == [("torch", 2), ("torch", 2)]
    assert exit_code(folder.plan, records) == 0
    assert go(folder, engine, retry_failed=True) == records


def test_an_environment_that_cannot_be_made_fails_its_own_launches_only(tmp_path):
    def broken(name):
        if name == "prepare torch cpu":
            raise ImageError("torch: no such wheel.", "Look at the log.")

    folder = new_run(tmp_path / "run")
    records = go(folder, fakes.FakeEngine(on_call=broken))
    by_framework = {record.request.framework: record for record in records}
    assert by_framework["torch"].reason == Reason(Code.IMAGE_FAILED, "torch: no such wheel.", "Look at the log.")
    assert {record.status for record in records if record.request.framework != "torch"} == {Status.OK}
    assert len(records) == 6


@pytest.mark.parametrize(("error", "code"), [(DataError, Code.DATA_UNAVAILABLE), (CorruptDataError, Code.DATA_CORRUPT)])
def test_a_data_set_that_cannot_be_had_fails_its_own_launches_only(tmp_path, error, code):
    asked = []

    def resolve(name, mode, progress):
        asked.append((name, mode))
        if name == "mnist":
            raise error("No mirror answers.", "Try again.")
        return Source("real", tmp_path, "here already")

    folder, engine = new_run(tmp_path / "run", data="real"), fakes.FakeEngine()
    records = go(folder, engine, resolve)
    assert asked == [("cifar-10", "real"), ("mnist", "real")]
    told = {(record.request.scenario, record.status, record.reason and record.reason.code) for record in records}
    assert told == {("cifar-cnn", Status.OK, None), ("mnist-cnn", Status.FAILED, code)}
    assert {r.data_note for r in records if r.status is Status.OK} == {"here already"}


def test_a_resumed_run_keeps_the_kind_of_data_it_began_with(tmp_path):
    modes = []

    def resolve(name, mode, progress):
        modes.append(mode)
        return Source("synthetic", None, "no mirror had it")

    calls = itertools.count()

    def stop(name):
        if name == "launched" and next(calls) == 4:  # three probes and a launch have ended before
            raise Killed

    folder, engine = (
        new_run(tmp_path / "run", Selection(scenarios=("mnist-cnn",), devices=("cpu",))),
        fakes.FakeEngine(),
    )
    engine.on_call = stop
    with suppress(Killed):
        go(folder, engine, resolve)
    records = go(folder, engine, resolve)
    assert modes == ["auto"], "it is not looked for again"
    assert {(r.request.data, r.data_note) for r in records} == {("synthetic", "no mirror had it")}


def test_scenarios_of_one_data_set_never_get_two_kinds_of_it(tmp_path):
    modes = []

    def resolve(name, mode, progress):
        modes.append(mode)
        return Source("synthetic", None, "no mirror had it")

    both = Selection(scenarios=("mnist-cnn", "mnist-cnn-dropout"), frameworks=("torch",), devices=("cpu",))
    folder, engine = new_run(tmp_path / "run", both), fakes.FakeEngine()

    def stop_at_the_second(name):
        if name == "launch" and engine.launched:
            raise Killed

    engine.on_call = stop_at_the_second
    with suppress(Killed):
        go(folder, engine, resolve)
    engine.on_call = lambda name: None
    records = go(folder, engine, resolve)
    assert modes == ["auto"], "it is not looked for again"
    assert {(r.request.data, r.data_note) for r in records} == {("synthetic", "no mirror had it")}


def test_an_interpreter_without_the_framework_is_no_lack_of_a_gpu(tmp_path):
    selection = Selection(scenarios=("mnist-cnn",), frameworks=("torch", "tensorflow"))
    lacks = {("torch", device): "--env system lacks torch." for device in ("cpu", "cuda")}
    records = go(new_run(tmp_path / "run", selection, environment="system"), fakes.FakeEngine(refused=NO_GPU | lacks))
    told = {(r.request.framework, r.request.device): r.reason and r.reason.code for r in records}
    assert told == {
        ("tensorflow", "cpu"): None,
        ("tensorflow", "cuda"): Code.NO_DEVICE,
        ("torch", "cpu"): Code.NOT_OFFERED,
        ("torch", "cuda"): Code.NO_DEVICE,
    }


def test_cuda_without_gpu_is_skipped_under_all(tmp_path):
    folder, engine = new_run(tmp_path / "run", Selection(scenarios=("mnist-cnn",))), fakes.FakeEngine(refused=NO_GPU)
    records = go(folder, engine)
    skipped = [record for record in records if record.request.device == "cuda"]
    assert {(r.status, r.reason.code, r.image) for r in skipped} == {(Status.SKIPPED, Code.NO_DEVICE, None)}
    assert len(skipped) == 3
    assert len(records) == 6
    assert not any("cuda" in call for call in engine.calls)
    assert exit_code(folder.plan, records) == 0
    assert go(folder, engine, retry_failed=True) == records


def test_cuda_without_gpu_is_an_error_where_it_was_asked_for(tmp_path):
    selection = Selection(scenarios=("mnist-cnn",), devices=("cpu", "cuda"))
    folder, engine = new_run(tmp_path / "run", selection), fakes.FakeEngine(refused=NO_GPU)
    with pytest.raises(EngineError, match="No NVIDIA GPU is visible"):
        go(folder, engine)
    assert folder.records() == []
    assert engine.launched == []


def test_what_a_framework_does_not_offer_is_skipped(tmp_path, monkeypatch):
    folder = new_run(tmp_path / "run", Selection(scenarios=("mnist-cnn",), frameworks=("torch",)))
    on_cpu = replace(FRAMEWORKS["torch"], devices=("cpu",))
    monkeypatch.setattr(catalog, "frameworks", lambda: FRAMEWORKS | {"torch": on_cpu})
    records = go(folder, fakes.FakeEngine())
    assert [r.reason and r.reason.code for r in records] == [None, Code.NOT_OFFERED]


def test_an_engine_that_is_gone_stops_the_run_and_the_launch_is_recorded(tmp_path):
    def lost(asked, where):
        if asked.purpose == "probe":
            return fakes.works(asked, where)
        raise EngineError("The daemon does not answer.", "Start it.")

    def gone(name):
        if name == "describe":
            raise EngineError("No daemon.", "Start it.")

    folder = new_run(tmp_path / "run")
    with pytest.raises(EngineError, match=r"No daemon\.\nStart it\..*--resume"):
        go(folder, fakes.FakeEngine(worker=lost, on_call=gone))
    assert [record.reason.code for record in folder.records()] == [Code.ENGINE_FAILED]
    engine = fakes.FakeEngine(worker=lost)
    assert len(go(folder, engine)) == 6  # it still answers: each launch is lost by itself


def test_a_disk_that_fills_up_keeps_what_was_measured(tmp_path, monkeypatch):
    def full_after_one(folder):
        if folder.records():
            raise DiskError("The disk is full.", "Free some space.")

    monkeypatch.setattr(RunFolder, "require_space", full_after_one)
    folder = new_run(tmp_path / "run")
    with pytest.raises(DiskError):
        go(folder, fakes.FakeEngine())
    assert len(folder.records()) == 1


def test_leftovers_of_a_killed_process_are_removed_even_of_the_same_run(tmp_path):
    folder, engine = new_run(tmp_path / "run"), fakes.FakeEngine(running=["r1", "other"])
    scratch = folder.work(folder.plan.launches[0])
    scratch.mkdir()
    go(folder, engine)
    assert engine.running == []


def test_a_changed_machine_is_told_in_the_records(tmp_path):
    folder = new_run(tmp_path / "run")
    changed = examples.machine(id="fedcba9876543210", kernel="6.2")
    records = run_campaign(folder, fakes.FakeEngine(), changed, synthetic, Silent())
    assert all(record.machine == changed and "changed" in record.warnings[0] for record in records)


def test_a_plan_of_another_catalogue_is_refused(tmp_path, monkeypatch):
    folder = new_run(tmp_path / "run")
    fewer = {name: found for name, found in catalog.scenarios().items() if name != "cifar-cnn"}
    monkeypatch.setattr(catalog, "scenarios", lambda: fewer)
    with pytest.raises(UsageError, match="cifar-cnn"):
        go(folder, fakes.FakeEngine())


# ---- exit codes --------------------------------------------------------------------------------------------------


def test_the_exit_code_is_that_of_the_one_cause(tmp_path):
    plan = new_run(tmp_path / "run", Selection(scenarios=("mnist-cnn",), frameworks=("torch", "tensorflow"))).plan
    asked = [examples.request(key=launch.key, device=launch.device) for launch in plan.launches]
    skipped = [examples.failed(x, Status.SKIPPED, Code.NO_DEVICE) for x in asked if x.device == "cuda"]
    one, other = (x for x in asked if x.device == "cpu")

    def code(*records):
        return exit_code(plan, [*records, *skipped])

    one_ok, other_ok = examples.record(one), examples.record(other)
    no_image, no_image_too = (examples.failed(x, code=Code.IMAGE_FAILED) for x in (one, other))
    corrupt, absent = examples.failed(one, code=Code.DATA_CORRUPT), examples.failed(other, code=Code.DATA_UNAVAILABLE)
    assert code(one_ok, other_ok) == 0
    assert code(no_image, no_image_too) == 4
    assert code(corrupt, absent) == 5
    assert code(no_image, examples.failed(other)) == 1
    assert code(no_image, other_ok) == 1
    assert code(one_ok) == 1
    named = plan.model_copy(update={"launches": [x.model_copy(update={"named": True}) for x in plan.launches]})
    assert exit_code(named, [one_ok, other_ok, *skipped]) == 1
    pinned = plan.model_copy(update={"pinned": {other.key: {"layout": "nope"}}})
    not_offered = examples.failed(other, Status.SKIPPED, Code.NOT_OFFERED)
    assert exit_code(pinned, [one_ok, not_offered, *skipped]) == 1
    assert exit_code(plan, [one_ok, not_offered, *skipped]) == 0
