"""Read rate and scaling of dropout from gradients of the timed loop."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from scenarios.adapter import Adapter, Arrays, Model
from scenarios.contract.result import Check
from scenarios.proof import reference
from scenarios.proof.distances import WRONG, judged, relative_to_one
from scenarios.proof.loop import Steps
from scenarios.proof.reference import Array
from scenarios.spec import Conv, Dense, Dropout, Flatten, Scenario, Sgd, parameters, without_randomness
from scenarios.weights import Weights, check_weights

EPOCHS = 4
SCALING_TOLERANCE = 3e-2  # relative
OFF_TOLERANCE = 3e-2  # relative L2
DEVIATIONS = 5.0  # standard deviations by which the share of zeros may differ from the rate
REPEATS_BY_CHANCE = 1e-6  # as DEVIATIONS: the probability of five standard deviations is 6e-7
HIDDEN = 1e-2  # upper limit of the sum over a hidden unit's weights


def checks(adapter: Adapter, scenario: Scenario, seed: int) -> Iterator[Check]:
    """Yield two checks for each Dropout layer, of the share of zeros and of the scaling of the other values. Also check
    that predictions are without dropout.

    The set is a single white image. All hidden activations are about 1: the kernels are small, and the biases 1. The
    gradient of a dense kernel is the product of the layer's input and of its bias' gradient, so it shows each value
    that Dropout returned. If no dense layer follows a Dropout directly, or if another Dropout stands before it, it is
    read in a network that ends after it.
    """
    rates = _rates(scenario)
    if not rates:
        return
    plain = replace(scenario, augment=None, optimizer=Sgd(1.0))
    white = Arrays(np.ones((1, *scenario.image), np.float32), np.zeros(1, np.int64))
    weights = _weights(plain, seed)
    model = adapter.build(plain, weights)
    whole = [index for index in rates if _is_read(plain, index)]
    values = _read(model, plain, weights, white, whole) if whole else {}
    model.load(weights)
    expected = reference.forward(without_randomness(scenario), weights, white.images)
    yield judged("dropout: off in logits", relative_to_one(model.logits(white.images), expected), OFF_TOLERANCE)
    found = model.predictor(1)(white.images)
    error = relative_to_one(found, reference.output(scenario, expected))
    yield judged("dropout: off in the predictor", error, OFF_TOLERANCE)
    for index, rate in rates.items():
        if index not in values:
            short = _end_after(plain, index)
            own = _weights(short, seed)
            values |= _read(adapter.build(short, own), short, own, white, [index])
        yield from _judge(index, rate, values[index])


def _rates(scenario: Scenario) -> dict[int, float]:
    """Return the rate of each Dropout layer that drops something, by its index."""
    layers = enumerate(scenario.layers)
    return {index: layer.rate for index, layer in layers if isinstance(layer, Dropout) and layer.rate > 0}


def _is_read(scenario: Scenario, dropout: int) -> bool:
    """Return whether a dense layer gets what this Dropout returned, and no other Dropout changed the values before.

    A Conv or Dense makes all values about 1 again.
    """
    weighted = [index for index, layer in enumerate(scenario.layers) if isinstance(layer, Conv | Dense)]
    following = min(index for index in weighted if index > dropout)
    before = max((index for index in weighted if index < dropout), default=-1)
    between = scenario.layers[dropout + 1 : following]
    alone = not any(before < index < dropout for index in _rates(scenario))
    return alone and isinstance(scenario.layers[following], Dense) and all(isinstance(x, Flatten) for x in between)


def _end_after(scenario: Scenario, dropout: int) -> Scenario:
    """Return the network up to this Dropout, followed by the last layer. Dropouts before it have rate 0."""
    before = without_randomness(scenario).layers[:dropout]
    flat = [] if any(isinstance(layer, Flatten) for layer in before) else [Flatten()]
    return replace(scenario, layers=(*before, scenario.layers[dropout], *flat, scenario.output))


def _read(
    model: Model, scenario: Scenario, weights: Weights, white: Arrays, dropouts: Sequence[int]
) -> dict[int, Array]:
    """Train epochs of one step, and return what each of these Dropouts returned in each, (EPOCHS, units)."""
    inputs: dict[int, list[Array]] = {index: [] for index in dropouts}
    for epoch in range(EPOCHS):
        model.load(weights)
        model.train_epoch(white, epoch, Steps())
        after = model.weights()
        for index in dropouts:
            inputs[index].append(_input(scenario, index, weights, after))
    return {index: np.array(found) for index, found in inputs.items()}


def _weights(scenario: Scenario, seed: int) -> Weights:
    """Return small positive hidden kernels, hidden biases 1, and the last layer of the proof."""
    generator, last = np.random.default_rng(seed), f"{len(scenario.layers) - 1}/"
    weights = check_weights(scenario, seed)
    for parameter in parameters(scenario):
        if not parameter.name.startswith(last):
            small = generator.uniform(0, HIDDEN / parameter.fan_in, parameter.shape)
            weights[parameter.name] = (np.ones(parameter.shape) if parameter.init == "zeros" else small).astype("f4")
    return weights


def _input(scenario: Scenario, dropout: int, before: Weights, after: Weights) -> Array:
    """Return the input of the dense layer after a Dropout layer, (units,). NaN if it cannot be read."""
    dense = next(i for i, layer in enumerate(scenario.layers) if i > dropout and isinstance(layer, Dense))
    kernel, bias = (before[name].astype(np.float64) - after[name] for name in (f"{dense}/kernel", f"{dense}/bias"))
    readable = np.abs(bias).argmax()  # an output that is dropped later has no gradient
    with np.errstate(divide="ignore", invalid="ignore"):
        values: Array = kernel[:, readable] / bias[readable]
    return values


def _judge(index: int, rate: float, values: Array) -> Iterator[Check]:
    """Yield the checks of rate and scaling. values: (epochs, units). The same mask in two epochs is wrong, unless there
    are so few units that this can happen by chance."""
    kept = np.abs(values) > 0.5
    by_chance = math.comb(len(kept), 2) * (rate**2 + (1 - rate) ** 2) ** kept.shape[1]
    repeats = by_chance < REPEATS_BY_CHANCE and len(np.unique(kept, axis=0)) < len(kept)
    spread = DEVIATIONS * (rate * (1 - rate) / kept.size) ** 0.5
    share = WRONG if repeats or not np.isfinite(values).all() else abs(float(1 - kept.mean()) - rate)
    yield judged(f"dropout {index}: rate", share, spread)
    scaled = np.abs(values[kept] * (1 - rate) - 1)
    worst = float(scaled.max()) if scaled.size and np.isfinite(scaled).all() else WRONG
    yield judged(f"dropout {index}: scaling", worst, SCALING_TOLERANCE)
