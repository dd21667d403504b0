"""Test that a run can be interrupted at any point and resumed, and that failed launches can be repeated."""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kit.datasets.service import ResolvedData
from kit.execution.campaign import exit_code
from kit.host import gpus, machine_lock
from kit.model.errors import DiskError, EngineError, Interrupted, UsageError
from kit.model.formatting import format_about
from kit.model.launch import Completion
from kit.planning import catalog
from kit.planning.estimates import planned_seconds, request_seconds
from kit.planning.profiles import find_profile
from kit.planning.selection import Selection
from kit.storage import run_lock
from kit.storage.files import TEMPORARY_SUFFIX
from kit.storage.run_folder import RunFolder, file_stem
from scenarios.contract import codec
from scenarios.contract.reasons import Status
from scenarios.contract.request import RESULT_FILE
from tests import examples, fakes
from tests.campaigns import NAMES, ONE, execute, fails, identifiers, new_run
from tests.fakes_nvml import FakeGpu, install

pytestmark = pytest.mark.usefixtures("machine")

ROOT = Path(__file__).parents[2]


def noisy(request, folder):
    """Succeed with a speed that varies by launch number for torch, and is constant for the others."""
    spread = 0.1 * (-1) ** request.launch if request.cell.framework == "torch" and request.purpose == "measure" else 0.0
    folder.log.write_text("working\n")
    codec.write(folder.scratch / RESULT_FILE, examples.result(request, 1000.0 * (1 + spread)))
    return Completion(exit_code=0, seconds=10.0)


def test_a_standard_run_repeats_wide_blocks_within_its_budget_even_if_resumed(tmp_path):
    whole = new_run(tmp_path / "whole", ONE, profile="standard", budget_s=250.0)
    records = execute(whole, fakes.FakeEngine(noisy))
    numbers = Counter(record.cell.framework for record in records)
    assert set(numbers.values()) == {8}  # the 15 planned launches take 150 of 250 s, and a further round 30 s
    assert sum(record.seconds for record in records) <= 250

    engine = fakes.FakeEngine(noisy)
    calls = itertools.count()

    def interrupt(name):
        if next(calls) == 45:
            raise KeyboardInterrupt

    engine.on_call = interrupt
    parts = new_run(tmp_path / "parts", ONE, profile="standard", budget_s=250.0)
    with pytest.raises(Interrupted):
        execute(parts, engine)
    assert len(parts.records()) < len(records)
    engine.on_call = lambda name: None
    assert identifiers(execute(RunFolder.open(parts.path), engine)) == identifiers(records)


class Killed(BaseException):
    """Simulates `kill -9`. The code under test does not catch it, so only the resumed run continues."""


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_a_run_interrupted_anywhere_and_resumed_has_all_records(data):
    with tempfile.TemporaryDirectory() as parent:
        folder, engine = new_run(Path(parent) / "run", ONE), fakes.FakeEngine()
        kind = data.draw(st.sampled_from([Killed, KeyboardInterrupt, signal.SIGTERM]), "kind")
        for _ in range(data.draw(st.integers(1, 3), "interruptions")):
            last = data.draw(st.integers(0, 15), "calls before the interruption")
            calls = itertools.count()

            def interrupt(name, calls=calls, last=last):
                if next(calls) == last:
                    if isinstance(kind, signal.Signals):
                        os.kill(os.getpid(), kind)
                    else:
                        raise kind

            engine.on_call = interrupt
            with suppress(Killed, Interrupted):
                execute(RunFolder.open(folder.path), engine)
        engine.on_call = lambda name: None
        records = execute(RunFolder.open(folder.path), engine)
        planned = sorted((launch.key, launch.launch) for launch in folder.plan.launches)
        assert identifiers(records) == planned
        assert {record.status for record in records} == {Status.OK}
        assert identifiers(folder.records("probe")) == [(f"ceilings/{name}/cpu/stock/fp32/b1", 1) for name in NAMES]
        assert engine.running == []
        assert list((folder.path / "work").iterdir()) == []


