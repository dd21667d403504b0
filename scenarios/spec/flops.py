"""What a scenario's network costs in arithmetic and in memory traffic, counted from its layers.

Standard library only: both the orchestrator and the worker import it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from scenarios.spec import Adadelta, Adam, Conv, Dense, MaxPool, Optimizer, Scenario, Sgd, parameters, shapes

FLOAT_BYTES = 4


def forward_flops(scenario: Scenario) -> int:
    """Floating-point operations of one image's forward pass: two for each multiply-add of Conv and Dense layers, those
    on padding included. Biases, activations and pooling, less than a hundredth of it in common nets, are left out, as
    is the custom in the field."""
    return sum(_layer_flops(scenario))


def training_flops(scenario: Scenario) -> int:
    """Floating-point operations of one image's share of a training step, forward and backward.

    Backward, the gradient of a layer's weights and that of its input are products of the forward product's size
    each; nothing needs the gradient of the images, so the first layer with weights has no second one. The update is
    left out.
    """
    layers = list(_layer_flops(scenario))
    return 3 * sum(layers) - layers[0]


def training_bytes(scenario: Scenario, batch: int) -> int:
    """The least memory traffic, in bytes, of one float32 training step on `batch` images.

    Each output of Conv, MaxPool and Dense is written and read once, and so is its gradient; the images are read once
    forward and once backward; weights, gradients and each tensor of the optimizer's state are read and written once
    (Adam and Adadelta keep two, Sgd none). Activation functions, dropout, bias and loss are taken to
    be fused into their neighbours. A lower bound for what runs a layer at a time on data larger than the caches: a
    framework moves more (a second reading of activations for the weights' gradients, temporaries, layouts); only
    where activations stay in a cache between two layers does less reach the memory.
    """
    activations = sum(math.prod(after) for _, x, _, after in shapes(scenario) if isinstance(x, Conv | MaxPool | Dense))
    weights = sum(math.prod(p.shape) for p in parameters(scenario))
    tensors = 2 + _state_tensors(scenario.optimizer)
    return FLOAT_BYTES * (batch * (4 * activations + 2 * math.prod(scenario.image)) + 2 * tensors * weights)


def _state_tensors(optimizer: Optimizer) -> int:
    """Tensors that the optimizer keeps for each tensor of weights."""
    match optimizer:
        case Sgd():
            return 0
        case Adam() | Adadelta():
            return 2


def _layer_flops(scenario: Scenario) -> Iterator[int]:
    """Forward operations of each Conv and Dense layer, in order; there is always one, the last layer."""
    for _, layer, before, after in shapes(scenario):
        if isinstance(layer, Conv):
            yield 2 * math.prod(after) * layer.kernel**2 * before[2]
        elif isinstance(layer, Dense):
            yield 2 * before[0] * layer.units
