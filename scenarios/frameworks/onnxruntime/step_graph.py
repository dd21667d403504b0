"""Whole graphs of a scenario: the training step (forward, loss, backward, optimizer update) and the evaluation.

The stock inference package has no training API, but a training step is a function like any other: parameters and
optimizer state go in, their updated values come out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from onnx import TensorProto

from scenarios import spec
from scenarios.frameworks.onnxruntime import layers
from scenarios.frameworks.onnxruntime.graph import Dim, Graph, Tensor
from scenarios.frameworks.onnxruntime.layers import Gradients, Layout, Operation
from scenarios.frameworks.onnxruntime.optimizers import Update
from scenarios.weights import Weights

IMAGES, LABELS, INVERSE_BATCH, LOSS_SUM, CORRECT = "images", "labels", "inverse_batch", "loss_sum", "correct"
CLIP = 1e-7


@dataclass(frozen=True)
class State:
    """A tensor that a training step takes in and gives back updated. output: its name among the graph's outputs."""

    shape: spec.Shape
    dtype: npt.DTypeLike
    output: Tensor


@dataclass(frozen=True)
class Step:
    """A serialized training step. state: by input name. Further inputs: `images` (batch, H, W,
    C), `labels` (batch,), `inverse_batch` (1 / batch), the optimizer's scalars. `loss_sum` and `correct` are state:
    they grow by the batch's summed loss and correct predictions, both before the update."""

    model: bytes
    state: dict[str, State]


def layouts(scenario: spec.Scenario) -> dict[str, Layout]:
    """How the graphs hold each parameter, by name, in the order of `spec.parameters`."""
    found: dict[str, Layout] = {}
    for operation in _operations(scenario, seed=0):
        if isinstance(operation, layers.Conv | layers.Dense):
            found |= operation.layouts()
    return found


def training_step(scenario: spec.Scenario, update: Update, seed: int) -> Step:
    """The graph of one training step at any batch size. seed: of the dropout masks."""
    graph = Graph(f"{scenario.label} training step")
    images = graph.input(IMAGES, np.float32, ("batch", *scenario.image))
    labels = graph.input(LABELS, np.int64, ("batch",))
    for name in (INVERSE_BATCH, *update.scalars(step=1)):
        graph.input(name, np.float32, ())
    operations = _pool_before_relu(_operations(scenario, seed))
    logits = _forward(graph, operations, images)
    losses, gradient = _loss(graph, scenario, logits, labels)
    gradients = _backward(graph, operations, graph.node("Mul", gradient, INVERSE_BATCH))

    state: dict[str, State] = {}
    for parameter, layout in layouts(scenario).items():
        slots = [f"{parameter}.{slot}" for slot in update.slots]
        updated = update.apply(graph, parameter, gradients[parameter], slots)
        for name, output in zip((parameter, *slots), updated, strict=True):
            state[name] = State(layout.stored, np.float32, output)
    loss_sum = graph.node("ReduceSum", graph.node("Cast", losses, to=TensorProto.DOUBLE), keepdims=0)
    state[LOSS_SUM] = State((), np.float64, graph.node("Add", LOSS_SUM, loss_sum))
    correct = _correct(graph, scenario, logits, labels)
    state[CORRECT] = State((), np.int64, graph.node("Add", CORRECT, correct))
    for name, tensor in state.items():
        graph.input(name, tensor.dtype, tensor.shape)
        graph.output(tensor.output, tensor.dtype, tensor.shape)
    return Step(graph.serialize(), state)


def evaluation(scenario: spec.Scenario) -> bytes:
    """The graph from `images` and the parameters, both inputs, to the logits."""
    graph = Graph(f"{scenario.label} evaluation")
    for name, layout in layouts(scenario).items():
        graph.input(name, np.float32, layout.stored)
    return _inference(graph, scenario, "batch", "linear")


def prediction(scenario: spec.Scenario, weights: Weights, batch: int) -> bytes:
    """The graph from `images` to the network's output, for one batch size and with these weights (canonical) as
    constants: ONNX Runtime then folds, reorders and blocks them for the machine."""
    graph = Graph(f"{scenario.label} prediction")
    for name, layout in layouts(scenario).items():
        graph.weight(name, layout.to_graph(weights[name]))
    return _inference(graph, scenario, batch, scenario.output.activation)


def _inference(graph: Graph, scenario: spec.Scenario, batch: Dim, activation: spec.Activation) -> bytes:
    images = graph.input(IMAGES, np.float32, (batch, *scenario.image))
    operations = [o for o in _operations(scenario, seed=0) if not isinstance(o, layers.Dropout)]
    output = _forward(graph, operations, images)
    if activation == "softmax":
        output = graph.node("Softmax", output, axis=1)
    elif activation == "sigmoid":
        output = graph.node("Sigmoid", output)
    graph.output(output, np.float32, (batch, scenario.output.units))
    return graph.serialize()


