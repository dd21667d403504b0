"""What is TensorFlow's own risk: functions traced anew unseen, waits that no clock asked for, one runtime a process."""

from __future__ import annotations

import importlib
import os
import time
from dataclasses import replace

import pytest
from toys import RecordingMeter, noise, toy, zeros

from scenarios.adapter import Arrays, Options
from scenarios.spec import Adam
from scenarios.weights import check_weights

SCENARIO = toy(batch=8, optimizer=Adam())


@pytest.fixture
def tensorflow(adapter):
    if adapter.name != "tensorflow":
        pytest.skip("another adapter is under test")
    return adapter


def test_the_step_is_traced_once(tensorflow, monkeypatch):
    """Whatever the size of a batch, in whole epochs and in single steps, before and after `load`."""
    model = tensorflow.build(SCENARIO, zeros(SCENARIO))
    traced = []
    own = model._keras.compute_loss
    monkeypatch.setattr(model._keras, "compute_loss", lambda *given, **named: traced.append(1) or own(*given, **named))
    for count in (5, 8, 35, 16):
        model.step(*noise(SCENARIO, count))
        model.train_epoch(Arrays(*noise(SCENARIO, count)), 0, RecordingMeter())
        model.load(zeros(SCENARIO))
    assert len(traced) == 1


def test_the_device_is_waited_for_at_the_end_of_windows_alone(tensorflow, monkeypatch):
    waits = []
    monkeypatch.setattr("tensorflow.test.experimental.sync_devices", lambda: waits.append(1))
    model = tensorflow.build(SCENARIO, zeros(SCENARIO))
    model.train_epoch(Arrays(*noise(SCENARIO, 40)), 0, RecordingMeter(window=2))
    assert len(waits) == 2


def test_one_process_has_one_thread_count(tensorflow, options: Options):
    tensorflow.build(SCENARIO, zeros(SCENARIO)).step(*noise(SCENARIO, 1))
    with pytest.raises(RuntimeError, match=f"already runs with {options.threads} .* start a new process"):
        type(tensorflow)(replace(options, threads=options.threads + 1))


def test_one_unit_without_activation_is_right_on_the_side_of_even_odds(tensorflow):
    scenario = toy(output="linear", units=1, batch=64)
    images, labels = noise(scenario, 64)
    model = tensorflow.build(scenario, check_weights(scenario, 0))
    positive = model.logits(images)[:, 0] > 0
    assert 0 < positive.sum() < 64
    sums = model.train_epoch(Arrays(images, labels), 0, RecordingMeter())
    assert sums.correct == (positive == labels).sum()


@pytest.mark.skipif("KIT_TEST_TUNED" in os.environ, reason="sets its own settings")
def test_each_setting_is_what_runs(tensorflow, options: Options, monkeypatch):
    """What compiles is stock's way on a GPU, and what does not is stock's on the CPU: both are set here."""
    tf = importlib.import_module("tensorflow")
    plain, made = tf.function, []
    monkeypatch.setattr(tf, "function", lambda *given, **named: made.append(named) or plain(*given, **named))

    def built(**settings):
        return type(tensorflow)(replace(options, lane="tuned", settings=settings)).build(SCENARIO, zeros(SCENARIO))

    for way, provider in (("compiled", "XLA"), ("kernels", "TensorFlow kernels")):
        assert built(network=way).placement().provider == provider
        model = built(latency=way, throughput="compiled" if way == "kernels" else "kernels")
        for batch in (1, 8):
            model.predictor(batch)
        assert [named["jit_compile"] for named in made[-2:]] == [way == "compiled", way == "kernels"]
    own = built().placement().training
    assert own.startswith("Keras fit, ")
    assert built(loop="graph").placement().training == own.replace("fit", "graph")
    assert built(optimizer="fused").placement().training not in (own, own.replace("fit", "graph"))


def test_plain_keras_can_be_timed_by_its_steps_alone(tensorflow):
    """As the benchmarks do; what `fit` does before the first and after the last is not theirs."""
    recipes = importlib.import_module("benchmarks.keras_recipes")  # imports TensorFlow
    scenario = toy(batch=8)
    model = recipes.keras.Sequential([recipes.L.Input(scenario.image), recipes.L.Flatten(), recipes.L.Dense(10)])
    model.compile("sgd", recipes.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    images, labels = noise(scenario, 40)
    clock, pause = recipes.StepClock(model), 0.5

    def epoch() -> None:
        time.sleep(pause)
        model.fit(images, labels, batch_size=8, epochs=1, verbose=0)
        time.sleep(pause)

    for _ in range(2):
        began = time.monotonic()
        seconds = clock.seconds(epoch)
        assert 0 < seconds <= time.monotonic() - began - 2 * pause
    assert len(clock._times) == 2 * 5
