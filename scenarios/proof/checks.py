"""The proof before the clock starts: does this adapter, in this process, compute the scenario's function?

Two models are built, both without dropout and augmentation. The first has SGD with learning rate 1, so that one step
shows the gradient; the second has the scenario's own optimizer. What must agree with `reference.py`:

weights   read back equal, by digest, to those loaded
logits    of continuous noise; with the loss and the gradients, the whole of training but the update
output    of the frozen predictor at batch 1 and at the proof batch: what inference times
update    of the scenario's optimizer over three steps, in the form that the adapter declares; the gradient is the
          framework's own (the first model at the same weights), so that its rounding does not count twice

Of many tensors, the worst is named. A NaN or a wrong shape counts as the largest float: JSON knows no infinity.
"""

from __future__ import annotations

import hashlib
import sys
import time
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from scenarios.adapter import Adapter, Images, Labels, Model
from scenarios.contract.result import Check, Proof
from scenarios.proof import reference
from scenarios.proof.reference import Array, Floats, Values
from scenarios.spec import Adam, Conv, Dense, Scenario, Sgd, digest, without_randomness
from scenarios.weights import Weights, check_weights
from scenarios.weights import digest as weights_digest

Precision = Literal["fp32", "tf32", "bf16"]

WRONG = sys.float_info.max
# Measured in fp32 on three frameworks, ten seeds (the two networks at 128x128: one): logits within 4e-6, losses 7e-7,
# gradients 3e-3 (the deep network 1e-2), updates 3e-4. A learning rate 1 % off shows as 1e-2.
LOGITS_TOLERANCE = {"fp32": 5e-4, "tf32": 2e-3, "bf16": 3e-2}  # fp32: of the largest; else L2
LOSS_TOLERANCE = {"fp32": 1e-4, "tf32": 2e-3, "bf16": 3e-2}  # relative
GRADIENT_TOLERANCE = {"fp32": 1e-2, "tf32": 5e-2, "bf16": 5e-1}  # relative L2
DEEP_GRADIENT_TOLERANCE = {"fp32": 5e-2, "tf32": 2e-1, "bf16": 5e-1}
DEEP = 20
UPDATE_TOLERANCE = 1e-3  # relative L2
UPDATE_STEPS = 3  # from the second on, both moments and their corrections count
READABLE = 1000  # units in the last place of the weight that a gradient must have to be read from it
SHRINK = 1e-2
CACHE_FROM_S = 1.0
UNREADABLE = (OSError, ValueError, KeyError, EOFError, NotImplementedError, zipfile.BadZipFile, zlib.error)


@dataclass(frozen=True)
class Case:
    """What is computed twice: by the adapter and by the reference."""

    scenario: Scenario
    weights: Weights
    images: Images
    labels: Labels


def prove(adapter: Adapter, scenario: Scenario, seed: int, precision: Precision, cache: Path | None) -> Proof:
    """Hold an adapter against the reference; what it raises passes through.

    cache: file of reference values, used where it holds this very case, else replaced where computing took over a
    second. Raises OSError where it cannot be written.
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
        seed=seed,
        seconds=time.monotonic() - started,
        cached=cached,
    )


def failures(found: Proof) -> str:
    """The checks that failed, in words."""
    return ", ".join(f"{c.name} ({c.error:.2g} > {c.tolerance:.2g})" for c in found.checks if not c.passed)


def make_case(scenario: Scenario, seed: int) -> Case:
    """The scenario without randomness, weights made for checking, one batch of noise: uniform in [0, 1), float32,
    (proof_batch, H, W, C), with labels drawn evenly. Noise, because equal pixels would tie in the pools."""
    generator = np.random.default_rng([seed, zlib.crc32(b"proof batch")])
    images = generator.random((scenario.proof_batch, *scenario.image), dtype=np.float32)
    labels = generator.integers(0, max(2, scenario.output.units), scenario.proof_batch)
    return Case(without_randomness(scenario), check_weights(scenario, seed), images, labels)


def gradient_tolerance(scenario: Scenario, precision: Precision) -> float:
    """Relative L2 distance allowed to each tensor's gradient.

    A value within rounding of a ReLU's kink, or two of a pooling window within rounding of each other, send their
    gradient elsewhere, all of it. Each layer adds such flips to those before it: with more than 20 layers of weights,
    a tensor can be some per cent off although every operation is right.
    """
    depth = sum(isinstance(layer, Conv | Dense) for layer in scenario.layers)
    return (DEEP_GRADIENT_TOLERANCE if depth > DEEP else GRADIENT_TOLERANCE)[precision]


# ---- expected values -------------------------------------------------------------------------------------------


def expected_values(case: Case, cache: Path | None) -> tuple[Values, bool]:
    """The reference's values, and whether they came from the cache."""
    key = _cache_key(case)
    if cache is not None and (known := _read_cache(cache, key, case)) is not None:
        return known, True
    started = time.monotonic()
    values = reference.evaluate(case.scenario, case.weights, case.images, case.labels)
    if cache is not None and time.monotonic() - started > CACHE_FROM_S:
        _write_cache(cache, key, values)
    return values, False


