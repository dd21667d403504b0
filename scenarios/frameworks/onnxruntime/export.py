"""Write a trained network as an ONNX model that any ONNX runtime can load."""

import numpy as np
import onnx
from onnx import checker, helper

from scenarios import spec
from scenarios.frameworks.onnxruntime.graph import Graph, Tensor
from scenarios.frameworks.onnxruntime.network import IMAGES, add_inference, layouts
from scenarios.frameworks.onnxruntime.step_graph import CLIP
from scenarios.weights import Weights

PROBABILITIES = "probabilities"


def export(scenario: spec.Scenario, weights: Weights, about: dict[str, str]) -> bytes:
    """Return the ONNX model of a network with these (canonical) weights.

    Its input `images` is (batch, H, W, C) float32 in [0, 1]. Its output `probabilities` is (batch, units): one unit for
    each class, or for a binary loss the probability of the second class. about: the model's metadata.
    """
    graph = Graph(scenario.label)
    for name, layout in layouts(scenario).items():
        graph.named_constant(name, layout.to_graph(weights[name]))
    output = _probabilities(graph, scenario, add_inference(graph, scenario, "batch"))
    graph.named(output, PROBABILITIES)
    graph.output(PROBABILITIES, np.float32, ("batch", scenario.output.units))
    model = onnx.load_model_from_string(graph.serialize())
    classes = ", ".join(spec.DATASETS[scenario.dataset].classes)
    model.producer_name = "kit"
    model.doc_string = (
        f"{scenario.title}. Input: {IMAGES} (batch, height, width, channels), pixel values divided by 255. "
        f"Output: {PROBABILITIES}. Classes: {classes}."
    )
    helper.set_model_props(model, about)
    checker.check_model(model, full_check=True)
    return bytes(model.SerializeToString())


def _probabilities(graph: Graph, scenario: spec.Scenario, logits: Tensor) -> Tensor:
    """Add what turns logits into probabilities, as the loss defines them: see `scenarios.spec.Scenario`."""
    if scenario.loss == "binary":
        return graph.node("Sigmoid", logits)
    if scenario.output.activation != "sigmoid":  # softmax, or logits with a softmax in the loss
        return graph.node("Softmax", logits, axis=1)
    clipped = graph.node("Clip", graph.node("Sigmoid", logits), graph.scalar(CLIP), graph.scalar(1 - CLIP))
    return graph.node("Div", clipped, graph.node("ReduceSum", clipped, graph.ints(1), keepdims=1))
