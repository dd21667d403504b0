"""The training step as one graph: forward, loss, backward and optimizer update.

ONNX Runtime's inference package has no training API, but a training step is a function like any other: parameters and
optimizer state go in, their updated values come out. `Trainer` runs it. See docs/decisions/0002.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from onnx import TensorProto

from scenarios import spec
from scenarios.frameworks.onnxruntime import layers
from scenarios.frameworks.onnxruntime.graph import Graph, Tensor
from scenarios.frameworks.onnxruntime.layers import Gradients, Operation
from scenarios.frameworks.onnxruntime.network import add_forward, declare_images, layouts, make_operations
from scenarios.frameworks.onnxruntime.optimizers import Update, make_update

LABELS, INVERSE_BATCH, LOSS_SUM, CORRECT = "labels", "inverse_batch", "loss_sum", "correct"
ORDER, LENGTH, OFFSETS, BATCH, POSITION = "order", "length", "offsets", "batch", "position"
CLIP = 1e-7  # Keras' epsilon


@dataclass(frozen=True)
class StateTensor:
    """A tensor that a step reads and returns updated. output: its name among the graph's outputs."""

    shape: spec.Shape
    dtype: npt.DTypeLike
    output: Tensor


@dataclass(frozen=True)
class StepGraph:
    """A serialized training step. state: the tensors that it updates, by input name.

    Further inputs: `images` (batch, H, W, C), `labels` (batch,), `inverse_batch` (1 / batch) and the scalars of
    `update`. The state includes `loss_sum` and `correct`: each step adds the batch's summed loss and its number of
    correct predictions, both before the update.

    A graph that gathers its batch reads a whole set: `images` (length, H, W, C), `labels` (length,), `order` (length,)
    with the indices of an epoch, and the scalar `length`. Its batch starts at `position` in the order, and continues
    with the first index after the last. The state includes the position. Each step adds `batch` to it. Further inputs:
    the scalar `batch`, and `offsets` (batch,), which are 0, 1, ..., batch - 1.
    """

    model: bytes
    state: dict[str, StateTensor]
    update: Update

    @property
    def slots(self) -> list[str]:
        """Return the names of the optimizer's tensors in the state."""
        return [name for name in self.state if name.rpartition(".")[2] in self.update.slots]


def build_step_graph(
    scenario: spec.Scenario, seed: int, *, transposes: bool = True, gathers: bool = False
) -> StepGraph:
    """Return the graph of one training step at any batch size.

    seed: of the dropout masks. transposes: see `layers.Conv`. gathers: whether the graph gathers its batch.
    """
    graph, update = Graph(f"{scenario.label} training step"), make_update(scenario.optimizer)
    count = "length" if gathers else "batch"
    images, labels = declare_images(graph, scenario, count), graph.input(LABELS, np.int64, (count,))
    state: dict[str, StateTensor] = {}
    if gathers:
        indices, state[POSITION] = _next_indices(graph)
        images, labels = (graph.node("Gather", tensor, indices) for tensor in (images, labels))
    for name in (INVERSE_BATCH, *update.scalars(step=1)):
        graph.input(name, np.float32, ())
    operations = _pool_before_relu(make_operations(scenario, seed, transposes=transposes))
    logits = add_forward(graph, scenario, operations, images)
    losses, gradient = _loss(graph, scenario, logits, labels)
    gradients = _backward(graph, operations, graph.node("Mul", gradient, INVERSE_BATCH))

    for parameter, layout in layouts(scenario).items():
        slots = [f"{parameter}.{slot}" for slot in update.slots]
        updated = update.apply(graph, parameter, gradients[parameter], slots)
        for name, output in zip((parameter, *slots), updated, strict=True):
            state[name] = StateTensor(layout.stored, np.float32, output)
    loss_sum = graph.node("ReduceSum", graph.node("Cast", losses, to=TensorProto.DOUBLE), keepdims=0)
    state[LOSS_SUM] = StateTensor((), np.float64, graph.node("Add", LOSS_SUM, loss_sum))
    correct = _count_correct(graph, scenario, logits, labels)
    state[CORRECT] = StateTensor((), np.int64, graph.node("Add", CORRECT, correct))
    for name, tensor in state.items():
        graph.input(name, tensor.dtype, tensor.shape)
        graph.output(tensor.output, tensor.dtype, tensor.shape)
    return StepGraph(graph.serialize(), state, update)


