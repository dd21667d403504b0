"""Count the arithmetic and the memory traffic of a scenario's network from its layers.

Standard library only, because both the orchestrator and the worker import it.
"""

import math
from collections.abc import Iterator

from scenarios.spec import Adadelta, Adam, Conv, Dense, MaxPool, Optimizer, Scenario, Sgd, parameters, shapes

FLOAT_BYTES = 4


def forward_flops(scenario: Scenario) -> int:
    """Return the floating-point operations of one image's forward pass.

    Each multiply-add of Conv and Dense layers counts as two, including those on padding. Biases, activations and
    pooling are less than 1% of it in common nets and do not count, which is the usual convention.
    """
    return sum(_layer_flops(scenario))


def training_flops(scenario: Scenario) -> int:
    """Return the floating-point operations of one image's share of a training step, forward and backward.

    In the backward pass, the gradient of a layer's weights and the gradient of its input each cost as much as the
    forward product. The gradient of the images is not needed, so the first layer with weights has no gradient of its
    input. The update does not count.
    """
    layers = list(_layer_flops(scenario))
    return 3 * sum(layers) - layers[0]


def training_bytes(scenario: Scenario, batch: int) -> int:
    """Return the minimum memory traffic, in bytes, of one float32 training step on `batch` images.

    Each output of Conv, MaxPool and Dense is written and read once, and so is its gradient. The images are read once
    forward and once backward. Weights, gradients and each tensor of the optimizer's state are read and written once
    (Adam and Adadelta keep two, SGD none). Activation functions, dropout, bias and loss are assumed to be fused into
    their neighbors. This is a lower bound for execution layer by layer on data larger than the caches. A framework
    moves more: it reads activations again for the gradients of the weights, and it has temporaries and other layouts.
    Less reaches the memory only if activations stay in a cache between two layers.
    """
    activations = sum(math.prod(after) for _, x, _, after in shapes(scenario) if isinstance(x, Conv | MaxPool | Dense))
    weights = sum(math.prod(p.shape) for p in parameters(scenario))
    tensors = 2 + state_tensors(scenario.optimizer)
    return FLOAT_BYTES * (batch * (4 * activations + 2 * math.prod(scenario.image)) + 2 * tensors * weights)


def state_tensors(optimizer: Optimizer) -> int:
    """Return the number of tensors that the optimizer keeps for each tensor of weights."""
    match optimizer:
        case Sgd():
            return 0
        case Adam() | Adadelta():
            return 2


def _layer_flops(scenario: Scenario) -> Iterator[int]:
    """Yield the forward operations of each Conv and Dense layer, in order. There is at least one, the last layer."""
    for _, layer, before, after in shapes(scenario):
        if isinstance(layer, Conv):
            yield 2 * math.prod(after) * layer.kernel**2 * before[2]
        elif isinstance(layer, Dense):
            yield 2 * before[0] * layer.units
