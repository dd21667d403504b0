"""Prove, before anything is measured, that this adapter in this process computes the scenario's function.

The proof builds two models, both without dropout and augmentation. The first has SGD with learning rate 1, so that one
step shows the gradient. The second has the scenario's own optimizer. These must agree with `reference.py`:

weights   The weights read back have the digest of the loaded ones.
logits    The input is continuous noise. Loss and gradients are compared as well. Together they cover all of training
          except the update.
output    The output of the frozen predictor at batch 1 and at the proof batch. This is what inference measures.
update    The update of the scenario's optimizer over three steps, in the form that the adapter declares. The gradient
          is the framework's own (from the first model at the same weights), so that its rounding does not count twice.

Of several tensors, the check names the worst. A NaN or a wrong shape counts as the largest float, because JSON has no
infinity.
"""

import hashlib
import sys
import time
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from scenarios.adapter import Adapter, Images, Labels, Model
from scenarios.contract.cell import Precision
from scenarios.contract.result import Check, Proof
from scenarios.proof import reference
from scenarios.proof.reference import Array, Floats, Values
from scenarios.spec import Adam, Conv, Dense, Scenario, Sgd, digest, without_randomness
from scenarios.weights import Weights, check_weights
from scenarios.weights import digest as weights_digest

WRONG = sys.float_info.max
# Measured in fp32 with three frameworks and ten seeds (the two networks at 128x128: one seed): the errors are at most
# 4e-6 for logits, 7e-7 for losses, 3e-3 for gradients (the deep network 1e-2) and 3e-4 for updates. A learning rate
# that is 1% off has an error of 1e-2.
LOGITS_TOLERANCE = {"fp32": 5e-4, "tf32": 2e-3, "bf16": 3e-2}  # fp32: relative to the largest; else relative L2
LOSS_TOLERANCE = {"fp32": 1e-4, "tf32": 2e-3, "bf16": 3e-2}  # relative
GRADIENT_TOLERANCE = {"fp32": 1e-2, "tf32": 5e-2, "bf16": 5e-1}  # relative L2
DEEP_GRADIENT_TOLERANCE = {"fp32": 5e-2, "tf32": 2e-1, "bf16": 5e-1}
DEEP_LAYERS = 20
UPDATE_TOLERANCE = 1e-3  # relative L2
UPDATE_STEPS = 3  # from the second step on, both moments and their corrections count
MIN_READABLE = 1000  # size of a gradient that can be read from a weight, in units in the last place of the weight
SHRINK = 1e-2
MIN_CACHED_S = 1.0
UNREADABLE = (OSError, ValueError, KeyError, EOFError, NotImplementedError, zipfile.BadZipFile, zlib.error)


@dataclass(frozen=True)
class Case:
    """What both the adapter and the reference compute."""

    scenario: Scenario
    weights: Weights
    images: Images
    labels: Labels


def prove(adapter: Adapter, scenario: Scenario, seed: int, precision: Precision, cache: Path | None) -> Proof:
    """Compare an adapter with the reference. Exceptions of the adapter pass through.

    cache: file of reference values. It is used if it has the values of this case. Otherwise it is replaced if computing
    them took over a second. Raise OSError if it cannot be written.
    """
    started = time.monotonic()
    case = make_case(scenario, seed)
    expected, cached = expected_values(case, cache)
    model = adapter.build(replace(case.scenario, optimizer=Sgd(1.0)), case.weights)
    checks = [_weights_check(model, case.weights), *_function_checks(model, case, expected, precision)]
    checks.append(_update_check(adapter, model, case))
    return Proof(
        passed=all(check.passed for check in checks),
        checks=checks,
        optimizer_form=adapter.optimizer_form,
        seconds=time.monotonic() - started,
        cached=cached,
    )


def failures(found: Proof) -> str:
    """Return the failed checks as text."""
    return ", ".join(f"{c.name} ({c.error:.2g} > {c.tolerance:.2g})" for c in found.checks if not c.passed)


