"""Train a model within a budget, and evaluate it."""

import itertools
import math
import statistics
import time

import numpy as np

from scenarios.adapter import Arrays, Model, Sums, TrainSet
from scenarios.contract.result import Epoch, Training
from scenarios.measuring.window_meter import WindowMeter
from scenarios.proof import reference
from scenarios.spec import DATASETS, Scenario

EVALUATION_CHUNK = 256


def train(model: Model, scenario: Scenario, data: TrainSet, test: Arrays, meter: WindowMeter) -> Training:
    """Train until the meter's budget is used up. Only whole epochs are evaluated, each on the test set.

    Raise FloatingPointError if the training loss is not finite.
    """
    epochs: list[Epoch] = []
    sums = Sums(0, 0.0, 0)
    for index in itertools.count() if meter.budget.epochs is None else range(meter.budget.epochs):
        start = time.monotonic()
        sums = model.train_epoch(data, index, meter)
        seconds = time.monotonic() - start
        if sums.images and not math.isfinite(sums.loss):
            raise FloatingPointError(f"the training loss of epoch {index + 1} is not a number: training diverged")
        if meter.whole_epochs:
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
        elif meter.finished:
            break
    published = DATASETS[scenario.dataset].train
    timed = epochs[1:] or epochs or meter.windows[meter.steady_from :]
    rate = statistics.median(part.images / part.seconds for part in timed)
    projected = not epochs or len(data) != published
    return Training(
        windows=meter.windows,
        steady_from=meter.steady_from,
        images_per_s=rate,
        epoch_s=published / rate if projected else statistics.median(part.seconds for part in timed),
        projected=projected,
        steps=meter.steps,
        final_loss=sums.loss / max(sums.images, 1),
        epochs=epochs,
    )


def evaluate(model: Model, scenario: Scenario, test: Arrays) -> tuple[float, float]:
    """Return the mean loss (nats) and the accuracy over the test set.

    The logits are the framework's. Loss and predictions follow the reference's formulas.
    """
    chunks = range(0, len(test.labels), EVALUATION_CHUNK)
    logits = np.concatenate([model.logits(test.images[i : i + EVALUATION_CHUNK]) for i in chunks])
    loss = reference.losses(scenario, logits, test.labels).mean()
    return float(loss), float(np.mean(reference.predictions(scenario, logits) == test.labels))
