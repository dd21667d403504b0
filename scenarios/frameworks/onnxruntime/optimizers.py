"""Optimizer updates in ONNX.

ONNX Runtime runs each elementwise node as one pass over memory, so passes are what counts. Running averages
a = r a + (1 - r) g are therefore held divided by (1 - r): A = r A + g saves one pass each, and the constant goes into
epsilon and the step size, which cost nothing.
"""

from __future__ import annotations

import math
from typing import Protocol

from scenarios import spec
from scenarios.frameworks.onnxruntime.graph import Graph, Tensor
from scenarios.frameworks.onnxruntime.layers import Gradient, Product

STEP_SIZE = "step_size"


class Update(Protocol):
    """An optimizer. slots: names of the tensors it keeps for each parameter, of its shape, zero at the start."""

    slots: tuple[str, ...]

    def scalars(self, step: int) -> dict[str, float]:
        """What the host hands in at this step (the first is 1), by input name; the names are always the same."""

    def apply(self, graph: Graph, parameter: Tensor, gradient: Gradient, state: list[Tensor]) -> list[Tensor]:
        """Add the nodes of one parameter's update; returns the new parameter and its new slots."""


class Sgd:
    """w - lr g, for a dense kernel as one Gemm: w - lr (x^T dy)."""

    slots: tuple[str, ...] = ()

    def __init__(self, optimizer: spec.Sgd) -> None:
        self._learning_rate = optimizer.learning_rate

    def scalars(self, step: int) -> dict[str, float]:
        return {}

    def apply(self, graph: Graph, parameter: Tensor, gradient: Gradient, state: list[Tensor]) -> list[Tensor]:
        if isinstance(gradient, Product):
            factors = gradient.left_transposed, gradient.right
            return [graph.node("Gemm", *factors, parameter, transA=1, alpha=-self._learning_rate, beta=1.0)]
        change = graph.node("Mul", gradient, graph.scalar(self._learning_rate))
        return [graph.node("Sub", parameter, change)]


class Adam:
    """w - lr sqrt(1 - b2^t) / (1 - b1^t) m / (sqrt(v) + eps): Kingma and Ba 2014, the form at the end of section 2,
    which is Keras'. With m = (1 - b1) M and v = (1 - b2) V that is w - step_size M / (sqrt(V) + eps / sqrt(1 - b2)),
    where step_size = lr sqrt(1 - b2^t) / (1 - b1^t) (1 - b1) / sqrt(1 - b2).
    """

    slots: tuple[str, ...] = ("mean", "square")

    def __init__(self, optimizer: spec.Adam) -> None:
        self._adam = optimizer

    def scalars(self, step: int) -> dict[str, float]:
        adam = self._adam
        correction = math.sqrt(1 - adam.beta_2**step) / (1 - adam.beta_1**step)
        return {STEP_SIZE: adam.learning_rate * correction * (1 - adam.beta_1) / math.sqrt(1 - adam.beta_2)}

    def apply(self, graph: Graph, parameter: Tensor, gradient: Gradient, state: list[Tensor]) -> list[Tensor]:
        adam = self._adam
        g = _tensor(graph, gradient)
        mean = _decayed_sum(graph, state[0], adam.beta_1, g)
        square = _decayed_sum(graph, state[1], adam.beta_2, graph.node("Mul", g, g))
        epsilon = graph.scalar(adam.epsilon / math.sqrt(1 - adam.beta_2))
        denominator = graph.node("Add", graph.node("Sqrt", square), epsilon)
        change = graph.node("Div", graph.node("Mul", mean, STEP_SIZE), denominator)
        return [graph.node("Sub", parameter, change), mean, square]


class Adadelta:
    """w - lr d, d = sqrt(u + eps) / sqrt(v + eps) g, with v the running average of g^2 and u, before this step, that
    of d^2: Zeiler 2012. Both are held divided by (1 - rho), which leaves the quotient as it is with
    eps / (1 - rho)."""

    slots: tuple[str, ...] = ("square", "change_square")

    def __init__(self, optimizer: spec.Adadelta) -> None:
        self._adadelta = optimizer

    def scalars(self, step: int) -> dict[str, float]:
        return {}

    def apply(self, graph: Graph, parameter: Tensor, gradient: Gradient, state: list[Tensor]) -> list[Tensor]:
        adadelta = self._adadelta
        epsilon = graph.scalar(adadelta.epsilon / (1 - adadelta.rho))
        g = _tensor(graph, gradient)
        square = _decayed_sum(graph, state[0], adadelta.rho, graph.node("Mul", g, g))
        quotient = graph.node("Div", graph.node("Add", state[1], epsilon), graph.node("Add", square, epsilon))
        change = graph.node("Mul", graph.node("Sqrt", quotient), g)
        change_square = _decayed_sum(graph, state[1], adadelta.rho, graph.node("Mul", change, change))
        step = graph.node("Mul", change, graph.scalar(adadelta.learning_rate))
        return [graph.node("Sub", parameter, step), square, change_square]


def update_of(optimizer: spec.Optimizer) -> Update:
    """The update that a scenario's optimizer asks for."""
    match optimizer:
        case spec.Sgd():
            return Sgd(optimizer)
        case spec.Adam():
            return Adam(optimizer)
        case spec.Adadelta():
            return Adadelta(optimizer)


def _tensor(graph: Graph, gradient: Gradient) -> Tensor:
    return gradient.tensor(graph) if isinstance(gradient, Product) else gradient


def _decayed_sum(graph: Graph, total: Tensor, decay: float, value: Tensor) -> Tensor:
    return graph.node("Add", graph.node("Mul", total, graph.scalar(decay)), value)
