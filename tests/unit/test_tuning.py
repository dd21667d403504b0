"""A search with real fork servers and forks, including settings that hang, crash or compute something else."""

from __future__ import annotations

from statistics import median

import psutil
import pytest

from scenarios.contract.reasons import Code, Status
from scenarios.contract.result import Search, Tuning
from scenarios.tuning.tune import count_untried
from tests.workers import copy_assets, request_of, work

ADAPTER = """
import os
import time

from scenarios.frameworks.plain.adapter import PlainAdapter, PlainModel
from scenarios.tuning import trial_process

STEP_S = {"slow": 0.04, "fast": 0.012, "wrong": 0.004}


class Clock:
    now = 0.0

    def monotonic(self):
        return self.now


# Trials measure themselves on this clock, so their speeds do not depend on the machine.
clock = trial_process.time = Clock()


class ChoosyModel(PlainModel):
    def load(self, weights):
        super().load(weights)
        self._age = 0

    def _step(self, images, labels):
        self._age += 1
        if self._age > 160:  # more than an epoch
            raise ValueError("it was not reset")
        pace = self._options.settings.get("pace", "slow")
        if pace == "crash":
            os.abort()
        if pace == "hang":
            time.sleep(1000)
        if pace == "raise":
            raise ValueError("out of order")
        clock.now += STEP_S[pace]
        return super()._step(images, labels)

    def logits(self, images):
        found = super().logits(images)
        return 1.01 * found if self._options.settings.get("pace") == "wrong" else found

    def predictor(self, batch):
        predict, call_s = super().predictor(batch), 0.01 if self._options.settings.get("latency") == "quick" else 0.03

        def slowed(images):
            clock.now += call_s
            return predict(images)

        return slowed


class ChoosyAdapter(PlainAdapter):
    name = "choosy"
    likely = {"pace": ("faster", "fast"), "latency": ("careful",), "color": ("red",)}

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
    """Return the example with an adapter that has settings. A trial that hangs costs 1% of the budget, not 15%."""
    folder = tmp_path_factory.mktemp("assets")
    copy_assets(folder)
    (folder / "scenarios/frameworks/choosy").mkdir()
    (folder / "scenarios/frameworks/choosy/adapter.py").write_text(ADAPTER)
    with open(folder / "scenarios/tuning/tune.py", "a") as module:
        module.write("\nSTART_SHARE = 0.01\n")
    return folder


def tuned(assets, io, **changes):
    fields = {"framework": "choosy", "lane": "tuned", "purpose": "tune", "budget": {"seconds": 600}}
    request_of(assets, io, **{**fields, **changes})
    return work(assets, io)


def test_a_search_for_a_cell_that_no_adapter_offers_is_skipped(assets, tmp_path):
    result = tuned(assets, tmp_path, precision="tf32")
    assert (result.status, result.reason.code) == (Status.SKIPPED, Code.NOT_OFFERED)


def test_a_search_finds_the_fastest_settings_that_compute_the_scenario(assets, tmp_path):
    result = tuned(assets, tmp_path)
    assert result.status is Status.OK, result.reason
    assert result.tuning
    assert result.tuning.allowed_s == 600, "an exact budget does not depend on the machine"
    assert result.tuning.settings == {"pace": "fast", "latency": "quick"}
    training, latency = result.tuning.searches
    assert (training.objective, latency.objective) == ("training", "latency")
    assert (training.untried, latency.untried) == (0, 0)
    assert [t.settings for t in training.tried[:2]] == [{}, {"pace": "fast"}], "likely settings come first"
    assert [t.settings for t in latency.tried] == [{}, {"latency": "quick"}], "the stock value is not a candidate"
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
    assert median(tried["wrong"].ratios) == pytest.approx(10)
    assert "no answer" in tried["hang"].failure
    assert "out of order" in tried["raise"].failure
    assert median(tried["fast"].ratios) == pytest.approx(10 / 3)
    assert not [p for p in psutil.process_iter(["cmdline"]) if str(tmp_path) in (p.info["cmdline"] or [])]


def test_a_search_may_take_longer_if_stock_starts_slowly(assets, tmp_path):
    result = tuned(assets, tmp_path, budget={"seconds": 0.001, "max_seconds": 0.002})
    assert result.tuning.allowed_s == 0.002, "fifteen starts take longer than this on any machine"


def test_a_measurement_uses_the_settings(assets, tmp_path):
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


def test_a_search_that_cannot_begin_reports_the_cause(assets, tmp_path):
    result = tuned(assets, tmp_path, framework="nowhere")
    assert (result.status, result.reason and result.reason.code) == (Status.FAILED, Code.WORKER_ERROR)
    assert result.reason
    assert "could not begin" in result.reason.message


def test_untried_values_are_counted():
    axes = {"pace": ["slow", "fast", "faster"], "color": ["none", "red"], "threads": []}
    assert count_untried(axes, []) == 3
    assert count_untried(axes, [{}, {"pace": "fast", "color": "red"}, {"pace": "fast"}]) == 1
    searches = [Search("training", {}, [], 0.0, 3), Search("latency", {"latency": "quick"}, [], 0.0, 2)]
    assert Tuning({}, searches).untried == 3, "only searches that found nothing count"
