"""A plan carried out: order, isolation of failures, interruption at any point, resume, the machine's lock."""

from __future__ import annotations

import itertools
import json
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

from kit import catalog, locks
from kit.campaign import exit_code, run_campaign
from kit.datasets import Source
from kit.errors import CorruptDataError, DataError, DiskError, EngineError, ImageError, Interrupted, UsageError
from kit.limits import choose_gpus, launch_limits
from kit.model import Completion, Framework
from kit.plan import Options, Selection, make_plan
from kit.progress import Silent
from kit.records import tuning_of
from kit.store import RunFolder
from kit.tuned import pins
from scenarios import codec
from scenarios.contract import RESULT_FILE, Code, Reason, Search, Status, Tried, Tuning
from tests import examples, fakes

ROOT = Path(__file__).parents[2]
NAMES = ("onnxruntime", "tensorflow", "torch")
FRAMEWORKS = {name: Framework(name, name, ("cpu", "cuda"), (), 13, 580, (7, 5), Path()) for name in NAMES}
SMALL = Selection(scenarios=("mnist-cnn", "cifar-cnn"), devices=("cpu",))
ONE = Selection(scenarios=("mnist-cnn",), devices=("cpu",))
NO_GPU = {(name, "cuda"): "No NVIDIA GPU is visible." for name in NAMES}


