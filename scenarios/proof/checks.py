"""Prove, before anything is measured, that this adapter in this process computes the scenario's function.

The full proof compares with `reference.py`, and with formulas:

weights     The weights read back are the loaded ones.
logits      On noise, which also gives loss and gradients: of one epoch with a single batch of the cell's size, by SGD
            with learning rate 1, so that the change of a weight is its gradient.
photos      The pixels that evaluation reads from JPEG files of several sizes.
output      The output of the frozen predictor at the batches that inference measures.
loop        The weights after an epoch of the timed loop.
optimizer   The updates of the scenario's optimizer, in the form that the adapter declares. The gradients are the
            framework's own, so that their rounding does not count twice, or exactly zero.
feed        What an epoch trains on: each image once, in another order in each epoch, augmented as specified.
dropout     The rate and the scaling of each Dropout layer.

Only the last two use randomness. A later launch of the same cell checks weights, logits, photos and loop. Of several
tensors, a check names the worst. Photos for training are larger than the network's input, so `loop` and `feed` also
depend on how they are scaled.
"""

import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from scenarios.adapter import Adapter, Arrays, Model, Photos, TrainSet
from scenarios.contract.cell import Precision
from scenarios.contract.result import Check, Proof
from scenarios.proof import dropout, feed, loop, optimizer, photos, reference
from scenarios.proof.case import Case, Expected, make_case
from scenarios.proof.distances import compared, judged, of_largest, relative, relative_to_one, rounding
from scenarios.proof.loop import LOSS_TOLERANCE
from scenarios.proof.reference import Array, Values
from scenarios.spec import DATASETS, Scenario, Sgd
from scenarios.weights import Weights

# Measured in fp32 with three frameworks and ten seeds (the two networks at 128x128: one seed): the errors are at most
# 4e-6 for logits, 7e-7 for losses, 3e-3 for gradients and 3e-4 for updates. A learning rate
# that is 1% off has an error of 1e-2.
LOGITS_TOLERANCE = {"fp32": 5e-4, "tf32": 2e-3, "bf16": 3e-2}  # fp32: relative to the largest; else relative L2
# Rounding to bf16 adds up over the layers of the deep network: errors are up to 0.05 for logits and 0.03 for losses.
DEEP_LOGITS_TOLERANCE = LOGITS_TOLERANCE | {"bf16": 1e-1}
DEEP_LOSS_TOLERANCE = LOSS_TOLERANCE | {"bf16": 8e-2}
GRADIENT_TOLERANCE = {"fp32": 1e-2, "tf32": 5e-2, "bf16": 1.5e-1}  # relative L2
DEEP_GRADIENT_TOLERANCE = GRADIENT_TOLERANCE | {"bf16": 5e-1}
SIZE_TOLERANCE = {"fp32": 2e-2, "tf32": 5e-2, "bf16": 1.5e-1}  # relative difference of the norms of gradients


def prove(
    adapter: Adapter, scenario: Scenario, seed: int, precision: Precision, cache: Path | None, *, full: bool = True
) -> Proof:
    """Compare an adapter with the reference. Exceptions of the adapter pass through.

    cache: file of reference values. It is used if it has the values of this case. Otherwise it is replaced if computing
    them took over MIN_CACHED_S. Raise OSError if it cannot be written. full: False to check only weights, logits,
    photos and loop.
    """
    started = time.monotonic()
    with tempfile.TemporaryDirectory(dir=cache and cache.parent) as name:
        folder = Path(name)
        case, train = make_loop(scenario, seed, folder)
        expected = Expected(case, cache)
        own = adapter.build(case.scenario, case.weights)
        values = expected.function() if full else None  # first, because it has the logits, too
        checks = [_weights_check(own, case.weights), _logits_check(own, case, expected.logits(), precision)]
        checks += photos.checks(adapter, scenario, seed, folder)
        checks += loop.checks(own, case, train, expected.loop(adapter.optimizer_form), precision)
        if values:
            sgd = adapter.build(replace(case.scenario, optimizer=Sgd(1.0)), case.gentle_weights)
            sgd.load(case.weights)  # nothing may still use the weights that it was built with
            checks += _function_checks(sgd, case, values, precision)
            checks += optimizer.checks(adapter, own, sgd, case)
            checks += feed.checks(adapter, scenario, seed, precision, folder)
            checks += dropout.checks(adapter, scenario, seed)
        expected.save()
    return Proof(
        passed=all(check.passed for check in checks),
        checks=checks,
        optimizer_form=adapter.optimizer_form,
        seconds=time.monotonic() - started,
        cached=expected.cached,
    )


