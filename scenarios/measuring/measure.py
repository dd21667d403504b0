"""Clocks around training and inference. Raw samples only; what they mean is decided by the orchestrator's analysis.

All clock readings are `time.monotonic`, which host and containers share, so that host samples can be merged by time.
"""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from scenarios.adapter import Images, Labels, Model, Sums, TrainSet
from scenarios.contract.request import Budget
from scenarios.contract.result import Epoch, Inference, Training, Window
from scenarios.measuring import steady
from scenarios.proof import reference
from scenarios.spec import DATASETS, Scenario

WINDOW_S = 0.25  # long enough that one clock reading and one synchronisation vanish in it
EVALUATION_CHUNK = 256
MIN_STRETCHES = 5
MAX_STRETCHES_S = 10.0  # what takes longer has fewer than MIN_STRETCHES, but two

Clock = Callable[[], float]


class WindowMeter:
    """The `Meter` of the worker: cuts training into windows and says when it is enough.

    The first window is the first step alone (compilation, allocation). Then windows grow, at most doubling, to
    `WINDOW_S`; with `whole_epochs` there is one window an epoch. A window never spans two epochs. Steady is what
    `steady.truncation_point` leaves of the rates from the first window of full length on. Training ends when that
    lasts `budget.seconds`, at the latest when twice as much has been measured, or after `budget.steps`.
    """

    def __init__(self, budget: Budget, epoch_steps: int, clock: Clock = time.monotonic) -> None:
        self.windows: list[Window] = []
        self.steps = 0
        self.first_step_s = 0.0
        self.budget = budget
        self._epoch_steps = epoch_steps
        self._clock = clock
        self._start = math.nan
        self._epoch_step = 0
        self._pending_steps = 0
        self._pending_images = 0
        self._size = 1
        self._left = self._window_steps()  # until the window ends; counted down, since each call of `step` is timed
        self._full_from: int | None = None
        self._full_s = 0.0  # since then

    @property
    def whole_epochs(self) -> bool:
        """Whether epochs, not windows, are what is measured."""
        return self.budget.epochs is not None

    @property
    def steady_from(self) -> int:
        """Index of the first window that counts. Whole epochs: the first after the first step. Where a launch was
        too short for a window of full length (smoke), the later half; where there is only the first step, that."""
        if self.whole_epochs:
            return min(1, len(self.windows) - 1)
        if self._full_from is None:
            return len(self.windows) // 2
        return self._full_from + steady.truncation_point(
            [w.images / w.seconds for w in self.windows[self._full_from :]]
        )

    @property
    def finished(self) -> bool:
        """Whether the budget of steps or steady seconds is used up."""
        if self.budget.steps is not None and self.steps >= self.budget.steps:
            return True
        if self.budget.seconds is None or self._full_from is None or self._full_s < self.budget.seconds:
            return False
        steady_s = sum(w.seconds for w in self.windows[self.steady_from :])
        return steady_s >= self.budget.seconds or self._full_s >= 2 * self.budget.seconds

    def begin(self) -> None:
        """A new epoch starts; what was pending from the last one is dropped."""
        self._epoch_step = self._pending_steps = self._pending_images = 0
        self._left = self._window_steps()
        self._start = self._clock()

    def due(self) -> int:
        """Steps until the window ends."""
        return self._left

    def _window_steps(self) -> int:
        """Steps of the window that begins now."""
        ends = [self._size]
        if self.budget.steps is not None:
            ends.append(self.budget.steps - self.steps)
        if self.whole_epochs:
            ends.append(self._epoch_steps - self._epoch_step)
        return min(ends)

    def step(self, images: int) -> bool:
        """Count one step; True where a window ends here."""
        self.steps += 1
        self._epoch_step += 1
        self._pending_steps += 1
        self._pending_images += images
        self._left -= 1
        return self._left <= 0

    def mark(self) -> bool:
        """Close the window; False where the budget is used up."""
        now = self._clock()
        window = Window(self._start, now - self._start, self._pending_steps, self._pending_images)
        self.windows.append(window)
        if len(self.windows) == 1:
            self.first_step_s = window.seconds
        elif self._full_from is None and (window.seconds >= WINDOW_S / 2 or window.steps == self._epoch_steps):
            self._full_from = len(self.windows) - 1
        if self._full_from is not None:
            self._full_s += window.seconds
        self._size = self._next_size(window)
        self._pending_steps = self._pending_images = 0
        self._left = self._window_steps()
        going_on = not self.finished
        self._start = self._clock()  # last: the search for the end of the warm-up is no part of a window
        return going_on

    def _next_size(self, window: Window) -> int:
        if self.whole_epochs:
            return self._epoch_steps
        per_step = max(window.seconds / window.steps, 1e-9)
        return max(1, min(round(WINDOW_S / per_step), 2 * window.steps, self._epoch_steps))