DIE = """
import os, signal, sys
from pathlib import Path
from kit.host import machine_lock
from kit.planning import catalog
from kit.storage.run_folder import RunFolder
from tests import fakes
from tests.campaigns import FRAMEWORKS, execute

def die_at_the_second_launch(request, folder):
    if engine.launched:
        os.kill(os.getpid(), signal.SIGKILL)
    return fakes.works(request, folder)

machine_lock.PATH = Path(sys.argv[2])
catalog.frameworks = lambda: FRAMEWORKS
engine = fakes.FakeEngine(worker=die_at_the_second_launch)
execute(RunFolder.open(Path(sys.argv[1])), engine)
"""


def test_a_run_killed_with_sigkill_can_be_resumed(tmp_path):
    folder = new_run(tmp_path / "run", ONE)
    command = [sys.executable, "-c", DIE, str(folder.path), str(machine_lock.PATH)]
    assert subprocess.run(command, check=False, cwd=ROOT).returncode == -signal.SIGKILL
    assert len(folder.records()) == 1
    second = folder.plan.launches[1]
    assert [entry.name for entry in (folder.path / "work").iterdir()] == [file_stem(second.key, second.launch)]
    records = execute(RunFolder.open(folder.path), fakes.FakeEngine())
    assert identifiers(records) == sorted((launch.key, launch.launch) for launch in folder.plan.launches)
    assert list((folder.path / "work").iterdir()) == []


def test_ctrl_c_shows_the_resume_command_and_a_second_one_is_ignored(tmp_path):
    def twice(name):
        if name == "launched":
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    folder, engine = new_run(tmp_path / "my run"), fakes.FakeEngine(on_call=twice)
    with pytest.raises(Interrupted, match=r"kit run --resume '.*/my run'"):
        execute(folder, engine)
    assert folder.records() == []
    assert engine.running == []
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_cleanup_after_ctrl_c_in_a_build_survives_a_second_signal(tmp_path):
    cleaned = []

    def interrupt_twice(name):
        if name.startswith("prepare"):
            try:
                os.kill(os.getpid(), signal.SIGINT)
            finally:
                os.kill(os.getpid(), signal.SIGTERM)
                cleaned.append(name)

    with pytest.raises(Interrupted):
        execute(new_run(tmp_path / "run", ONE), fakes.FakeEngine(on_call=interrupt_twice))
    assert len(cleaned) == 1


def test_only_retry_failed_repeats_failed_launches(tmp_path):
    def fail_torch(request, folder):
        return (fails if request.cell.framework == "torch" else fakes.works)(request, folder)

    folder, engine = new_run(tmp_path / "run"), fakes.FakeEngine(fail_torch)
    records = execute(folder, engine)
    assert exit_code(folder.plan, records) == 1
    assert execute(folder, engine) == records
    engine.worker = fakes.works
    records = execute(folder, engine, retry_failed=True)
    assert [(r.cell.framework, r.launch) for r in records if r.launch > 1] == [("torch", 2), ("torch", 2)]
    assert exit_code(folder.plan, records) == 0
    assert execute(folder, engine, retry_failed=True) == records


@pytest.mark.parametrize("error", [KeyboardInterrupt(), DiskError("The disk is full.", "Free disk space.")])
def test_an_interrupted_retry_shows_the_command_that_continues_it(kit, engine, tmp_path, error):
    def stop(name):
        if name == "launched":
            raise error

    folder = new_run(tmp_path / "run", ONE, profile="smoke", data="synthetic")
    command = ("run", "--resume", str(folder.path))
    engine.worker = fails
    assert kit(*command).code == 1
    engine.worker, engine.on_call = fakes.works, stop
    stopped = kit(*command, "--retry-failed")
    assert re.search(f"[Cc]ontinue with `kit {' '.join(command)} --retry-failed`.", " ".join(stopped.err.split()))
    engine.on_call = lambda name: None
    assert kit(*command).code == 1
    assert kit(*command, "--retry-failed").code == 0
    assert len(folder.records()) == 6


