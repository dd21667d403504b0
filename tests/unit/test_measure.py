"""The window meter, the timing of stretches and the step_timing of a step, on a clock that the test moves."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from scenarios.adapter import Arrays, Photos
from scenarios.contract.request import Budget
from scenarios.measuring import measure
from scenarios.measuring.measure import MIN_STRETCHES, WINDOW_S, WindowMeter, time_stretches
from scenarios.measuring.step_timing import a_batch, time_resident_steps
from scenarios.spec import Augment


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    monotonic = __call__  # stands in for the module `time`


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


def is_full(window, epoch_steps):
    return window.seconds >= WINDOW_S / 2 or window.steps == epoch_steps


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


def test_the_search_for_the_end_of_the_warm_up_is_in_no_window(monkeypatch):
    clock = Clock()

    def search(rates):
        clock.now += 1.0
        return len(rates) // 2  # which keeps it searching until twice the budget is measured

    monkeypatch.setattr(measure.steady, "truncation_point", search)
    meter = WindowMeter(Budget(seconds=2.0), 7, clock)
    train(meter, clock, 7, 0.1)
    assert clock.now > 10
    assert all(window.seconds == pytest.approx(window.steps * 0.1) for window in meter.windows[1:])


@pytest.mark.parametrize(("warmup_s", "seed"), [(0.0, 1), (1.0, 2), (3.0, 3)])
def test_the_longer_the_warm_up_the_later_is_steady_and_the_seconds_after_it_are_the_budget(warmup_s, seed):
    """Steps take twice as long during the warm-up, and every step a random 10 % more or less."""
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
    assert steady[0].start_at >= warm_at - 1.5 * WINDOW_S  # a window that is slow to its end is never steady
    assert steady[0].start_at <= warm_at + 4 * WINDOW_S
    assert 6.0 <= sum(w.seconds for w in steady) <= 6.0 + WINDOW_S + 4 * WINDOW_S
    assert np.median([w.images / w.seconds for w in steady]) == pytest.approx(6400, rel=0.02)


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(measure, "time", made)
    return made


@pytest.mark.parametrize("unit_s", [1e-6, 3e-4, 0.01, 0.05, 0.3, 4.0, 60.0])
def test_stretches_are_of_the_length_asked_for_and_enough(clock, unit_s):
    counts = []

    def run(count):
        counts.append(count)
        clock.now += count * unit_s * (100 if len(counts) == 1 else 1)  # the first run compiles

    times = time_stretches(run, stretch_s=0.06, seconds=0.4)
    assert times == pytest.approx([unit_s] * len(times), rel=1e-3)
    stretches = counts[-len(times) :]
    assert counts[0] == 1
    assert len(set(stretches)) == 1
    stretch_s = stretches[0] * unit_s
    assert stretch_s == pytest.approx(max(0.06, unit_s), rel=0.2)
    assert len(times) >= (MIN_STRETCHES if unit_s <= 2 else 2)
    assert len(times) <= max(MIN_STRETCHES, round(0.4 / stretch_s) + 1)
    assert stretch_s * (len(times) - 1) <= max(10.0, unit_s)


class Resident:
    """A model that keeps what its resident steps are made of: 1 ms, and 1 ms for each image of the batch."""

    def __init__(self, clock, drift=1.0):
        self.clock = clock
        self.drift = drift
        self.slower = 1.0
        self.batches = []

    def resident_steps(self, images, labels):
        assert len(images) == len(labels)
        self.batches.append(images)

        def run(count):
            self.clock.now += count * 1e-3 * (1 + len(images)) * self.slower
            self.slower *= self.drift

        return run


@pytest.mark.parametrize(("batch", "sizes"), [(64, [16, 32, 64]), (3, [1, 3]), (2, [1, 2]), (1, [1]), (6, [1, 3, 6])])
def test_a_step_is_dissected_at_a_quarter_half_and_all_of_its_batch(clock, batch, sizes):
    images = np.arange(40, dtype=np.float32).reshape(40, 1, 1, 1)  # too few for a batch of 64
    model = Resident(clock)
    resident = time_resident_steps(None, model, Arrays(images, np.arange(40)), batch).resident
    assert [step.batch for step in resident] == sizes
    for step, used in zip(resident, model.batches, strict=True):
        assert step.seconds == pytest.approx([1e-3 * (1 + step.batch)] * len(step.seconds))
        assert len(step.seconds) >= MIN_STRETCHES
        chosen = used.ravel().tolist()
        assert len(set(chosen)) == min(step.batch, 40)
        assert set(chosen) <= set(range(40))


def test_a_machine_that_grows_slower_does_so_for_all_batch_sizes(clock):
    images = np.zeros((64, 1, 1, 1), np.float32)
    resident = time_resident_steps(None, Resident(clock, drift=1.01), Arrays(images, np.arange(64)), 64).resident
    relative = [np.median(step.seconds) / (1 + step.batch) for step in resident]
    assert max(relative) / min(relative) < 1.01**3


def test_the_batch_of_a_photo_set_is_decoded_by_the_framework_and_not_augmented(tmp_path):
    for number in range(5):
        Image.new("RGB", (8, 8)).save(tmp_path / f"{number}.jpg")
    paths = [tmp_path / f"{number}.jpg" for number in range(5)]
    asked = []

    class Reader:
        def read_photos(self, photos):
            asked.append(photos)
            return np.stack([np.full((8, 8, 3), float(path.stem), np.float32) for path in photos.paths])

    photos = Photos(paths, np.array([5, 6, 7, 8, 9]), (8, 8), Augment())
    for batch in (3, 7):
        images, labels = a_batch(Reader(), photos, batch)
        assert images.shape == (batch, 8, 8, 3)
        assert list(labels) == [5 + number for number in images[:, 0, 0, 0]]
        assert len(set(labels)) == min(batch, 5)
    assert [len(photos.paths) for photos in asked] == [3, 5]
    assert all(photos.augment is None for photos in asked)


def test_what_never_settles_is_measured_for_twice_the_budget():
    """Every step takes 5 % less time than the one before: the cut stays at the half, which lasts ever less."""
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
