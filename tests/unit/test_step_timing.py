"""The timing of repeated work and of resident training steps, on a clock that the test moves."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from scenarios.adapter import Arrays, Photos
from scenarios.measuring import step_timing
from scenarios.measuring.step_timing import MIN_SAMPLES, draw_batch, time_interleaved, time_resident_steps
from scenarios.spec import Augment


class Clock:
    """Replaces the module `time`. It stands still until the test moves it."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(step_timing, "time", made)
    return made


@pytest.mark.parametrize("unit_s", [1e-6, 3e-4, 0.01, 0.05, 0.3, 4.0, 60.0])
def test_samples_have_the_requested_length_and_are_enough(clock, unit_s):
    counts = []

    def run(count):
        counts.append(count)
        clock.now += count * unit_s * (100 if len(counts) == 1 else 1)  # the first run compiles

    [times] = time_interleaved([run], sample_s=0.06, seconds=0.4)
    assert times == pytest.approx([unit_s] * len(times), rel=1e-3)
    samples = counts[-len(times) :]
    assert counts[0] == 1
    assert len(set(samples)) == 1
    sample_s = samples[0] * unit_s
    assert sample_s == pytest.approx(max(0.06, unit_s), rel=0.2)
    assert len(times) >= (MIN_SAMPLES if unit_s <= 2 else 2)
    assert len(times) <= max(MIN_SAMPLES, round(0.4 / sample_s) + 1)
    assert sample_s * (len(times) - 1) <= max(10.0, unit_s)


class Resident:
    """A model that keeps its batches. A resident step takes 1 ms, and 1 ms for each image of the batch."""

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
def test_steps_are_timed_at_a_quarter_half_and_all_of_the_batch(clock, batch, sizes):
    images = np.arange(40, dtype=np.float32).reshape(40, 1, 1, 1)  # too few for a batch of 64
    model = Resident(clock)
    resident = time_resident_steps(None, model, Arrays(images, np.arange(40)), batch).resident
    assert [step.batch for step in resident] == sizes
    for step, used in zip(resident, model.batches, strict=True):
        assert step.seconds == pytest.approx([1e-3 * (1 + step.batch)] * len(step.seconds))
        assert len(step.seconds) >= MIN_SAMPLES
        chosen = used.ravel().tolist()
        assert len(set(chosen)) == min(step.batch, 40)
        assert set(chosen) <= set(range(40))


def test_a_machine_that_becomes_slower_is_slower_for_all_batch_sizes(clock):
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
        images, labels = draw_batch(Reader(), photos, batch)
        assert images.shape == (batch, 8, 8, 3)
        assert list(labels) == [5 + number for number in images[:, 0, 0, 0]]
        assert len(set(labels)) == min(batch, 5)
    assert [len(photos.paths) for photos in asked] == [3, 5]
    assert all(photos.augment is None for photos in asked)
