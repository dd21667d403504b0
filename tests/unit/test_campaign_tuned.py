"""Tuned cells of a run: searched once, kept for the next run, pinned by a file."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from kit.model.errors import UsageError
from kit.model.record import tuning_of
from kit.planning.selection import Selection
from kit.storage.pins import pins
from scenarios.contract import codec
from scenarios.contract.reasons import Status
from scenarios.contract.request import RESULT_FILE
from scenarios.contract.result import Search, Tried, Tuning
from tests import examples, fakes
from tests.campaigns import ONE, fails, go, new_run

pytestmark = pytest.mark.usefixtures("machine")

TUNED = Selection(scenarios=("mnist-cnn",), frameworks=("torch",), devices=("cpu",), lanes=("stock", "tuned"))
TUNED_KEY = "mnist-cnn/torch/cpu/tuned/fp32/b64"


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """No search that another test, or an earlier run of the tests, has kept."""
    monkeypatch.setenv("KIT_CACHE_DIR", str(tmp_path / "cache"))


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


def test_pinned_settings_are_not_searched(tmp_path):
    engine = fakes.FakeEngine()
    folder = new_run(tmp_path / "run", TUNED, pinned={TUNED_KEY: {"layout": "nhwc"}})
    settings = {record.request.lane: record.request.settings for record in go(folder, engine)}
    assert settings == {"stock": {}, "tuned": {"layout": "nhwc"}}
    assert engine.tuned == []
    with pytest.raises(UsageError, match="has none"):
        new_run(tmp_path / "other", ONE, pinned={TUNED_KEY: {}})


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
