"""The window meter, on a clock that the test moves."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scenarios.contract.request import Budget
from scenarios.contract.result import Window
from scenarios.measuring import window_meter
from scenarios.measuring.training import epoch_time
from scenarios.measuring.window_meter import MAX_BUDGETS, MIN_STEADY, WINDOW_S, WindowMeter


class Clock:
    """A clock that stands still until the test moves it."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def train(
    meter: WindowMeter,
    clock: Clock,
    epoch_steps: int,
    step_s: float,
    *,
    boundary_s: float = 0.0,
    batch: int = 32,
    epochs: int = 20_000,
) -> int:
    """Run the loops of `training.train` and of an adapter. Return the number of steps.

    The first step takes 50 times as long. boundary_s: of each epoch, half before its first batch and half after its
    last step.
    """
    done = 0
    for _ in range(epochs):
        meter.begin()
        clock.now += boundary_s / 2
        for _ in range(epoch_steps):
            clock.now += step_s * (50 if done == 0 else 1)
            done += 1
            if meter.step(batch) and not meter.mark():
                break
        clock.now += boundary_s / 2
        if meter.finished:
            break
    return done


@settings(max_examples=60)
@given(
    step_s=st.floats(1e-3, 3.0),
    epoch_steps=st.integers(1, 2000),
    seconds=st.floats(0.5, 10.0),
)
def test_a_budget_of_seconds_is_spent_on_steady_windows_with_the_true_speed(step_s, epoch_steps, seconds):
    clock = Clock()
    meter = WindowMeter(Budget(seconds=seconds), epoch_steps, clock)
    steps = train(meter, clock, epoch_steps, step_s)

    assert meter.finished
    assert sum(w.steps for w in meter.windows) == steps
    assert meter.windows[0].steps == 1
    assert meter.first_step_s == pytest.approx(50 * step_s)
    assert meter.steady_from >= 1
    full_from = next(i for i, w in enumerate(meter.windows) if i and w.seconds >= WINDOW_S / 2)
    full_s = sum(w.seconds for w in meter.windows[full_from:])
    steady = meter.windows[meter.steady_from :]
    steady_s = sum(w.seconds for w in steady)
    assert meter.steady_from >= full_from
    assert steady_s >= seconds - 1e-9 or full_s >= 2 * seconds - 1e-9
    assert len(steady) >= MIN_STEADY or full_s >= MAX_BUDGETS * seconds - 1e-9
    cut = meter.windows[-1].seconds  # the window after an epoch that was ended early
    assert full_s <= max(2 * seconds, 2 * MIN_STEADY * max(step_s, WINDOW_S)) + meter.windows[-2].seconds + cut
    assert full_s <= MAX_BUDGETS * seconds + meter.windows[-2].seconds + cut
    assert any(w.boundaries for w in steady)
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


def test_windows_follow_each_other_without_a_gap_and_contain_all_images_of_all_epochs():
    clock = Clock()
    meter = WindowMeter(Budget(seconds=3.0), 7, clock)
    steps = train(meter, clock, 7, 0.01, boundary_s=0.1)
    assert sum(w.images for w in meter.windows) == 32 * steps
    for window, following in itertools.pairwise(meter.windows):
        assert following.start_at == pytest.approx(window.start_at + window.seconds)
    assert sum(w.boundaries for w in meter.windows) == (steps - 1) // 7


@pytest.mark.parametrize("epoch_s", [0.03, 0.4, 1.0, 2.9, 3.1, 4.0, 40.0])
@pytest.mark.parametrize("boundary_s", [0.0, 0.4])
def test_the_speed_is_that_of_whole_epochs_however_long_they_are(epoch_s, boundary_s):
    """A sum over the steady windows would be up to 13% too fast or too slow, and windows within epochs 50%."""
    clock, steps = Clock(), round(epoch_s / 0.01)
    meter = WindowMeter(Budget(seconds=3.0), steps, clock)
    train(meter, clock, steps, 0.01, boundary_s=boundary_s)
    seconds, found = epoch_time(meter.windows[meter.steady_from :], 32 * steps)
    assert seconds == pytest.approx(0.01 * steps + boundary_s, rel=0.05)
    assert found is None or found == pytest.approx(boundary_s, abs=1e-6)


def test_a_long_epoch_ends_early_so_that_one_boundary_is_measured():
    clock = Clock()
    meter = WindowMeter(Budget(seconds=3.0), 4000, clock)
    assert train(meter, clock, 4000, 0.01, boundary_s=0.4) < 400
    assert [w.boundaries for w in meter.windows[-2:]] == [0, 1]
    assert sum(w.boundaries for w in meter.windows) == 1


@pytest.mark.parametrize(("step_s", "windows"), [(1.0, 5), (6.0, 5), (20.0, 2)])
def test_slow_steps_are_measured_until_there_are_five_steady_windows_or_ten_budgets(step_s, windows):
    clock = Clock()
    meter = WindowMeter(Budget(seconds=3.0), 4, clock)
    train(meter, clock, 4, step_s)
    assert len(meter.windows[meter.steady_from :]) in (windows, windows + 1)  # one more with a boundary


def test_windows_with_a_boundary_do_not_hide_the_warm_up():
    """The first 40 steps take twice as long. Of the others, every 50th is followed by a long boundary."""
    clock = Clock()
    meter = WindowMeter(Budget(seconds=6.0), 50, clock)
    step = 0
    while not meter.finished:
        meter.begin()
        clock.now += 0.5
        for _ in range(50):
            clock.now += 0.04 if step < 40 else 0.02
            step += 1
            if meter.step(1) and not meter.mark():
                break
    steady = meter.windows[meter.steady_from :]
    assert sum(w.steps for w in meter.windows[: meter.steady_from]) in range(38, 60)
    assert sum(w.seconds for w in steady) <= 7.0


def test_no_time_and_no_image_of_windows_is_counted_twice_by_the_epoch_time():
    plain, boundary = Window(0.0, 0.25, 5, 50), Window(0.25, 0.65, 5, 50, boundaries=1)
    assert epoch_time([plain] * 3, 1000) == (pytest.approx(5.0), None)
    assert epoch_time([plain, plain, plain, boundary], 1000) == (pytest.approx(5.4), pytest.approx(0.4))
    assert epoch_time([plain, boundary], 100) == (pytest.approx(0.9), pytest.approx(0.4))
    assert epoch_time([boundary, boundary, plain], 150) == (pytest.approx(1.55), None)


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