def _next_indices(graph: Graph) -> tuple[Tensor, StateTensor]:
    """Return the indices of the batch, (batch,), and the state of the position in the order."""
    order, offsets = graph.input(ORDER, np.int64, ("length",)), graph.input(OFFSETS, np.int64, ("batch",))
    length, batch = (graph.input(name, np.int64, ()) for name in (LENGTH, BATCH))
    places = graph.node("Mod", graph.node("Add", POSITION, offsets), length)
    return graph.node("Gather", order, places), StateTensor((), np.int64, graph.node("Add", POSITION, batch))


def _pool_before_relu(operations: list[Operation]) -> list[Operation]:
    """Swap each ReLU with the pooling that follows, so that ReLU works on a quarter of the values.

    The two commute, and so do their gradients: if the maximum is above 0, both orders find it in the same place;
    otherwise the gradient is 0.
    """
    swapped = list(operations)
    for i in range(len(swapped) - 1):
        if isinstance(swapped[i], layers.Relu) and isinstance(swapped[i + 1], layers.MaxPool):
            swapped[i], swapped[i + 1] = swapped[i + 1], swapped[i]
    return swapped


def _backward(graph: Graph, operations: list[Operation], dy: Tensor) -> Gradients:
    """Return the gradients of all parameters. The pass ends at the first layer that has parameters."""
    first = next(i for i, o in enumerate(operations) if isinstance(o, layers.Conv | layers.Dense))
    gradients: Gradients = {}
    for i in range(len(operations) - 1, first - 1, -1):
        dy, found = operations[i].backward(graph, dy, input_needed=i > first)
        gradients |= found
    return gradients


def _loss(graph: Graph, scenario: spec.Scenario, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the loss of each image, (batch,) or (batch, 1), and the gradient of their sum by the logits."""
    if scenario.loss == "binary":
        target = graph.node("Cast", graph.node("Unsqueeze", labels, graph.ints(1)), to=TensorProto.FLOAT)
        losses = graph.node("Sub", graph.node("Softplus", logits), graph.node("Mul", logits, target))
        return losses, graph.node("Sub", graph.node("Sigmoid", logits), target)
    classes = graph.constant(np.arange(scenario.output.units, dtype=np.int64))
    one_hot = graph.node("Equal", graph.node("Unsqueeze", labels, graph.ints(1)), classes)
    one_hot = graph.node("Cast", one_hot, to=TensorProto.FLOAT)
    if scenario.output.activation == "sigmoid":
        return _normalized_sigmoid_loss(graph, logits, one_hot)
    log_shares = graph.node("LogSoftmax", logits, axis=1)
    picked = graph.node("ReduceSum", graph.node("Mul", log_shares, one_hot), graph.ints(1), keepdims=0)
    return graph.node("Neg", picked), graph.node("Sub", graph.node("Exp", log_shares), one_hot)


def _normalized_sigmoid_loss(graph: Graph, logits: Tensor, one_hot: Tensor) -> tuple[Tensor, Tensor]:
    """Return Keras' categorical cross-entropy of a sigmoid output, and its gradient.

    c = clip(sigmoid(z)), loss = log(sum c) - log(c_label).
    dloss/dz_k = (1 / sum c - [k = label] / c_k) p_k (1 - p_k) if p = sigmoid(z) is not clipped, else 0.
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


def _count_correct(graph: Graph, scenario: spec.Scenario, logits: Tensor, labels: Tensor) -> Tensor:
    """Return how many images have the largest logit at their label (binary: on the label's side of 0)."""
    if scenario.loss == "binary":
        above = graph.node("Greater", logits, graph.scalar(0))
        predicted = graph.node("Cast", graph.node("Squeeze", above, graph.ints(1)), to=TensorProto.INT64)
    else:
        predicted = graph.node("ArgMax", logits, axis=1, keepdims=0)
    hits = graph.node("Cast", graph.node("Equal", predicted, labels), to=TensorProto.INT64)
    return graph.node("ReduceSum", hits, keepdims=0)