def make_case(scenario: Scenario, seed: int) -> Case:
    """Return the scenario without randomness, weights for checking, and one batch of noise.

    The noise is uniform in [0, 1), float32, (proof_batch, H, W, C). It avoids ties in the pools, which equal pixels
    would cause. The labels are uniformly distributed.
    """
    generator = np.random.default_rng([seed, zlib.crc32(b"proof batch")])
    images = generator.random((scenario.proof_batch, *scenario.image), dtype=np.float32)
    labels = generator.integers(0, max(2, scenario.output.units), scenario.proof_batch)
    return Case(without_randomness(scenario), check_weights(scenario, seed), images, labels)


def gradient_tolerance(scenario: Scenario, precision: Precision) -> float:
    """Return the allowed relative L2 distance of each tensor's gradient.

    If a value is within rounding of a ReLU's kink, or two values of a pooling window are within rounding of each other,
    their whole gradient goes elsewhere. Every layer adds such flips. With more than 20 layers of weights, a tensor can
    be several percent off although every operation is correct.
    """
    depth = sum(isinstance(layer, Conv | Dense) for layer in scenario.layers)
    return (DEEP_GRADIENT_TOLERANCE if depth > DEEP_LAYERS else GRADIENT_TOLERANCE)[precision]


# ---- expected values -------------------------------------------------------------------------------------------


def expected_values(case: Case, cache: Path | None) -> tuple[Values, bool]:
    """Return the reference's values, and whether they came from the cache."""
    key = _cache_key(case)
    if cache is not None and (known := _read_cache(cache, key, case)) is not None:
        return known, True
    started = time.monotonic()
    values = reference.evaluate(case.scenario, case.weights, case.images, case.labels)
    if cache is not None and time.monotonic() - started > MIN_CACHED_S:
        _write_cache(cache, key, values)
    return values, False


def _cache_key(case: Case) -> str:
    """Return a digest of all that the values depend on. Batch size, epochs and optimizer do not belong to it."""
    same = replace(case.scenario, batch=1, epochs=1, inference_batch=1, optimizer=Sgd(1.0))
    found = hashlib.sha256(digest(same).encode())
    found.update(weights_digest(case.weights | {"images": case.images}).encode())
    found.update(case.labels.tobytes())
    found.update(Path(reference.__file__).read_bytes())
    return found.hexdigest()


def _read_cache(cache: Path, key: str, case: Case) -> Values | None:
    try:
        with open(cache, "rb") as file, np.load(file, allow_pickle=False) as stored:
            if str(stored["key"]) != key:
                return None
            gradients = {name: stored[f"gradient {name}"] for name in case.weights}
            return Values(stored["logits"], float(stored["loss"]), gradients)
    except UNREADABLE:  # a damaged cache is ignored, and the values are computed again
        return None


def _write_cache(cache: Path, key: str, values: Values) -> None:
    arrays: dict[str, Any] = {f"gradient {name}": value for name, value in values.gradients.items()}
    arrays |= {"key": np.array(key), "logits": values.logits, "loss": np.array(values.loss)}
    temporary = cache.with_name(f".{cache.name}.new")
    with open(temporary, "wb") as file:
        np.savez(file, **arrays)
    temporary.replace(cache)


# ---- checks ----------------------------------------------------------------------------------------------------


def _check(name: str, error: float, tolerance: float) -> Check:
    return Check(name, error, tolerance, passed=error <= tolerance)


def _weights_check(model: Model, loaded: Weights) -> Check:
    """Check the weights. The error is the number of tensors that differ from the loaded ones."""
    found = model.weights()
    names = loaded.keys() | found.keys()
    differing = [
        name
        for name in names
        if name not in found or weights_digest({name: found[name]}) != weights_digest({name: loaded[name]})
    ]
    return _check("weights", len(differing), 0)