def failures(found: Proof) -> str:
    """Return the failed checks as text."""
    return ", ".join(f"{c.name} ({c.error:.2g} > {c.tolerance:.2g})" for c in found.checks if not c.passed)


def make_loop(scenario: Scenario, seed: int, folder: Path) -> tuple[Case, TrainSet]:
    """Return the case, and the set of its loop: one image of noise, repeated. folder: for photos."""
    case = make_case(scenario, seed)
    count = sum(case.batches)
    labels = np.full(count, case.labels[0])
    if DATASETS[scenario.dataset].shape is not None:
        return case, Arrays(np.repeat(case.repeated[np.newaxis], count, axis=0), labels)
    path = folder / "repeated.jpg"
    size = scenario.image[:2]
    photos.save(path, photos.enlarge(np.rint(255 * case.repeated).astype(np.uint8)))
    image = np.divide(photos.read(path, size), np.float32(255))
    return replace(case, repeated=image), Photos([path] * count, labels, size)


def gradient_tolerance(case: Case, precision: Precision) -> float:
    """Return the allowed relative L2 distance of each tensor's gradient.

    If a value is within rounding of a ReLU's kink, or two values of a pooling window are within rounding of each other,
    their whole gradient goes elsewhere. Every layer adds such flips. In bf16, a tensor of the deep network can be
    off by a third although every operation is correct.
    """
    return (DEEP_GRADIENT_TOLERANCE if case.deep else GRADIENT_TOLERANCE)[precision]


def _weights_check(model: Model, loaded: Weights) -> Check:
    """Check the weights. The error is the number of tensors that differ from the loaded ones."""
    found = model.weights()
    names = loaded.keys() | found.keys()
    differing = [name for name in names if not np.array_equal(found.get(name, np.empty(0)), loaded.get(name, np.nan))]
    return judged("weights", len(differing), 0)


def _logits_check(model: Model, case: Case, expected: Array, precision: Precision) -> Check:
    distance = of_largest if precision == "fp32" else relative_to_one
    tolerances = DEEP_LOGITS_TOLERANCE if case.deep else LOGITS_TOLERANCE
    return judged("logits", distance(model.logits(case.images), expected), tolerances[precision])


def _function_checks(sgd: Model, case: Case, expected: Values, precision: Precision) -> Iterator[Check]:
    """Yield the checks of outputs, loss and gradients. sgd: has SGD with learning rate 1."""
    outputs = reference.output(case.scenario, expected.logits)
    for batch in sorted({1, case.scenario.inference_batch}):
        chosen = np.random.default_rng(batch).integers(0, len(case.images), batch)  # no part repeats another one
        found = sgd.predictor(batch)(case.images[chosen])
        # probabilities depend on differences of logits, whose error can be twice as large
        error = (of_largest if precision == "fp32" else relative)(found, outputs[chosen])
        tolerances = DEEP_LOGITS_TOLERANCE if case.deep else LOGITS_TOLERANCE
        yield judged(f"output at batch {batch}", error, 2 * tolerances[precision])
    filling = case.filling
    sums = sgd.train_epoch(Arrays(case.images[filling], case.labels[filling]), 0, loop.Steps())
    loss = np.array(sums.loss / len(filling))
    losses = DEEP_LOSS_TOLERANCE if case.deep else LOSS_TOLERANCE
    yield judged("loss", relative_to_one(loss, np.array(expected.loss)), losses[precision])
    after = sgd.weights()
    yield from compared(
        "gradient",
        {name: before - after[name] for name, before in case.weights.items()},
        expected.gradients,
        {name: rounding(before) for name, before in case.weights.items()},
        gradient_tolerance(case, precision),
        SIZE_TOLERANCE[precision],
    )
