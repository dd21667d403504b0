"""The search for settings, run for real: fork servers, forks, turns; what hangs, crashes or computes nonsense."""

from __future__ import annotations

from statistics import median

import psutil
import pytest

from scenarios.contract.reasons import Code, Status
from scenarios.contract.result import Search, Tuning
from scenarios.tuning.tune import untried
from tests.workers import copy_assets, request_of, work

ADAPTER = """
import os
import time

from scenarios.frameworks.plain.adapter import PlainAdapter, PlainModel

REST_S = {"slow": 0.04, "fast": 0.012}  # the wrong pace, which does not rest, must win against the fast one


class ChoosyModel(PlainModel):
    def load(self, weights):
        super().load(weights)
        self._age = 0

    def _step(self, images, labels):
        self._age += 1
        if self._age > 160:  # more than an epoch
            raise ValueError("it was trained on and on")
        pace = self._options.settings.get("pace", "slow")
        if pace == "crash":
            os.abort()
        if pace == "hang":
            time.sleep(1000)
        if pace == "raise":
            raise ValueError("out of order")
        time.sleep(REST_S.get(pace, 0.0))
        return super()._step(images, labels)

    def logits(self, images):
        found = super().logits(images)
        return 1.01 * found if self._options.settings.get("pace") == "wrong" else found

    def predictor(self, batch):
        predict, rest = super().predictor(batch), 0.0 if self._options.settings.get("latency") == "quick" else 0.03

        def slowed(images):
            time.sleep(rest)
            return predict(images)

        return slowed


class ChoosyAdapter(PlainAdapter):
    name = "choosy"
    likely = {"pace": ("faster", "fast"), "latency": ("careful",), "colour": ("red",)}

    @staticmethod
    def axes(options, scenario):
        training = {"pace": ["slow", "wrong", "crash", "hang", "raise", "fast"]}
        return {"training": training, "latency": {"latency": ["careful", "quick"]}}

    def versions(self):
        return {**super().versions(), "choosy": "1"}

    def build(self, scenario, weights):
        return ChoosyModel(self._options, scenario, weights)


ADAPTER = ChoosyAdapter
"""


@pytest.fixture(scope="module")
def assets(tmp_path_factory):
    """The example, and an adapter that has settings."""
    folder = tmp_path_factory.mktemp("assets")
    copy_assets(folder)
    (folder / "scenarios/frameworks/choosy").mkdir()
    (folder / "scenarios/frameworks/choosy/adapter.py").write_text(ADAPTER)
    return folder


def tuned(assets, io, **changes):
    key = "tiny-cnn/choosy/cpu/tuned/fp32/b32"
    fields = {"framework": "choosy", "key": key, "lane": "tuned", "purpose": "tune", "budget": {"seconds": 60}}
    request_of(assets, io, **{**fields, **changes})
    return work(assets, io)


def test_a_search_takes_the_fastest_that_computes_the_scenario(assets, tmp_path):
    result = tuned(assets, tmp_path)
    assert result.status is Status.OK, result.reason
    assert result.missing("tune") == []
    assert result.tuning
    assert result.tuning.settings == {"pace": "fast", "latency": "quick"}
    training, latency = result.tuning.searches
    assert (training.objective, latency.objective) == ("training", "latency")
    assert (training.untried, latency.untried) == (0, 0)
    assert [t.settings for t in training.tried[:2]] == [{}, {"pace": "fast"}], "what is likely comes first"
    assert [t.settings for t in latency.tried] == [{}, {"latency": "quick"}], "stock's own value is stock"
    tried = {t.settings.get("pace", "slow"): t for t in training.tried}
    assert set(tried) == {"slow", "fast", "wrong", "crash", "hang", "raise"}
    assert {pace: bool(t.failure) for pace, t in tried.items()} == {
        "slow": False,
        "fast": False,
        "wrong": True,
        "crash": True,
        "hang": True,
        "raise": True,
    }
    assert "does not compute" in tried["wrong"].failure
    assert median(tried["wrong"].ratios) > 1
    assert "no answer" in tried["hang"].failure
    assert "out of order" in tried["raise"].failure
    assert median(tried["fast"].ratios) > 1
    assert not [p for p in psutil.process_iter(["cmdline"]) if str(tmp_path) in (p.info["cmdline"] or [])]


def test_what_was_chosen_is_measured_with(assets, tmp_path):
    settings = {"pace": "fast", "latency": "quick"}
    budget = {"steps": 3, "test_images": 20}
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.mkdir()
    bad.mkdir()
    result = tuned(assets, good, purpose="measure", settings=settings, budget=budget)
    assert result.status is Status.OK, result.reason
    broken = tuned(assets, bad, purpose="measure", settings=settings | {"pace": "raise"}, budget=budget)
    assert broken.reason
    assert "out of order" in broken.reason.message


def test_a_search_that_cannot_begin_says_why(assets, tmp_path):
    result = tuned(assets, tmp_path, framework="nowhere")
    assert (result.status, result.reason and result.reason.code) == (Status.FAILED, Code.WORKER_ERROR)
    assert result.reason
    assert "could not begin" in result.reason.message


def test_values_for_which_there_was_no_time_are_counted():
    axes = {"pace": ["slow", "fast", "faster"], "colour": ["none", "red"], "threads": []}
    assert untried(axes, []) == 3
    assert untried(axes, [{}, {"pace": "fast", "colour": "red"}, {"pace": "fast"}]) == 1
    searches = [Search("training", {}, [], 0.0, 3), Search("latency", {"latency": "quick"}, [], 0.0, 2)]
    assert Tuning({}, searches).untried == 3, "of searches that found nothing"
