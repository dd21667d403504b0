"""The window meter: what it cuts, what it calls steady, when it stops; on a clock that the test moves."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scenarios.contract import Budget
from scenarios.measure import WARMUP_S, WINDOW_S, WindowMeter


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def train(
    meter: WindowMeter, clock: Clock, epoch_steps: int, step_s: float, batch: int = 32, epochs: int = 1000
) -> int:
    """Run the loop that every adapter runs; returns the number of steps done. The first step takes 50 times as long."""
    done = 0
    for _ in range(epochs):
        clock.now += 0.1  # set-up between epochs belongs to no window
        meter.begin()
        for _ in range(epoch_steps):
            clock.now += step_s * (50 if done == 0 else 1)
            done += 1
            if meter.step(batch) and not meter.mark():
                return done
    return done


@settings(max_examples=60, deadline=None)
@given(
    step_s=st.floats(1e-3, 3.0),
    epoch_steps=st.integers(1, 2000),
    seconds=st.floats(0.5, 10.0),
)
def test_a_budget_of_seconds_is_spent_on_steady_windows_that_hold_the_true_speed(step_s, epoch_steps, seconds):
    clock = Clock()
    meter = WindowMeter(Budget(seconds=seconds), epoch_steps, clock)
    train(meter, clock, epoch_steps, step_s, epochs=20_000 // epoch_steps + 10)

    steady = meter.windows[meter.steady_from :]
    assert sum(w.seconds for w in steady) >= seconds - 1e-9
    assert sum(w.seconds for w in steady[:-1]) < seconds  # stops at the first moment that is enough
    assert meter.windows[0].steps == 1
    assert meter.first_step_s == pytest.approx(50 * step_s)
    assert meter.steady_from >= 1
    assert steady[0].start_at - (meter.windows[0].start_at + meter.first_step_s) >= WARMUP_S - 1e-9
    for window in meter.windows[1:]:
        assert window.seconds == pytest.approx(window.steps * step_s, rel=1e-6)
        assert window.images == 32 * window.steps
        assert window.steps == 1 or window.seconds <= 2.1 * WINDOW_S


@given(epoch_steps=st.integers(1, 50), steps=st.integers(1, 60))
def test_a_budget_of_steps_is_kept_to_the_step(epoch_steps, steps):
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