@dataclass(frozen=True)
class TestSet:
    """Decoded test images, (N, H, W, C), and their labels."""

    __test__ = False  # not a pytest class

    images: Images
    labels: Labels


def train(model: Model, scenario: Scenario, data: TrainSet, test: TestSet, meter: WindowMeter) -> Training:
    """Train within the meter's budget and describe it. Epochs are evaluated only where whole epochs are asked for."""
    epochs: list[Epoch] = []
    sums = Sums(0, 0.0, 0)
    wanted = meter.budget.epochs
    for index in itertools.count() if wanted is None else range(wanted):
        start = time.monotonic()
        sums = model.train_epoch(data, index, meter)
        seconds = time.monotonic() - start
        if sums.images and not math.isfinite(sums.loss):
            raise FloatingPointError(f"the training loss of epoch {index + 1} is not a number: training diverged")
        if not meter.whole_epochs:
            if meter.finished:
                break
            continue
        test_loss, test_accuracy = evaluate(model, scenario, test)
        epochs.append(
            Epoch(
                index=index + 1,
                seconds=seconds,
                images=sums.images,
                train_loss=sums.loss / sums.images,
                train_accuracy=sums.correct / sums.images,
                test_loss=test_loss,
                test_accuracy=test_accuracy,
            )
        )
    return _describe(scenario, data, meter, epochs, sums)


def evaluate(model: Model, scenario: Scenario, test: TestSet) -> tuple[float, float]:
    """(mean loss in nats, accuracy) over the test set, from the framework's logits by the reference's formulas."""
    chunks = range(0, len(test.labels), EVALUATION_CHUNK)
    logits = np.concatenate([model.logits(test.images[i : i + EVALUATION_CHUNK]) for i in chunks])
    loss = reference.losses(scenario, logits, test.labels).mean()
    return float(loss), float(np.mean(reference.predictions(scenario, logits) == test.labels))


def infer(model: Model, scenario: Scenario, test: TestSet, seconds: float) -> Inference:
    """Latency at batch 1 and throughput at the scenario's inference batch, each for about `seconds`."""
    latency_ms = _latencies(model.predictor(1), test.images, seconds)
    p50, p90, p99 = (float(np.percentile(latency_ms, q)) for q in (50, 90, 99))
    batch = scenario.inference_batch
    windows = _throughput(model.predictor(batch), batch_of(test.images, batch), seconds)
    loss, accuracy = evaluate(model, scenario, test)
    return Inference(
        latency_ms=latency_ms,
        p50_ms=p50,
        p90_ms=p90,
        p99_ms=p99,
        batch=batch,
        windows=windows,
        images_per_s=statistics.median(w.images / w.seconds for w in windows),
        test_images=len(test.labels),
        test_loss=loss,
        test_accuracy=accuracy,
    )