@pytest.fixture(autouse=True)
def machine(tmp_path_factory, monkeypatch):
    """A machine of our own: lock, cache, frameworks."""
    folder = tmp_path_factory.mktemp("machine")
    monkeypatch.setattr(locks, "PATH", folder / "lock")
    monkeypatch.setattr(locks, "PATIENCE_S", 0.0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    monkeypatch.setattr(catalog, "frameworks", lambda: FRAMEWORKS)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # a process is killed here, not the power cut


def synthetic(name, mode, progress):
    return Source("synthetic", None, "synthetic: for the test")


def new_run(path, selection=SMALL, **options):
    plan = make_plan(
        selection,
        Options("fake", **options),
        catalog.scenarios(),
        FRAMEWORKS,
        run="r1",
        created_at="2026-01-01T00:00:00+00:00",
    )
    return RunFolder.create(path, plan, examples.machine())


def go(folder, engine, resolve=synthetic, **options):
    return run_campaign(folder, engine, examples.machine(), resolve, Silent(), **options)


def names(records):
    return [(record.key, record.launch) for record in records]


def fails(asked, folder):
    return Completion(exit_code=1, seconds=1.0)


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
from kit import catalog, locks
from kit.store import RunFolder
from tests import fakes
from tests.unit.test_campaign import FRAMEWORKS, go

def die_at_the_second_launch(asked, folder):
    if engine.launched:
        os.kill(os.getpid(), signal.SIGKILL)
    return fakes.works(asked, folder)

locks.PATH = Path(sys.argv[2])
catalog.frameworks = lambda: FRAMEWORKS
engine = fakes.FakeEngine(worker=die_at_the_second_launch)
go(RunFolder.open(Path(sys.argv[1])), engine)
"""


def test_kill_9_leaves_a_run_that_can_be_completed(tmp_path):
    folder = new_run(tmp_path / "run", ONE)
    command = [sys.executable, "-c", DIE, str(folder.path), str(locks.PATH)]
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


# ---- the machine's lock ------------------------------------------------------------------------------------------

HOLD = """
import sys
from pathlib import Path
from kit import locks
locks.PATH = Path(sys.argv[1])
with locks.measuring("other-run"):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def other_process():
    """Another process that measures on this machine."""
    command = [sys.executable, "-c", HOLD, str(locks.PATH)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_second_measuring_run_is_refused_until_the_first_is_dead(tmp_path, other_process):
    folder, engine = new_run(tmp_path / "run"), fakes.FakeEngine()
    with pytest.raises(EngineError, match=rf"other-run \(process {other_process.pid}\)"):
        go(folder, engine)
    assert engine.calls == []
    assert locks.is_alive("other-run")
    assert not locks.is_alive("r1")
    other_process.kill()
    other_process.wait()
    assert not locks.is_alive("other-run")
    assert len(go(folder, engine)) == 6


def test_a_lock_file_that_says_nothing_sensible_is_shown_to_nobody(other_process):
    locks.PATH.write_bytes(b"\x1b]0;evil\x07 \xff")
    with pytest.raises(EngineError, match=r"\? \(process \?\)"), locks.measuring("r1"):
        pass
    assert locks.is_alive("r1")  # who knows: rather leave its containers alone


def test_a_link_or_a_pipe_in_the_lock_s_place_is_an_error(tmp_path):
    target = tmp_path / "target"
    target.write_text("precious")
    locks.PATH.symlink_to(target)
    with pytest.raises(EngineError, match="lock"), locks.measuring("r1"):
        pass
    assert target.read_text() == "precious"
    locks.PATH.unlink()
    os.mkfifo(locks.PATH)
    with pytest.raises(EngineError, match="not a plain file"), locks.measuring("r1"):
        pass


def test_every_user_may_take_the_lock():
    before = os.umask(0o077)
    try:
        with locks.measuring("r1"):
            assert locks.PATH.stat().st_mode & 0o777 == 0o666
    finally:
        os.umask(before)


# ---- limits ------------------------------------------------------------------------------------------------------


def test_limits_are_the_machine_s_unless_the_plan_says_otherwise(tmp_path):
    plan = new_run(tmp_path / "run").plan
    limits = launch_limits(plan, (0, 2, 1, 3), 1000)
    assert (limits.cpus, limits.memory_bytes, limits.timeout_s) == ((0, 2, 1, 3), 900, plan.timeout_s)
    asked = plan.model_copy(update={"threads": 2, "memory_bytes": 77})
    assert launch_limits(asked, (0, 2, 1, 3), None).cpus == (0, 2)
    assert launch_limits(asked, (0, 2, 1, 3), None).memory_bytes == 77
    with pytest.raises(UsageError, match="more than the 1 CPUs"):
        launch_limits(asked, (0,), None)


def test_a_gpu_is_the_first_idle_one_or_the_one_asked_for():
    gpus = [examples.gpu(index=index, uuid=f"GPU-{index}") for index in range(3)]
    assert choose_gpus(None, gpus, busy=[0]) == ("1",)
    assert choose_gpus(None, gpus, busy=[0, 1, 2]) == ("0",)
    assert choose_gpus(None, [], busy=[]) == ()
    assert choose_gpus("all", gpus, busy=[0]) == ("0", "1", "2")
    assert choose_gpus("GPU-2,0", gpus, busy=[0]) == ("GPU-2", "0")
    with pytest.raises(UsageError, match="no NVIDIA GPU is visible"):
        choose_gpus("0", [], busy=[])
    with pytest.raises(UsageError, match="There is: 0, 1, 2"):
        choose_gpus("3", gpus, busy=[])


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    """No search that another test, or an earlier run of the tests, has kept."""
    monkeypatch.setenv("KIT_CACHE_DIR", str(tmp_path / "cache"))


TUNED = Selection(scenarios=("mnist-cnn",), frameworks=("torch",), devices=("cpu",), lanes=("stock", "tuned"))
TUNED_KEY = "mnist-cnn/torch/cpu/tuned/fp32/b64"


@pytest.mark.usefixtures("own_cache")
def test_a_tuned_cell_is_searched_once_and_measured_with_what_was_found(tmp_path):
    folder, engine = new_run(tmp_path / "run", TUNED, tune_s=30.0), fakes.FakeEngine()
    records = {record.request.lane: record for record in go(folder, engine)}
    assert engine.tuned == [(TUNED_KEY, 1)]
    assert records["tuned"].request.settings == examples.SETTINGS
    assert records["tuned"].request.environment == {"LD_PRELOAD": "libtcmalloc_minimal.so.4"}
    assert (records["stock"].request.settings, records["stock"].request.environment) == ({}, {})
    (search,) = folder.tunings()
    assert (search.request.budget.seconds, search.request.settings) == (30.0, {})
    assert pins(folder).cells == {TUNED_KEY: examples.SETTINGS}

    further = fakes.FakeEngine()
    again = new_run(tmp_path / "again", TUNED, tune_s=30.0)
    go(again, further)
    assert further.tuned == [], "what this machine found before is taken"
    assert again.tunings() == [search]
    longer = fakes.FakeEngine()
    go(new_run(tmp_path / "longer", TUNED, tune_s=31.0), longer)
    assert len(longer.tuned) == 1, "another budget may find something else"
    smaller = fakes.FakeEngine()
    go(new_run(tmp_path / "smaller", TUNED, tune_s=30.0, memory_bytes=2 << 30), smaller)
    assert len(smaller.tuned) == 1, "what was found may not fit into less memory"


@pytest.mark.usefixtures("own_cache")
@pytest.mark.parametrize(
    "change",
    [
        {"status": "failed", "reason": {"code": "timeout", "message": "Late.", "remedy": "Wait."}},
        {"key": "mnist-cnn/torch/cpu/tuned/bf16/b64"},
        {"request": {"precision": "bf16"}},
        {"result": {"tuning": {"settings": {"allocator": "/opt/evil.so"}, "searches": []}}},
        None,
    ],
)
def test_a_kept_search_that_is_of_something_else_is_made_anew(tmp_path, change):
    go(new_run(tmp_path / "run", TUNED), fakes.FakeEngine())
    (kept,) = (tmp_path / "cache" / "tuning").iterdir()
    if change is None:
        kept.unlink()
        os.mkfifo(kept)
    else:
        record = json.loads(kept.read_text())
        for name, value in change.items():
            record[name] = {**record[name], **value} if isinstance(record[name], dict) else value
        kept.write_text(json.dumps(record))
    engine, folder = fakes.FakeEngine(), new_run(tmp_path / "again", TUNED)
    records = go(folder, engine)
    assert engine.tuned == [(TUNED_KEY, 1)]
    assert {record.status for record in records} == {Status.OK}
    assert pins(folder).cells == {TUNED_KEY: examples.SETTINGS}


@pytest.mark.usefixtures("own_cache")
def test_a_search_that_broke_off_is_used_and_made_anew_in_the_next_run(tmp_path):
    def stock_failed(asked, folder):
        done = fakes.works(asked, folder)
        if asked.purpose == "tune":
            failed = Tuning({}, [Search("training", {}, [Tried({}, [], [], f"{Path.home()}/x crashed.")], 1.0)])
            codec.write(folder.scratch / RESULT_FILE, replace(examples.result(asked), tuning=failed))
        return done

    folder = new_run(tmp_path / "run", TUNED)
    records = {r.request.lane: r for r in go(folder, fakes.FakeEngine(stock_failed))}
    assert (records["tuned"].status, records["tuned"].request.settings) == (Status.OK, {})
    (search,) = folder.tunings()
    assert tuning_of(search).broken == "~/x crashed.", "whose home it is goes into no record"
    with pytest.raises(UsageError, match="came to its end"):
        pins(folder)
    engine = fakes.FakeEngine()
    go(new_run(tmp_path / "again", TUNED), engine)
    assert engine.tuned == [(TUNED_KEY, 1)]


@pytest.mark.usefixtures("own_cache")
def test_pinned_settings_are_not_searched(tmp_path):
    engine = fakes.FakeEngine()
    folder = new_run(tmp_path / "run", TUNED, pinned={TUNED_KEY: {"layout": "nhwc"}})
    settings = {record.request.lane: record.request.settings for record in go(folder, engine)}
    assert settings == {"stock": {}, "tuned": {"layout": "nhwc"}}
    assert engine.tuned == []
    with pytest.raises(UsageError, match="has none"):
        new_run(tmp_path / "other", ONE, pinned={TUNED_KEY: {}})


@pytest.mark.usefixtures("own_cache")
def test_a_search_that_fails_takes_its_cell_with_it_and_is_tried_again(tmp_path):
    def searches_fail(asked, folder):
        return fails(asked, folder) if asked.purpose == "tune" else fakes.works(asked, folder)

    folder = new_run(tmp_path / "run", TUNED)
    statuses = {record.request.lane: record.status for record in go(folder, fakes.FakeEngine(searches_fail))}
    assert statuses == {"stock": Status.OK, "tuned": Status.FAILED}
    engine = fakes.FakeEngine()
    records = go(folder, engine, retry_failed=True)
    assert engine.tuned == [(TUNED_KEY, 2)]
    assert engine.launched == [(TUNED_KEY, 2)]
    assert {record.status for record in records if record.launch == 2} == {Status.OK}
