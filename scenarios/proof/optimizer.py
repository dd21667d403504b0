"""Compare the scenario's optimizer with its formula, by gradients that are the framework's own or exactly zero."""

from collections.abc import Iterator

import numpy as np

from scenarios.adapter import Adapter, Images, Model
from scenarios.contract.result import Check
from scenarios.proof import reference
from scenarios.proof.case import Case
from scenarios.proof.distances import WRONG, judged, relative, rounding, sample
from scenarios.proof.reference import Floats
from scenarios.spec import Adam, parameters
from scenarios.weights import Weights

# Relative L2. Honest updates differ by at most 1e-4. An epsilon of 1e-8 instead of 1e-7 differs by 6e-4.
UPDATE_TOLERANCE = 5e-4
UPDATE_STEPS = 3  # from the second step on, both moments and their corrections count
# After a step with a gradient and five without, Adam's update differs by 1.1e-3 if beta_2 is 0.9999 instead of 0.999.
# Honest updates differ by at most 6e-5 (Keras computes the powers of beta in float32).
MOMENTS_STEPS = 6
MOMENTS_TOLERANCE = 3e-4  # relative
MIN_READABLE = 1000  # size of a gradient that can be read from a weight, in units in the last place of the weight
DECAY_SCALE = 10.0


def checks(adapter: Adapter, own: Model, sgd: Model, case: Case) -> Iterator[Check]:
    """Yield the checks of the optimizer. own: has the scenario's optimizer. sgd: has SGD with learning rate 1."""
    yield from _update_checks(adapter, own, sgd, case)
    yield _decay_check(own, case)


def _update_checks(adapter: Adapter, own: Model, sgd: Model, case: Case) -> Iterator[Check]:
    """Compare steps of the optimizer with the reference's updates by the gradients at the same weights.

    The first step is on noise, the others on black images. The gradient of the first kernel is exactly zero on these,
    so its update shows only the moments. The other gradients come from the first UPDATE_STEPS steps of `sgd`.

    A gradient read from float32 weights is known to one unit in the last place of the weight. Adam makes a full step
    even for the smallest gradient. So only those weights are compared whose gradients were well above that unit at
    every step so far.
    """
    size, first = case.last or case.scenario.batch, parameters(case.scenario)[0].name
    labels = np.resize(case.labels, size)
    noise = np.resize(case.images, (size, *case.scenario.image))
    black = np.zeros_like(noise)
    # Only at small gradients does it matter where Adam has its epsilon.
    weights = case.gentle_weights if isinstance(case.scenario.optimizer, Adam) else case.weights
    own.load(weights)
    before = _sampled(weights)
    state = reference.start(before)
    readable = {name: np.ones(value.shape, bool) for name, value in before.items()}
    errors: dict[str, float] = {}
    moments, gradients = 0.0, dict[str, Floats]()
    for step in range(1, MOMENTS_STEPS + 1):
        images = noise if step == 1 else black
        if step <= UPDATE_STEPS:
            gradients = _gradients(sgd, weights, images, labels)
        if step > 1:
            gradients[first] = np.zeros_like(gradients[first])
        changes, state = reference.update(case.scenario.optimizer, adapter.optimizer_form, state, gradients)
        own.step(images, labels)
        weights = own.weights()
        after = _sampled(weights)
        for name, value in before.items():
            if name != first or step == 1:
                readable[name] &= np.abs(gradients[name]) >= MIN_READABLE * np.spacing(np.abs(value))
            if (mask := readable[name]).any() and step <= UPDATE_STEPS:
                found, expected, unit = (after[name] - value)[mask], changes[name][mask], rounding(value[mask])
                errors[f"update {name} at step {step}"] = relative(found, expected, unit / UPDATE_TOLERANCE)
        if (mask := readable[first]).any():
            moments = max(moments, _scale_error((after[first] - before[first])[mask], changes[first][mask]))
        before = after
    worst = max(errors, key=errors.__getitem__, default="update")
    yield judged(worst, errors.get(worst, WRONG), UPDATE_TOLERANCE)
    yield judged("moments", moments, MOMENTS_TOLERANCE)


def _gradients(sgd: Model, weights: Weights, images: Images, labels: reference.Labels) -> dict[str, Floats]:
    """Return the gradient at these weights, as `sample` gives it: what SGD with learning rate 1 subtracts."""
    sgd.load(weights)
    sgd.step(images, labels)
    after = _sampled(sgd.weights())
    return {name: value - after[name] for name, value in _sampled(weights).items()}


def _sampled(weights: Weights) -> dict[str, Floats]:
    return {name: sample(value) for name, value in weights.items()}


def _scale_error(found: Floats, expected: Floats) -> float:
    """Return by which part the update is too large or small, by least squares over all weights. This averages over the
    rounding of each weight. If nothing is expected, return 0 or WRONG."""
    norm = float(expected @ expected)
    if not norm:
        return WRONG if found.any() else 0.0
    return abs(float(found @ expected) / norm - 1) if np.isfinite(found).all() else WRONG


def _decay_check(own: Model, case: Case) -> Check:
    """Check that a weight without gradient keeps its value. The error is the largest relative change.

    All kernels are large, all hidden biases -1, and the images black. So all activations are 0, and all gradients
    except that of the last bias. Weight decay, as part of the gradient or apart from it, changes the other weights.
    """
    last = len(case.scenario.layers) - 1
    weights = {
        name: np.full_like(value, -1) if name.endswith("bias") and name != f"{last}/bias" else DECAY_SCALE * value
        for name, value in case.weights.items()
    }
    own.load(weights)
    size = case.last or case.scenario.batch
    own.step(np.zeros((size, *case.scenario.image), np.float32), np.resize(case.labels, size))
    after = own.weights()
    largest = max(
        float(np.abs((after[name] - value) / value).max()) for name, value in weights.items() if name != f"{last}/bias"
    )
    return judged("weights without gradient", largest if np.isfinite(largest) else WRONG, 0.0)