def _operations(scenario: spec.Scenario, seed: int) -> list[Operation]:
    """The network in the graph's terms, up to the logits."""
    found: list[Operation] = []
    planes = any(isinstance(layer, spec.Conv | spec.MaxPool) for layer in scenario.layers)
    if planes:
        found.append(layers.Nchw())
    flattened: spec.Shape | None = None
    for index, layer, before, after in spec.shapes(scenario):
        match layer:
            case spec.Conv():
                found.append(layers.Conv(index, layer, before, after))
            case spec.MaxPool():
                found.append(layers.MaxPool(layer, before, after))
            case spec.Dropout():
                if layer.rate > 0:
                    found.append(layers.Dropout(layer, seed + index))
            case spec.Flatten():
                found.append(layers.Flatten(before))
                flattened = before if planes else None
            case spec.Dense():
                found.append(layers.Dense(index, layer, before[0], flattened))
                flattened = None
        if isinstance(layer, spec.Conv | spec.Dense) and layer.activation == "relu":
            found.append(layers.Relu())
    return found


def _pool_before_relu(operations: list[Operation]) -> list[Operation]:
    """Swap each ReLU with the pooling that follows: they commute, gradients too (where the maximum is above 0 both
    orders find it in the same place, elsewhere the gradient is 0), and ReLU then works on a quarter of the values."""
    swapped = list(operations)
    for i in range(len(swapped) - 1):
        if isinstance(swapped[i], layers.Relu) and isinstance(swapped[i + 1], layers.MaxPool):
            swapped[i], swapped[i + 1] = swapped[i + 1], swapped[i]
    return swapped


def _forward(graph: Graph, operations: list[Operation], x: Tensor) -> Tensor:
    for operation in operations:
        x = operation.forward(graph, x)
    return x


def _backward(graph: Graph, operations: list[Operation], dy: Tensor) -> Gradients:
    """Gradients of all parameters; nothing is computed below the first layer that has any."""
    first = next(i for i, o in enumerate(operations) if isinstance(o, layers.Conv | layers.Dense))
    gradients: Gradients = {}
    for i in range(len(operations) - 1, first - 1, -1):
        dy, found = operations[i].backward(graph, dy, input_needed=i > first)
        gradients |= found
    return gradients


def _loss(graph: Graph, scenario: spec.Scenario, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Loss of each image (batch,) or (batch, 1), and the gradient of their sum with respect to the logits."""
    if scenario.loss == "binary":
        target = graph.node("Cast", graph.node("Unsqueeze", labels, graph.ints(1)), to=TensorProto.FLOAT)
        losses = graph.node("Sub", graph.node("Softplus", logits), graph.node("Mul", logits, target))
        return losses, graph.node("Sub", graph.node("Sigmoid", logits), target)
    classes = graph.constant(np.arange(scenario.output.units, dtype=np.int64))
    one_hot = graph.node("Equal", graph.node("Unsqueeze", labels, graph.ints(1)), classes)
    one_hot = graph.node("Cast", one_hot, to=TensorProto.FLOAT)
    if scenario.output.activation == "sigmoid":
        return _normalised_sigmoid_loss(graph, logits, one_hot)
    log_shares = graph.node("LogSoftmax", logits, axis=1)
    picked = graph.node("ReduceSum", graph.node("Mul", log_shares, one_hot), graph.ints(1), keepdims=0)
    return graph.node("Neg", picked), graph.node("Sub", graph.node("Exp", log_shares), one_hot)


def _normalised_sigmoid_loss(graph: Graph, logits: Tensor, one_hot: Tensor) -> tuple[Tensor, Tensor]:
    """c = clip(sigmoid(z)), loss = log(sum c) - log(c_label): Keras' categorical cross-entropy of a sigmoid output.

    dloss/dz_k = (1 / sum c - [k = label] / c_k) p_k (1 - p_k) where p = sigmoid(z) is not clipped, else 0.
    """
    share = graph.node("Sigmoid", logits)
    clipped = graph.node("Clip", share, graph.scalar(CLIP), graph.scalar(1 - CLIP))
    total = graph.node("ReduceSum", clipped, graph.ints(1), keepdims=1)
    label = graph.node("ReduceSum", graph.node("Mul", clipped, one_hot), graph.ints(1), keepdims=1)
    losses = graph.node("Log", graph.node("Div", total, label))
    slope = graph.node("Sub", graph.node("Reciprocal", total), graph.node("Div", one_hot, clipped))
    inside = graph.node("Cast", graph.node("Equal", share, clipped), to=TensorProto.FLOAT)
    derivative = graph.node("Mul", share, graph.node("Sigmoid", graph.node("Neg", logits)))
    return losses, graph.node("Mul", graph.node("Mul", slope, inside), derivative)


def _correct(graph: Graph, scenario: spec.Scenario, logits: Tensor, labels: Tensor) -> Tensor:
    """How many images of the batch have their label's logit on top (binary: on the right side of 0)."""
    if scenario.loss == "binary":
        above = graph.node("Greater", logits, graph.scalar(0))
        predicted = graph.node("Cast", graph.node("Squeeze", above, graph.ints(1)), to=TensorProto.INT64)
    else:
        predicted = graph.node("ArgMax", logits, axis=1, keepdims=0)
    hits = graph.node("Cast", graph.node("Equal", predicted, labels), to=TensorProto.INT64)
    return graph.node("ReduceSum", hits, keepdims=0)