def _cache_key(case: Case) -> str:
    """Over all that the values depend on; batch size, epochs and optimizer are not among it."""
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
    except UNREADABLE:  # a cache that cannot be read is no cache: the values are computed anew
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
    """Error: how many tensors are not those loaded."""
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
        # probabilities follow differences of logits, which can be twice as far off
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
    """Steps of the scenario's optimizer, each held against the reference's update by the gradient at its weights.

    A gradient read from float32 weights is known to a unit in the last place of the weight. Adam makes a whole step of
    even the smallest one, so only weights are compared whose gradients were well above that at every step so far.
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
            readable[name] &= np.abs(gradients[name]) >= READABLE * np.spacing(np.abs(value))
            mask = readable[name]
            if mask.any():
                errors[f"update {name} at step {step}"] = _relative(
                    (after[name] - value)[mask], changes[name][mask], forgiven=_rounding(value[mask]) / UPDATE_TOLERANCE
                )
        before = after
    worst = max(errors, key=errors.__getitem__, default="")
    return _check(worst, errors[worst], UPDATE_TOLERANCE) if worst else _check("update", WRONG, UPDATE_TOLERANCE)


def _update_weights(case: Case) -> Weights:
    """Where the update is compared. For Adam the last kernel is shrunk, and with it every gradient behind it, so that
    epsilon counts: beside a gradient of 0.01 both forms, and any epsilon, would pass for each other."""
    if not isinstance(case.scenario.optimizer, Adam):
        return case.weights
    last = f"{len(case.scenario.layers) - 1}/kernel"
    return case.weights | {last: (case.weights[last] * SHRINK).astype(np.float32)}


# ---- distances -------------------------------------------------------------------------------------------------


def _of_largest(found: Floats, expected: Array) -> float:
    """Largest difference over the largest expected value."""
    if found.shape != expected.shape or not np.isfinite(found).all():
        return WRONG
    return float(np.abs(found - expected).max() / np.abs(expected).max())


def _relative(found: Floats, expected: Array, forgiven: float = 0.0) -> float:
    """L2 norm of the difference over that of the expected values plus `forgiven`."""
    if found.shape != expected.shape or not np.isfinite(found).all():
        return WRONG
    difference, norm = float(np.linalg.norm(found - expected)), float(np.linalg.norm(expected)) + forgiven
    return difference / norm if norm else (WRONG if difference else 0.0)


def _relative_to_one(found: Floats, expected: Array) -> float:
    """As `_relative`, or to ones where those are larger: a single unit's logits can all happen to be near 0, the sum of
    large terms that cancel, and then a low precision is no measure of itself."""
    return _relative(found, expected, forgiven=max(0.0, expected.size**0.5 - float(np.linalg.norm(expected))))


def _rounding(weights: Floats) -> float:
    """L2 norm of one unit in the last place of each weight: what a change read from float32 weights cannot show."""
    return float(np.linalg.norm(np.spacing(np.abs(weights)).astype(np.float64)))