def _function_checks(model: Model, case: Case, expected: Values, precision: Precision) -> Iterator[Check]:
    tolerance = LOGITS_TOLERANCE[precision]
    of_logits, of_outputs = (_of_largest, _of_largest) if precision == "fp32" else (_relative_to_one, _relative)
    yield _check("logits", of_logits(model.logits(case.images), expected.logits), tolerance)
    outputs = reference.output(case.scenario, expected.logits)
    for batch in sorted({1, len(case.images)}):
        found = model.predictor(batch)(case.images[:batch])
        # probabilities depend on differences of logits, whose error can be twice as large
        yield _check(f"output at batch {batch}", of_outputs(found, outputs[:batch]), 2 * tolerance)
    loss = np.array(model.step(case.images, case.labels))
    yield _check("loss", _relative(loss, np.array(expected.loss)), LOSS_TOLERANCE[precision])
    after = model.weights()
    allowed = gradient_tolerance(case.scenario, precision)
    errors = {
        name: _relative(before - after[name], expected.gradients[name], forgiven=_rounding(before) / allowed)
        for name, before in case.weights.items()
    }
    worst = max(errors, key=errors.__getitem__)
    yield _check(f"gradient {worst}", errors[worst], allowed)


def _update_check(adapter: Adapter, sgd: Model, case: Case) -> Check:
    """Compare each step of the scenario's optimizer with the reference's update by the gradient at the same weights.

    A gradient read from float32 weights is known to one unit in the last place of the weight. Adam makes a full step
    even for the smallest gradient. So only those weights are compared whose gradients were well above that unit at
    every step so far.
    """
    before = _update_weights(case)
    own = adapter.build(case.scenario, before)
    state = reference.start(before)
    readable = {name: np.ones(value.shape, bool) for name, value in before.items()}
    errors: dict[str, float] = {}
    for step in range(1, UPDATE_STEPS + 1):
        sgd.load(before)
        sgd.step(case.images, case.labels)
        gradients = {name: before[name] - value for name, value in sgd.weights().items()}
        changes, state = reference.update(case.scenario.optimizer, adapter.optimizer_form, state, gradients)
        own.step(case.images, case.labels)
        after = own.weights()
        for name, value in before.items():
            readable[name] &= np.abs(gradients[name]) >= MIN_READABLE * np.spacing(np.abs(value))
            mask = readable[name]
            if mask.any():
                errors[f"update {name} at step {step}"] = _relative(
                    (after[name] - value)[mask], changes[name][mask], forgiven=_rounding(value[mask]) / UPDATE_TOLERANCE
                )
        before = after
    worst = max(errors, key=errors.__getitem__, default="")
    return _check(worst, errors[worst], UPDATE_TOLERANCE) if worst else _check("update", WRONG, UPDATE_TOLERANCE)


def _update_weights(case: Case) -> Weights:
    """Return the weights at which the update is compared.

    For Adam the last kernel is scaled down, and with it every gradient behind it. Otherwise epsilon would not matter:
    at a gradient of 0.01, both forms and any epsilon give the same update within the tolerance.
    """
    if not isinstance(case.scenario.optimizer, Adam):
        return case.weights
    last = f"{len(case.scenario.layers) - 1}/kernel"
    return case.weights | {last: (case.weights[last] * SHRINK).astype(np.float32)}


# ---- distances -------------------------------------------------------------------------------------------------


def _of_largest(found: Floats, expected: Array) -> float:
    """Return the largest difference divided by the largest expected value."""
    if found.shape != expected.shape or not np.isfinite(found).all():
        return WRONG
    return float(np.abs(found - expected).max() / np.abs(expected).max())


def _relative(found: Floats, expected: Array, forgiven: float = 0.0) -> float:
    """Return the L2 norm of the difference, divided by that of the expected values plus `forgiven`."""
    if found.shape != expected.shape or not np.isfinite(found).all():
        return WRONG
    difference, norm = float(np.linalg.norm(found - expected)), float(np.linalg.norm(expected)) + forgiven
    return difference / norm if norm else (WRONG if difference else 0.0)


def _relative_to_one(found: Floats, expected: Array) -> float:
    """Return the same as `_relative`, but relative to ones if these have a larger norm.

    The logits of a single unit can all be near 0, because large terms cancel. At low precision, an error relative to
    them would mean nothing.
    """
    return _relative(found, expected, forgiven=max(0.0, expected.size**0.5 - float(np.linalg.norm(expected))))


def _rounding(weights: Floats) -> float:
    """Return the L2 norm of one unit in the last place of each weight, the resolution of changes of float32 weights."""
    return float(np.linalg.norm(np.spacing(np.abs(weights)).astype(np.float64)))