def test_a_resumed_run_keeps_its_kind_of_data(tmp_path):
    modes = []

    def resolve(name, mode, progress):
        modes.append(mode)
        return ResolvedData("synthetic", None, "no mirror has it")

    calls = itertools.count()

    def stop(name):
        if name == "launched" and next(calls) == 4:  # after three probes and one launch
            raise Killed

    folder, engine = (
        new_run(tmp_path / "run", Selection(scenarios=("mnist-cnn",), devices=("cpu",))),
        fakes.FakeEngine(),
    )
    engine.on_call = stop
    with pytest.raises(Killed):
        execute(folder, engine, resolve)
    records = execute(folder, engine, resolve)
    assert modes == ["auto"], "the data set must be resolved only once"
    assert {(r.request.data, r.data_note) for r in records} == {("synthetic", "no mirror has it")}


def test_scenarios_of_one_data_set_use_the_same_kind_of_data(tmp_path):
    modes = []

    def resolve(name, mode, progress):
        modes.append(mode)
        return ResolvedData("synthetic", None, "no mirror has it")

    both = Selection(scenarios=("mnist-cnn", "mnist-cnn-dropout"), frameworks=("torch",), devices=("cpu",))
    folder, engine = new_run(tmp_path / "run", both), fakes.FakeEngine()

    def stop_at_the_second(name):
        if name == "launch" and engine.launched:
            raise Killed

    engine.on_call = stop_at_the_second
    with pytest.raises(Killed):
        execute(folder, engine, resolve)
    engine.on_call = lambda name: None
    records = execute(folder, engine, resolve)
    assert modes == ["auto"], "the data set must be resolved only once"
    assert {(r.request.data, r.data_note) for r in records} == {("synthetic", "no mirror has it")}


def test_a_resumed_run_uses_the_gpu_and_the_memory_that_a_killed_process_held(tmp_path, monkeypatch):
    engine = fakes.FakeEngine(running=["r1"])  # on the first GPU
    install(monkeypatch, [FakeGpu("GPU-a"), FakeGpu("GPU-b")])
    monkeypatch.setattr(gpus, "busy", lambda: [0] if engine.running else [])
    free = psutil.virtual_memory()._replace(available=4 << 30)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: free._replace(available=1 << 30) if engine.running else free)
    selection = Selection(scenarios=("mnist-cnn",), frameworks=("torch",), devices=("cuda",))
    (record,) = execute(new_run(tmp_path / "run", selection, profile="smoke"), engine)
    assert record.ok
    assert [(limits.gpus, limits.memory_bytes) for limits in engine.limits] == [(("0",), int(0.9 * (4 << 30)))]


def test_containers_and_files_of_a_killed_process_are_removed(tmp_path):
    folder, engine = new_run(tmp_path / "run"), fakes.FakeEngine(running=["r1", "other"])
    scratch = folder.path / "work" / "of a killed process"
    scratch.mkdir()
    (scratch / "request.json").touch()
    temporary = folder.path / "records" / f"of a killed process{TEMPORARY_SUFFIX}"
    temporary.touch()
    execute(folder, engine)
    assert engine.running == []
    assert not scratch.exists()
    assert not temporary.exists()


def test_a_run_that_another_machine_measures_is_left_alone(tmp_path):
    folder = new_run(tmp_path / "run", ONE)
    scratch = folder.path / "work" / "of the other machine"
    scratch.mkdir()
    with (
        run_lock.held(folder.path),
        pytest.raises(EngineError, match="Another process, perhaps on another machine, is measuring the run in"),
    ):
        execute(folder, fakes.FakeEngine())
    assert scratch.exists()
    assert all(record.ok for record in execute(folder, fakes.FakeEngine()))
    (folder.path / run_lock.LOCK_FILE).unlink()
    (folder.path / run_lock.LOCK_FILE).symlink_to(tmp_path / "mine")
    with pytest.raises(UsageError, match=r"run\.lock is a link or a folder"):
        execute(folder, fakes.FakeEngine())
    assert not (tmp_path / "mine").exists()


