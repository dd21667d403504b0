"""The window meter, on a clock that the test moves."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scenarios.contract.request import Budget
from scenarios.measuring import window_meter
from scenarios.measuring.window_meter import WINDOW_S, WindowMeter


class Clock:
    """A clock that stands still until the test moves it."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def train(
    meter: WindowMeter, clock: Clock, epoch_steps: int, step_s: float, batch: int = 32, epochs: int = 1000
) -> int:
    """Run the loop of an adapter. Return the number of steps. The first step takes 50 times as long."""
    done = 0
    for _ in range(epochs):
        clock.now += 0.1  # the preparation of an epoch belongs to no window
        meter.begin()
        for _ in range(epoch_steps):
            clock.now += step_s * (50 if done == 0 else 1)
            done += 1
            if meter.step(batch) and not meter.mark():
                return done
    return done


def is_full(window, epoch_steps):
    return window.seconds >= WINDOW_S / 2 or window.steps == epoch_steps


@settings(max_examples=60)
@given(
    step_s=st.floats(1e-3, 3.0),
    epoch_steps=st.integers(1, 2000),
    seconds=st.floats(0.5, 10.0),
)
def test_a_budget_of_seconds_is_spent_on_steady_windows_with_the_true_speed(step_s, epoch_steps, seconds):
    clock = Clock()
    meter = WindowMeter(Budget(seconds=seconds), epoch_steps, clock)
    train(meter, clock, epoch_steps, step_s, epochs=20_000 // epoch_steps + 10)

    assert meter.windows[0].steps == 1
    assert meter.first_step_s == pytest.approx(50 * step_s)
    assert meter.steady_from >= 1
    full_from = next(i for i, w in enumerate(meter.windows) if i and is_full(w, epoch_steps))
    full_s = sum(w.seconds for w in meter.windows[full_from:])
    steady_s = sum(w.seconds for w in meter.windows[meter.steady_from :])
    assert meter.steady_from >= full_from
    assert steady_s >= seconds - 1e-9 or full_s >= 2 * seconds - 1e-9
    assert full_s <= 2 * seconds + meter.windows[-1].seconds
    for window in meter.windows[1:]:
        assert window.seconds == pytest.approx(window.steps * step_s, rel=1e-6)
        assert window.images == 32 * window.steps
        assert window.steps == 1 or window.seconds <= 2.1 * WINDOW_S


@given(epoch_steps=st.integers(1, 50), steps=st.integers(1, 60))
def test_a_budget_of_steps_is_exact(epoch_steps, steps):
    clock = Clock()
    meter = WindowMeter(Budget(steps=steps), epoch_steps, clock)
    assert train(meter, clock, epoch_steps, 0.01) == steps
    assert meter.steps == steps
    assert 0 <= meter.steady_from < len(meter.windows)
    assert meter.finished


def test_whole_epochs_have_one_window_each_after_the_first_step():
    clock = Clock()
    meter = WindowMeter(Budget(epochs=3), 10, clock)
    assert train(meter, clock, 10, 0.01, epochs=3) == 30
    assert [w.steps for w in meter.windows] == [1, 9, 10, 10]
    assert meter.steady_from == 1


def test_a_window_never_spans_two_epochs():
    clock = Clock()
    meter = WindowMeter(Budget(seconds=1.0), 7, clock)
    train(meter, clock, 7, 0.001)
    assert all(w.seconds == pytest.approx(w.steps * 0.001) for w in meter.windows[1:])
    assert max(w.steps for w in meter.windows) <= 7


def test_the_search_for_the_end_of_the_warm_up_belongs_to_no_window(monkeypatch):
    clock = Clock()

    def search(rates):
        clock.now += 1.0
        return len(rates) // 2  # it searches until twice the budget is measured

    monkeypatch.setattr(window_meter, "truncation_point", search)
    meter = WindowMeter(Budget(seconds=2.0), 7, clock)
    train(meter, clock, 7, 0.1)
    assert clock.now > 10
    assert all(window.seconds == pytest.approx(window.steps * 0.1) for window in meter.windows[1:])


@pytest.mark.parametrize(("warmup_s", "seed"), [(0.0, 1), (1.0, 2), (3.0, 3)])
def test_steady_windows_begin_after_the_warm_up_and_last_as_long_as_the_budget(warmup_s, seed):
    """Steps take twice as long during the warm-up, and every step a random 10% more or less."""
    clock, random = Clock(), np.random.default_rng(seed)
    meter = WindowMeter(Budget(seconds=6.0), 2000, clock)
    warm_at = math.inf
    while True:
        meter.begin()
        for step in range(2000):
            clock.now += (0.02 if clock.now < warm_at else 0.01) * random.uniform(0.9, 1.1)
            if step == 0 and warm_at == math.inf:
                warm_at = clock.now + warmup_s
            if meter.step(64) and not meter.mark():
                break
        else:
            continue
        break
    steady = meter.windows[meter.steady_from :]
    assert steady[0].start_at >= warm_at - 1.5 * WINDOW_S  # a window of slow steps only is never steady
    assert steady[0].start_at <= warm_at + 4 * WINDOW_S
    assert 6.0 <= sum(w.seconds for w in steady) <= 6.0 + WINDOW_S + 4 * WINDOW_S
    assert np.median([w.images / w.seconds for w in steady]) == pytest.approx(6400, rel=0.02)


def test_training_that_never_settles_is_measured_for_twice_the_budget():
    """Every step takes 5% less time than the one before, so the warm-up always ends at the half."""
    clock = Clock()
    meter = WindowMeter(Budget(seconds=6.0), 1000, clock)
    meter.begin()
    for step in range(1000):
        clock.now += 0.95**step
        if meter.step(1) and not meter.mark():
            break
    full_s = sum(w.seconds for w in meter.windows[1:])
    assert sum(w.seconds for w in meter.windows[meter.steady_from :]) < 6.0
    assert 12.0 - 1e-9 <= full_s <= 12.0 + meter.windows[-1].seconds
