"""Time training steps on a batch that is already on the device, at several batch sizes.

The difference to a step's time in training is time spent waiting for data. The trend over batch sizes shows how much
of a step does not depend on the arithmetic. `time_interleaved` also serves other work that is too short for a single
clock reading.
"""

import dataclasses
import time
from collections.abc import Callable, Sequence

import numpy as np

from scenarios.adapter import Adapter, Images, Labels, Model, Photos, TrainSet
from scenarios.contract.result import StepTime, StepTiming
from scenarios.data import part_of
from scenarios.measuring.inference import fill_batch

SAMPLE_S = 0.06
SECONDS = 0.6  # per batch size
MIN_SAMPLES = 5
MAX_RUN_S = 10.0  # after this time per run, two samples suffice

Run = Callable[[int], None]  # does its work that many times, and returns when the device has finished


def time_resident_steps(adapter: Adapter, model: Model, data: TrainSet, batch: int) -> StepTiming:
    """Time resident steps at a quarter, half and all of `batch`. This trains the model: its weights change."""
    images, labels = draw_batch(adapter, data, batch)
    sizes = sorted({max(1, batch // 4), max(1, batch // 2), batch})
    steps = [model.resident_steps(images[:size], labels[:size]) for size in sizes]
    times = time_interleaved(steps, SAMPLE_S, SECONDS)
    return StepTiming([StepTime(size, seconds) for size, seconds in zip(sizes, times, strict=True)])


def draw_batch(adapter: Adapter, data: TrainSet, batch: int) -> tuple[Images, Labels]:
    """Return images of the training set, (batch, H, W, C), and their labels, repeated if the set is too small.

    Photos are decoded by the framework and not augmented.
    """
    part = part_of(data, batch)
    images = adapter.read_photos(dataclasses.replace(part, augment=None)) if isinstance(part, Photos) else part.images
    return fill_batch(images, batch), np.resize(part.labels, batch)


def time_interleaved(runs: Sequence[Run], sample_s: float, seconds: float) -> list[list[float]]:
    """Return samples of the seconds that each run takes to do its work once.

    A sample is the mean over about `sample_s`. The runs take turns, so a machine that becomes slower is slower for all
    of them. Sampling lasts about `seconds` per run, and longer if there are fewer than MIN_SAMPLES.
    """
    counts = [_count_for(run, sample_s) for run in runs]
    rounds: list[list[float]] = []
    spent = 0.0
    while len(rounds) < MIN_SAMPLES or spent < seconds * len(runs):
        rounds.append([_timed(run, count) for run, count in zip(runs, counts, strict=True)])
        spent += sum(rounds[-1])
        if len(rounds) > 1 and spent >= MAX_RUN_S * len(runs):
            break
    columns = zip(*rounds, strict=True)
    return [[sample / count for sample in column] for column, count in zip(columns, counts, strict=True)]


def _count_for(run: Run, sample_s: float) -> int:
    """Return how often a run does its work in about `sample_s`. The first run warms up."""
    run(1)
    count = 1
    while (spent := _timed(run, count)) < sample_s / 4:
        count *= 2
    return max(1, round(count * sample_s / spent))


def _timed(run: Run, count: int) -> float:
    start = time.monotonic()
    run(count)
    return time.monotonic() - start