def test_a_file_system_without_locks_does_not_prevent_a_run(tmp_path, monkeypatch):
    def no_locks(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    with monkeypatch.context() as patched:
        patched.setattr(fcntl, "flock", no_locks)
        with run_lock.held(tmp_path):
            pass
    with run_lock.held(tmp_path), pytest.raises(EngineError), run_lock.held(tmp_path):
        pass


def test_a_resumed_run_may_have_another_time_limit(kit, engine, tmp_path):
    seen, launch = [], engine.launch

    def watch(environment, folder, limits, *rest):
        seen.append(limits.timeout_s)
        return launch(environment, folder, limits, *rest)

    engine.launch = watch
    folder = new_run(tmp_path / "run", ONE, profile="smoke", data="synthetic")
    command = ("run", "--resume", str(folder.path), "--timeout")
    assert "--timeout must be between" in kit(*command, "99999h").err
    assert seen == []
    assert kit(*command, "2h").code == 0
    assert set(seen) == {7200.0}
    assert RunFolder.open(folder.path).plan == folder.plan, "the plan is not changed"


def test_what_is_left_and_its_time_are_shown_before_a_run_is_resumed(kit, engine, tmp_path):
    folder = new_run(tmp_path / "run", ONE, profile="smoke", data="synthetic", rounds=2)
    first, *others = folder.plan.launches
    folder.save(examples.record(examples.request(first.cell), seconds=3600.0))
    folder.save(examples.failed(examples.request(others[0].cell)))
    measured = request_seconds(examples.request(first.cell), catalog.scenarios())
    smoke = find_profile("smoke")
    coming_s = sum(planned_seconds(launch, smoke, None, catalog.scenarios()) for launch in others[1:])
    resume = ("run", "--resume", str(folder.path))
    shown = kit(*resume).err
    how_long = format_about(coming_s * 3600.0 / measured)
    assert f"Left to measure in {folder.plan.run}: {len(others) - 1} launches, {how_long}. Ctrl-C keeps" in shown
    (left,) = re.findall(r"Round 1: .*, (.*) left", shown)
    assert left.startswith("about "), "the first launch took an hour, so its second one does"
    assert f"Left to measure in {folder.plan.run}: 0 launches. Ctrl-C keeps" in kit(*resume).err
    assert f"Left to measure in {folder.plan.run}: 1 launch, a few seconds. " in kit(*resume, "--retry-failed").err


def test_a_standard_run_says_that_more_rounds_may_follow(kit, engine, tmp_path):
    for name, rounds, more in (
        ("few", None, ", then more rounds where intervals are wide. "),
        ("fixed", 2, ". Ctrl-C"),
    ):
        folder = new_run(tmp_path / name, ONE, profile="standard", data="synthetic", rounds=rounds)
        for launch in folder.plan.launches:
            folder.save(examples.record(examples.request(launch.cell, launch=launch.launch)))
        assert f"Left to measure in r1: 0 launches{more}" in kit("run", "--resume", str(folder.path)).err


def test_a_run_whose_network_changed_is_not_resumed(kit, engine, tmp_path, monkeypatch):
    folder = new_run(tmp_path / "run", ONE, profile="smoke", data="synthetic")
    assert kit("run", "--resume", str(folder.path)).code == 0
    next((folder.path / "records").iterdir()).unlink()
    scenarios = catalog.scenarios()
    other = replace(scenarios["mnist-cnn"][""], inference_batch=128)
    monkeypatch.setattr(catalog, "scenarios", lambda: scenarios | {"mnist-cnn": {"": other}})
    refused = kit("run", "--resume", str(folder.path))
    assert refused.code == 2
    assert "The definition of mnist-cnn changed since the run r1 measured it." in refused.err