def _describe(scenario: Scenario, data: TrainSet, meter: WindowMeter, epochs: list[Epoch], last: Sums) -> Training:
    published = DATASETS[scenario.dataset].train
    if epochs:
        timed = epochs[1:] or epochs
        rate = statistics.median(e.images / e.seconds for e in timed)
        epoch_s = statistics.median(e.seconds for e in timed)
    else:
        rate = statistics.median(w.images / w.seconds for w in meter.windows[meter.steady_from :])
        epoch_s = published / rate
    projected = not epochs or len(data) != published
    return Training(
        windows=meter.windows,
        steady_from=meter.steady_from,
        images_per_s=rate,
        epoch_s=published / rate if projected else epoch_s,
        projected=projected,
        epoch_images=published,
        steps=meter.steps,
        final_loss=last.loss / max(last.images, 1),
        epochs=epochs,
    )


def _latencies(call: Callable[[Images], object], images: Images, seconds: float) -> list[float]:
    singles = [np.ascontiguousarray(images[i : i + 1]) for i in range(min(32, len(images)))]
    warm_until = time.monotonic() + seconds / 4
    call(singles[0])
    while time.monotonic() < warm_until:
        call(singles[0])
    samples: list[float] = []
    end = time.monotonic() + seconds
    while len(samples) < 5 or (time.monotonic() < end and len(samples) < 2000):
        single = singles[len(samples) % len(singles)]
        start = time.monotonic()
        call(single)
        samples.append((time.monotonic() - start) * 1e3)
    return samples


def _throughput(call: Callable[[Images], object], images: Images, seconds: float) -> list[Window]:
    call(images)
    start = time.monotonic()
    call(images)
    calls = max(1, round(0.05 / max(time.monotonic() - start, 1e-6)))  # a window lasts 50 ms or one call
    windows: list[Window] = []
    end = time.monotonic() + seconds
    while len(windows) < 3 or time.monotonic() < end:
        start = time.monotonic()
        for _ in range(calls):
            call(images)
        windows.append(Window(start, time.monotonic() - start, calls, calls * len(images)))
    return windows


def batch_of(images: Images, batch: int) -> Images:
    """The first `batch` images, (batch, H, W, C); from the start again where there are fewer."""
    return np.ascontiguousarray(np.resize(images, (batch, *images.shape[1:])))


def time_stretches(run: Callable[[int], None], stretch_s: float, seconds: float) -> list[float]:
    """Time what `run(count)` does `count` times and then waits for: seconds of one, each the mean over a stretch of
    about `stretch_s`; MIN_STRETCHES and more until they last `seconds` together."""
    return time_by_turns([run], stretch_s, seconds)[0]


def time_by_turns(runs: Sequence[Callable[[int], None]], stretch_s: float, seconds: float) -> list[list[float]]:
    """`time_stretches` of each of the runs, which take turns, so that a machine that grows slower meanwhile is slower
    for all of them; `seconds` are what each gets on average."""
    counts = [_stretch(run, stretch_s) for run in runs]
    rounds: list[list[float]] = []
    spent = 0.0
    while len(rounds) < MIN_STRETCHES or spent < seconds * len(runs):
        rounds.append([_timed(run, count) for run, count in zip(runs, counts, strict=True)])
        spent += sum(rounds[-1])
        if len(rounds) > 1 and spent >= MAX_STRETCHES_S * len(runs):
            break
    columns = zip(*rounds, strict=True)
    return [[stretch / count for stretch in column] for column, count in zip(columns, counts, strict=True)]


def _stretch(run: Callable[[int], None], stretch_s: float) -> int:
    """How often to do it for about `stretch_s`: one run warms up, then the number is doubled until it tells."""
    run(1)
    count = 1
    while (spent := _timed(run, count)) < stretch_s / 4:
        count *= 2
    return max(1, round(count * stretch_s / spent))


def _timed(run: Callable[[int], None], count: int) -> float:
    start = time.monotonic()
    run(count)
    return time.monotonic() - start
