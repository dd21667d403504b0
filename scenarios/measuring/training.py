"""Train a model within a budget, and evaluate it."""

import itertools
import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from scenarios.adapter import Arrays, Model, Sums, TrainSet
from scenarios.contract.result import Epoch, Training, Window, with_warm_up, within_epochs
from scenarios.measuring.checkpoints import History
from scenarios.measuring.epoch_files import EpochFiles
from scenarios.measuring.window_meter import WindowMeter
from scenarios.proof import reference
from scenarios.spec import DATASETS, Scenario

EVALUATION_CHUNK = 256


def train(
    model: Model, scenario: Scenario, data: TrainSet, test: Arrays, meter: WindowMeter, files: EpochFiles | None = None
) -> Training:
    """Train until the meter's budget is used up. Only whole epochs are evaluated, each on the test set.

    files: what is written after each whole epoch, outside the timed part. Training continues from its checkpoint, if
    there is one. Raise FloatingPointError if a loss is not finite, and OSError if a file cannot be written.
    """
    history = files.restore(model) if files else History()
    sums = Sums(0, 0.0, 0)
    done = len(history.epochs)
    for index in itertools.count() if meter.budget.epochs is None else range(done, meter.budget.epochs):
        start = time.monotonic()
        sums = model.train_epoch(data, index, meter)
        seconds = time.monotonic() - start
        if sums.images and not math.isfinite(sums.loss):
            raise FloatingPointError(f"the training loss of epoch {index + 1} is not a number: training diverged")
        if meter.whole_epochs:
            test_loss, test_accuracy = evaluate(model, scenario, test)
            epoch = Epoch(
                index=index + 1,
                seconds=seconds,
                images=sums.images,
                train_loss=sums.loss / sums.images,
                train_accuracy=sums.correct / sums.images,
                test_loss=test_loss,
                test_accuracy=test_accuracy,
            )
            steps = math.ceil(sums.images / scenario.batch)
            history = replace(history, epochs=[*history.epochs, epoch], steps=history.steps + steps)
            history = files.write(model, history) if files else history
        elif meter.finished:
            break
    final_loss = sums.loss / max(sums.images, 1)
    return _summary(meter, history, len(data), DATASETS[scenario.dataset].train, final_loss)


def _summary(meter: WindowMeter, history: History, images: int, published: int, final_loss: float) -> Training:
    """Return the result of a finished training.

    history: of its whole epochs. images: in an epoch of this training. published: in an epoch of the published data
    set.
    """
    epochs, boundary_s = history.epochs, None
    slow = with_warm_up(history.resumed_from)
    timed = [epoch for epoch in epochs if epoch.index not in slow] or epochs
    if timed:
        rate = sum(epoch.images for epoch in timed) / sum(epoch.seconds for epoch in timed)
        median = statistics.median(epoch.images / epoch.seconds for epoch in timed)
    else:
        steady = meter.windows[meter.steady_from :]
        measured_s, boundary_s = epoch_time(steady, images)
        rate = images / measured_s
        median = statistics.median(window.images / window.seconds for window in within_epochs(steady))
    projected = not epochs or images != published
    return Training(
        windows=meter.windows,
        steady_from=meter.steady_from,
        images_per_s=rate,
        epoch_s=published / rate if projected else statistics.median(part.seconds for part in timed),
        projected=projected,
        steps=history.steps or meter.steps,
        final_loss=final_loss,
        epochs=epochs,
        median_images_per_s=median,
        boundary_s=boundary_s,
        stall_share=max(0.0, 1 - rate / median),
        resumed_from=history.resumed_from,
        ignored_checkpoints=history.ignored,
    )


def epoch_time(windows: Sequence[Window], images: int) -> tuple[float, float | None]:
    """Return the seconds of an epoch of this many images, and the part of them that an epoch boundary takes.

    A sum over all windows would depend on how many boundaries happen to lie in them: one, several or none of an epoch
    that lasts about as long as the measurement. An epoch has exactly one boundary, and costs

        images * pace + boundary.

    pace: seconds per image in the windows without a boundary, with their stalls. boundary: what the windows take beyond
    that, per boundary. This is a ratio estimate with two strata (Cochran, Sampling Techniques, 1977, chapter 6). For
    whole epochs it is the sum of seconds over the sum of images. If most windows have a boundary, or none has one, the
    second value is None, and the first is computed from all windows.
    """
    seconds, seen = sum(w.seconds for w in windows), sum(w.images for w in windows)
    inner = within_epochs(windows)
    if len(inner) == len(windows):
        return images * seconds / seen, None
    boundaries = sum(window.boundaries for window in windows)
    pace = sum(w.seconds for w in inner) / sum(w.images for w in inner)
    extra = (seconds - pace * seen) / boundaries
    return images * pace + extra, max(0.0, extra)


def evaluate(model: Model, scenario: Scenario, test: Arrays) -> tuple[float, float]:
    """Return the mean loss (nats) and the accuracy over the test set.

    The logits are the framework's. Loss and predictions follow the reference's formulas. Raise FloatingPointError if
    the loss is not finite.
    """
    chunks = range(0, len(test.labels), EVALUATION_CHUNK)
    logits = np.concatenate([model.logits(test.images[i : i + EVALUATION_CHUNK]) for i in chunks])
    loss = float(reference.losses(scenario, logits, test.labels).mean())
    if not math.isfinite(loss):
        raise FloatingPointError("the loss over the test set is not a number: training diverged")
    return loss, float(np.mean(reference.predictions(scenario, logits) == test.labels))
