"""Find out whether a training step multiplies in TF32 anywhere, through the code path that trains.

A library may choose TF32 for some convolutions only, or for a gradient only. So the probe is the scenario's own network
at its own batch size. All kernels are 0 except for one weight each, which passes channel 0 on, and all images are
constant. So each layer's value is that of the layer before times the weight, and the gradients return along this chain:

    value[i] = value[i - 1] * weight        gradient[i - 1] = gradient[i] * weight
    kernel's gradient[i] = value[i - 1] * gradient[i]        bias' gradient[i] = gradient[i]

Each of these is one product plus zeros. In float32 it is correct to about 1e-7. TF32 keeps 10 bits after the point
instead of 23, so an operand between two TF32 numbers changes the product by up to 5e-4.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from scenarios.adapter import Model
from scenarios.spec import Conv, Dense, Scenario, Sgd, parameters, without_randomness
from scenarios.weights import Weights

SPACING = 2.0**-10  # of TF32 numbers between 1 and 2
# Pixel and weight of each step. In one step a wrong product can look right, because two roundings cancel. With these
# three, each product along the chain of each scenario in the catalog is off by at least 2e-4 in one of them.
STEPS = (
    (1 + 0.55 * SPACING, 1 + 0.45 * SPACING),
    (1 + 2.3 * SPACING, 1 + 0.45 * SPACING),
    (1 + 0.3 * SPACING, 1 + 0.35 * SPACING),
)
TOLERANCE = 1e-4  # relative


def step_rounds_to_tf32(build: Callable[[Scenario, Weights], Model], scenario: Scenario) -> bool:
    """Return whether a training step of this scenario rounds an operand of any layer to TF32.

    The last layer's forward product is not seen, because only the loss depends on it. It is a matrix product.
    build: makes the model as the measured one was made.
    """
    probe = replace(without_randomness(scenario), optimizer=Sgd(1.0))  # one step then shows the gradient
    model = build(probe, _chain(probe, 1.0))
    products = (product for step in STEPS for product in _products(model, probe, *step))
    return not all(abs(found - expected) < TOLERANCE * abs(expected) for found, expected in products)


def _chain(scenario: Scenario, weight: float) -> Weights:
    """Return weights that pass channel 0 on, times `weight` at every layer."""
    weights = {p.name: np.zeros(p.shape, np.float32) for p in parameters(scenario)}
    for index, layer in enumerate(scenario.layers):
        if isinstance(layer, Conv | Dense):
            weights[f"{index}/kernel"][_place(layer)] = weight
    return weights


def _place(layer: Conv | Dense) -> tuple[int, ...]:
    """Return the index of the weight from channel 0 to channel 0, for a convolution at the same position."""
    return ((layer.kernel - 1) // 2,) * 2 + (0, 0) if isinstance(layer, Conv) else (0, 0)


def _products(model: Model, scenario: Scenario, pixel: float, weight: float) -> Iterator[tuple[float, float]]:
    """Train one step. Yield the found and the expected gradients along the chain, from the last layer to the first."""
    images = np.full((scenario.batch, *scenario.image), pixel, np.float32)
    labels = np.full(scenario.batch, scenario.output.units - 1, np.int64)
    before = _chain(scenario, weight)
    model.load(before)
    model.step(images, labels)
    after = model.weights()

    def gradient(name: str, place: tuple[int, ...]) -> float:
        return float(before[name][place]) - float(after[name][place])

    layers = [(index, layer) for index, layer in enumerate(scenario.layers) if isinstance(layer, Conv | Dense)]
    factor, value = float(np.float32(weight)), float(np.float32(pixel))
    of_output = gradient(f"{layers[-1][0]}/bias", (0,))
    for depth, (index, layer) in reversed(list(enumerate(layers))):
        yield gradient(f"{index}/bias", (0,)), of_output
        yield gradient(f"{index}/kernel", _place(layer)), value * factor**depth * of_output
        of_output *= factor
