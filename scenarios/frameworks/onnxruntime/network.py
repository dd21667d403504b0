"""A scenario's network in ONNX: its operations, how the graphs store the parameters, and the two inference graphs."""

import numpy as np

from scenarios import spec
from scenarios.frameworks.onnxruntime import layers
from scenarios.frameworks.onnxruntime.graph import Dim, Graph, Tensor
from scenarios.frameworks.onnxruntime.layers import Layout, Operation
from scenarios.weights import Weights

IMAGES = "images"


def evaluation_graph(scenario: spec.Scenario) -> bytes:
    """Return the graph that computes the logits. Its inputs are `images` and the parameters."""
    graph = Graph(f"{scenario.label} evaluation")
    for name, layout in layouts(scenario).items():
        graph.input(name, np.float32, layout.stored)
    return _inference(graph, scenario, "batch", "linear")


def prediction_graph(scenario: spec.Scenario, weights: Weights, batch: int) -> bytes:
    """Return the graph that computes the network's output for one batch size. Its input is `images`.

    The (canonical) weights are constants, so that ONNX Runtime can fold, reorder and block them for the machine.
    """
    graph = Graph(f"{scenario.label} prediction")
    for name, layout in layouts(scenario).items():
        graph.named_constant(name, layout.to_graph(weights[name]))
    return _inference(graph, scenario, batch, scenario.output.activation)


def layouts(scenario: spec.Scenario) -> dict[str, Layout]:
    """Return how the graphs store each parameter, by name, in the order of `spec.parameters`."""
    found: dict[str, Layout] = {}
    for operation in make_operations(scenario, seed=0):
        if isinstance(operation, layers.Conv | layers.Dense):
            found |= operation.layouts()
    return found


def make_operations(scenario: spec.Scenario, seed: int, *, transposes: bool = True) -> list[Operation]:
    """Return the network's operations up to the logits. seed: of the dropout masks. transposes: see `layers.Conv`."""
    found: list[Operation] = []
    flattened: spec.Shape | None = None
    for index, layer, before, after in spec.shapes(scenario):
        match layer:
            case spec.Conv():
                found.append(layers.Conv(index, layer, before, after, transposes=transposes))
            case spec.MaxPool():
                found.append(layers.MaxPool(layer, before, after))
            case spec.Dropout():
                if layer.rate > 0:
                    found.append(layers.Dropout(layer, seed + index))
            case spec.Flatten():
                found.append(layers.Flatten(before))
                flattened = before if _has_feature_maps(scenario) else None
            case spec.Dense():
                found.append(layers.Dense(index, layer, before[0], flattened))
                flattened = None
        if isinstance(layer, spec.Conv | spec.Dense) and layer.activation == "relu":
            found.append(layers.Relu())
    return found


def declare_images(graph: Graph, scenario: spec.Scenario, count: Dim) -> Tensor:
    """Declare the input `images` (count, H, W, C)."""
    return graph.input(IMAGES, np.float32, (count, *scenario.image))


def add_forward(graph: Graph, scenario: spec.Scenario, operations: list[Operation], images: Tensor) -> Tensor:
    """Add the forward pass from a batch (batch, H, W, C), and return the logits."""
    x = graph.node("Transpose", images, perm=[0, 3, 1, 2]) if _has_feature_maps(scenario) else images
    for operation in operations:
        x = operation.forward(graph, x)
    return x


def add_inference(graph: Graph, scenario: spec.Scenario, batch: Dim) -> Tensor:
    """Add the network without dropout, from its input `images` on, and return the logits."""
    operations = [o for o in make_operations(scenario, seed=0) if not isinstance(o, layers.Dropout)]
    return add_forward(graph, scenario, operations, declare_images(graph, scenario, batch))


def _has_feature_maps(scenario: spec.Scenario) -> bool:
    return any(isinstance(layer, spec.Conv | spec.MaxPool) for layer in scenario.layers)


def _inference(graph: Graph, scenario: spec.Scenario, batch: Dim, activation: spec.Activation) -> bytes:
    output = add_inference(graph, scenario, batch)
    if activation == "softmax":
        output = graph.node("Softmax", output, axis=1)
    elif activation == "sigmoid":
        output = graph.node("Sigmoid", output)
    graph.output(output, np.float32, (batch, scenario.output.units))
    return graph.serialize()
