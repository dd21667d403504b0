"""Test what the measurements of a launch report: the speed of training, and the percentiles of latency."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from kit.analysis.tidy import launch_table
from kit.model.record import Record
from kit.planning import catalog
from scenarios.adapter import Arrays, Sums
from scenarios.contract.request import Budget
from scenarios.contract.result import MIN_P99_SAMPLES, Window
from scenarios.measuring import inference
from scenarios.measuring.training import evaluate, train
from scenarios.measuring.window_meter import WindowMeter
from tests import examples

SCENARIO = catalog.scenarios()["mnist-cnn"][""]
GOLDEN = Path(__file__).parents[1] / "golden"
STEP_S, BOUNDARY_S, STALL_S = 0.01, 0.4, 0.15


class Clock:
    """A clock that stands still until the model moves it."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class FakeModel:
    """A model whose steps and epoch boundaries move a clock. Every 97th step stalls."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.images, self.steps = clock, 0, 0

    def train_epoch(self, data, epoch, meter):
        meter.begin()
        self.clock.now += BOUNDARY_S
        batch = SCENARIO.batch
        for start in range(0, len(data), batch):
            self.steps += 1
            self.clock.now += STEP_S + STALL_S * (self.steps % 97 == 0)
            self.images += len(data.labels[start : start + batch])
            if meter.step(len(data.labels[start : start + batch])) and not meter.mark():
                break
        return Sums(self.images, 1.0, 0)


@pytest.mark.parametrize("steps", [25, 100, 290, 310, 1000])
def test_the_speed_of_training_includes_stalls_and_epoch_boundaries(steps: int) -> None:
    clock, images = Clock(), steps * SCENARIO.batch
    model, data = FakeModel(clock), Arrays(np.zeros((images, 1, 1, 1), np.float32), np.zeros(images, np.int64))
    meter = WindowMeter(Budget(seconds=6.0), steps, clock)
    training = train(model, SCENARIO, data, data, meter)
    epoch_s = steps * (STEP_S + STALL_S / 97) + BOUNDARY_S
    assert sum(window.images for window in training.windows) == model.images
    assert training.images_per_s == pytest.approx(images / epoch_s, rel=0.04)
    assert training.epoch_s == pytest.approx(60_000 / training.images_per_s)
    assert training.median_images_per_s is not None
    assert training.stall_share == pytest.approx(1 - training.images_per_s / training.median_images_per_s)
    if steps > 25:  # shorter epochs have a boundary in most windows
        assert training.median_images_per_s == pytest.approx(SCENARIO.batch / STEP_S, rel=0.03)
        assert training.boundary_s == pytest.approx(BOUNDARY_S, abs=1.1 * STALL_S)


def test_a_training_that_diverges_in_its_last_step_is_an_error() -> None:
    """The training loss is that from before the step."""

    class Model:
        def logits(self, images):
            return np.full((len(images), 10), np.nan, np.float32)

    data = Arrays(np.zeros((4, 28, 28, 1), np.float32), np.zeros(4, np.int64))
    with pytest.raises(FloatingPointError, match="diverged"):
        evaluate(Model(), SCENARIO, data)


def test_a_batch_is_filled_by_repeating_images() -> None:
    images = np.arange(3.0, dtype=np.float32).reshape(3, 1, 1, 1)
    assert inference.fill_batch(images, 7).ravel().tolist() == [0, 1, 2, 0, 1, 2, 0]
    part = inference.fill_batch(images, 2)
    assert part.ravel().tolist() == [0, 1]
    assert part.base is None, "it must not keep a copy of all images"


@pytest.mark.parametrize("calls", [MIN_P99_SAMPLES - 1, MIN_P99_SAMPLES])
def test_a_p99_needs_enough_calls(calls: int, monkeypatch: pytest.MonkeyPatch) -> None:
    class Model:
        def predictor(self, batch):
            return None

    monkeypatch.setattr(inference, "_latencies", lambda *_: [1.0] * calls)
    monkeypatch.setattr(inference, "_throughput", lambda *_: [Window(0.0, 1.0, 1, 10)])
    monkeypatch.setattr(inference, "evaluate", lambda *_: (0.5, 0.9))
    data = Arrays(np.zeros((4, 28, 28, 1), np.float32), np.zeros(4, np.int64))
    measured = inference.infer(Model(), SCENARIO, data, 1.0)
    assert (measured.p90_ms, measured.p99_ms) == (1.0, 1.0 if calls >= MIN_P99_SAMPLES else None)


def test_a_record_from_before_the_shares_of_stalls_stays_readable() -> None:
    document = json.loads((GOLDEN / "record-ok.json").read_text())
    training, measured = document["result"]["training"], document["result"]["inference"]
    for name in ("median_images_per_s", "boundary_s", "stall_share", "resumed_from"):
        del training[name]
    for name in ("weights", "held_out", "augmented"):
        del document["result"][name]
    for name in ("keep_weights", "environment_digest"):
        del document["request"][name]
    for window in [*training["windows"], *measured["windows"]]:
        del window["boundaries"]
    measured["p99_ms"] = 3.0
    record = Record.from_json(json.dumps(document), "old")
    assert record.result
    assert record.result.training
    assert record.result.training.stall_share is None
    assert record.result.training.resumed_from == record.result.weights == record.result.held_out == []
    assert record.result.augmented is None
    assert record.result.training.images_per_s == 1000.0
    p99 = launch_table(examples.run([record])).frame()["p99_ms"]
    assert p99.isna().all(), "two calls are too few for a p99"
