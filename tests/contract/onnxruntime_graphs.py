"""The graphs that ONNX Runtime's adapter makes of a scenario."""

from __future__ import annotations

from scenarios.frameworks.onnxruntime.network import evaluation_graph, prediction_graph
from scenarios.frameworks.onnxruntime.step_graph import build_step_graph
from scenarios.spec import Scenario
from scenarios.weights import initial_weights


def graphs(scenario: Scenario, **options: bool) -> list[bytes]:
    """Return the serialized graphs of training, evaluation and prediction. options: of `build_step_graph`."""
    weights = initial_weights(scenario, seed=0)
    return [
        build_step_graph(scenario, seed=0, **options).model,
        evaluation_graph(scenario),
        prediction_graph(scenario, weights, scenario.batch),
    ]
