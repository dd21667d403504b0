"""Test the tuned cells of a run: search once, reuse the search in later runs, or use pinned settings."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pynvml
import pytest

from kit.model.errors import UsageError
from kit.planning.selection import Selection
from kit.storage.pins import collect_pins
from kit.storage.run_folder import file_stem
from scenarios.contract import codec
from scenarios.contract.reasons import Status
from scenarios.contract.request import RESULT_FILE, Budget
from scenarios.contract.result import Search, Tried, Tuning
from tests import examples, fakes
from tests.campaigns import ONE, execute, fails, new_run
from tests.fakes_nvml import FakeGpu, install

pytestmark = pytest.mark.usefixtures("machine")

TUNED = Selection(scenarios=("mnist-cnn",), frameworks=("torch",), devices=("cpu",), lanes=("stock", "tuned"))
TUNED_KEY = "mnist-cnn/torch/cpu/tuned/fp32/b64"


@pytest.fixture(autouse=True)
def empty_cache(tmp_path, monkeypatch):
    """Use an empty cache, so that no search of another test is reused."""
    monkeypatch.setenv("KIT_CACHE_DIR", str(tmp_path / "cache"))


def test_a_tuned_cell_is_searched_once_and_measured_with_the_result(tmp_path):
    folder, engine = new_run(tmp_path / "run", TUNED, tune_s=30.0), fakes.FakeEngine()
    records = {record.cell.lane: record for record in execute(folder, engine)}
    assert engine.tuned == [(TUNED_KEY, 1)]
    assert records["tuned"].request.settings == examples.SETTINGS
    assert records["tuned"].request.environment == {"LD_PRELOAD": "libtcmalloc_minimal.so.4"}
    assert (records["stock"].request.settings, records["stock"].request.environment) == ({}, {})
    (search,) = folder.records("tune")
    assert (search.request.budget.seconds, search.request.settings) == (30.0, {})
    assert collect_pins(folder.read(), folder.retry_command).cells == {TUNED_KEY: examples.SETTINGS}

    second = fakes.FakeEngine()
    again = new_run(tmp_path / "again", TUNED, tune_s=30.0)
    execute(again, second)
    assert second.tuned == [], "an earlier search on this machine must be reused"
    assert again.records("tune") == [search]
    longer = fakes.FakeEngine()
    execute(new_run(tmp_path / "longer", TUNED, tune_s=31.0), longer)
    assert len(longer.tuned) == 1, "another budget may find other settings"
    smaller = fakes.FakeEngine()
    execute(new_run(tmp_path / "smaller", TUNED, tune_s=30.0, memory_bytes=2 << 30), smaller)
    assert len(smaller.tuned) == 1, "the settings may not fit into less memory"


def test_a_search_and_a_launch_of_its_cell_share_no_file(tmp_path):
    places = []

    def worker(request, folder):
        completion = fakes.works(request, folder)
        folder.log.write_text(request.purpose)
        if request.cell.lane == "tuned":
            kept = run.kept(request)
            places.append((folder.scratch, kept.checkpoints, kept.weights))
        return completion

    run = new_run(tmp_path / "run", TUNED)
    execute(run, fakes.FakeEngine(worker))
    logs = [run.path / "logs" / f"{file_stem(TUNED_KEY, 1)}{suffix}.log" for suffix in ("__tune", "")]
    assert [log.read_text() for log in logs] == ["tune", "measure"]
    search, launch = places
    assert all(one != other for one, other in zip(search, launch, strict=True))


@pytest.mark.parametrize(
    ("options", "budget"),
    [
        ({}, Budget(seconds=60, max_seconds=600, test_images=1000)),
        ({"tune_s": 60.0}, Budget(seconds=60, test_images=1000)),
        ({"timeout_s": 300.0}, Budget(seconds=60, max_seconds=150, test_images=1000)),
    ],
)
def test_only_the_default_time_may_be_extended_and_ends_before_the_timeout(tmp_path, options, budget):
    folder, engine = new_run(tmp_path / "run", TUNED, **options), fakes.FakeEngine()
    execute(folder, engine)
    (search,) = folder.records("tune")
    assert search.request.budget == budget
    assert {limits.timeout_s > 2 * budget.search_seconds(0.0) for limits in engine.limits} == {True}
    execute(new_run(tmp_path / "exact", TUNED, tune_s=60.0), other := fakes.FakeEngine())
    assert len(other.tuned) == (0 if "tune_s" in options else 1), "an exact time may find other settings"


def test_settings_are_found_again_for_each_model_of_gpu(monkeypatch, tmp_path):
    divided = FakeGpu("GPU-d", instances=[FakeGpu("MIG-d")])
    install(monkeypatch, [FakeGpu("GPU-a"), FakeGpu("GPU-b"), FakeGpu("GPU-c"), divided])
    names = dict.fromkeys(("GPU-a", "GPU-c", "GPU-d"), "NVIDIA A100")
    names |= {"GPU-b": "NVIDIA H200", "MIG-d": "NVIDIA A100 MIG 1g.5gb"}
    monkeypatch.setattr(pynvml, "nvmlDeviceGetName", lambda gpu: names[gpu.uuid])
    on_cuda, searched = replace(TUNED, devices=("cuda",)), []
    for visible in ("GPU-a", "GPU-b", "GPU-c", "MIG-d"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        execute(new_run(tmp_path / visible, on_cuda), engine := fakes.FakeEngine())
        searched += [visible] * len(engine.tuned)
    assert searched == ["GPU-a", "GPU-b", "MIG-d"], "GPU-c is the same model as GPU-a"


@pytest.mark.parametrize(
    "change",
    [
        {"status": "timeout", "reason": {"code": "deadline", "message": "Late.", "remedy": "Wait."}},
        {"cell": {"precision": "bf16"}},
        {"request": {"seed": 7}},
        {"result": {"tuning": {"settings": {"allocator": "/opt/evil.so"}, "searches": []}}},
        None,
    ],
)
def test_a_cached_search_that_does_not_match_is_repeated(tmp_path, change):
    execute(new_run(tmp_path / "run", TUNED), fakes.FakeEngine())
    (cached,) = (tmp_path / "cache" / "tuning").iterdir()
    if change is None:
        cached.unlink()
        os.mkfifo(cached)
    else:
        record = json.loads(cached.read_text())
        for name, value in change.items():
            record[name] = {**record[name], **value} if isinstance(record[name], dict) else value
        cached.write_text(json.dumps(record))
    engine, folder = fakes.FakeEngine(), new_run(tmp_path / "again", TUNED)
    records = execute(folder, engine)
    assert engine.tuned == [(TUNED_KEY, 1)]
    assert {record.status for record in records} == {Status.OK}
    assert collect_pins(folder.read(), folder.retry_command).cells == {TUNED_KEY: examples.SETTINGS}


def test_an_incomplete_search_is_used_but_repeated_in_the_next_run(tmp_path):
    def break_search(request, folder):
        completion = fakes.works(request, folder)
        if request.purpose == "tune":
            failed = Tuning({}, [Search("training", {}, [Tried({}, [], [], f"{Path.home()}/x crashed.")], 1.0)])
            codec.write(folder.scratch / RESULT_FILE, replace(examples.result(request), tuning=failed))
        return completion

    folder = new_run(tmp_path / "run", TUNED)
    records = {r.cell.lane: r for r in execute(folder, fakes.FakeEngine(break_search))}
    assert (records["tuned"].status, records["tuned"].request.settings) == (Status.OK, {})
    (search,) = folder.records("tune")
    assert search.tuning.broken == "~/x crashed.", "the record must not name the user"
    with pytest.raises(UsageError, match="search is complete") as caught:
        collect_pins(folder.read(), folder.retry_command)
    assert caught.value.remedy == "Start a new run, which searches again."
    engine = fakes.FakeEngine()
    execute(folder, engine, retry_failed=True)
    assert engine.tuned == []
    execute(new_run(tmp_path / "again", TUNED), engine)
    assert engine.tuned == [(TUNED_KEY, 1)]


def test_pinned_settings_are_not_searched(tmp_path):
    engine = fakes.FakeEngine()
    folder = new_run(tmp_path / "run", TUNED, pinned={TUNED_KEY: {"layout": "nhwc"}})
    settings = {record.cell.lane: record.request.settings for record in execute(folder, engine)}
    assert settings == {"stock": {}, "tuned": {"layout": "nhwc"}}
    assert engine.tuned == []
    with pytest.raises(UsageError, match="no such cell"):
        new_run(tmp_path / "other", ONE, pinned={TUNED_KEY: {}})


def test_a_failed_search_fails_its_cell_and_is_retried(tmp_path):
    def fail_searches(request, folder):
        return fails(request, folder) if request.purpose == "tune" else fakes.works(request, folder)

    folder = new_run(tmp_path / "run", TUNED)
    statuses = {record.cell.lane: record.status for record in execute(folder, fakes.FakeEngine(fail_searches))}
    assert statuses == {"stock": Status.OK, "tuned": Status.FAILED}
    with pytest.raises(UsageError) as caught:
        collect_pins(folder.read(), folder.retry_command)
    assert caught.value.remedy == f"Continue it with `kit run --resume {folder.path} --retry-failed`."
    engine = fakes.FakeEngine()
    records = execute(folder, engine, retry_failed=True)
    assert engine.tuned == [(TUNED_KEY, 2)]
    assert engine.launched == [(TUNED_KEY, 2)]
    assert {record.status for record in records if record.launch == 2} == {Status.OK}
