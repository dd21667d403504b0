"""Optimizer updates in ONNX.

ONNX Runtime runs each elementwise node as one pass over memory, so the number of passes sets the cost. A running
average a = r a + (1 - r) g is therefore stored divided by (1 - r): A = r A + g saves one pass. The constant goes into
epsilon and the step size at no cost.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from scenarios import spec
from scenarios.frameworks.onnxruntime.graph import Graph, Tensor
from scenarios.frameworks.onnxruntime.layers import Gradient, Product

STEP_SIZE = "step_size"


class Update(ABC):
    """The update of an optimizer. slots: names of the tensors that it keeps per parameter, of the parameter's shape
    and zero at the start."""

    slots: ClassVar[tuple[str, ...]] = ()

    def scalars(self, step: int) -> dict[str, float]:
        """Return the scalar inputs of this step (the first is 1) by name. The names are the same at every step."""
        return {}

    @abstractmethod
    def apply(self, graph: Graph, parameter: Tensor, gradient: Gradient, slots: list[Tensor]) -> list[Tensor]:
        """Add the nodes of one parameter's update. Return the new parameter and its new slots."""


@dataclass(frozen=True)
class Sgd(Update):
    """w - lr g. For a dense kernel this is one Gemm: w - lr (x^T dy)."""

    sgd: spec.Sgd

    def apply(self, graph: Graph, parameter: Tensor, gradient: Gradient, slots: list[Tensor]) -> list[Tensor]:
        rate = self.sgd.learning_rate
        if isinstance(gradient, Product):
            factors = gradient.left_transposed, gradient.right
            return [graph.node("Gemm", *factors, parameter, transA=1, alpha=-rate, beta=1.0)]
        return [graph.node("Sub", parameter, graph.node("Mul", gradient, graph.scalar(rate)))]


@dataclass(frozen=True)
class Adam(Update):
    """w - lr sqrt(1 - b2^t) / (1 - b1^t) m / (sqrt(v) + eps): Kingma and Ba 2014, the form at the end of section 2,
    which is Keras'. With m = (1 - b1) M and v = (1 - b2) V that is w - step_size M / (sqrt(V) + eps / sqrt(1 - b2)),
    where step_size = lr sqrt(1 - b2^t) / (1 - b1^t) (1 - b1) / sqrt(1 - b2).
    """

    adam: spec.Adam
    slots: ClassVar[tuple[str, ...]] = ("mean", "square")

    def scalars(self, step: int) -> dict[str, float]:
        adam = self.adam
        correction = math.sqrt(1 - adam.beta_2**step) / (1 - adam.beta_1**step)
        return {STEP_SIZE: adam.learning_rate * correction * (1 - adam.beta_1) / math.sqrt(1 - adam.beta_2)}

    def apply(self, graph: Graph, parameter: Tensor, gradient: Gradient, slots: list[Tensor]) -> list[Tensor]:
        adam, g = self.adam, _multiplied(graph, gradient)
        mean = _decayed_sum(graph, slots[0], adam.beta_1, g)
        square = _decayed_sum(graph, slots[1], adam.beta_2, graph.node("Mul", g, g))
        epsilon = graph.scalar(adam.epsilon / math.sqrt(1 - adam.beta_2))
        denominator = graph.node("Add", graph.node("Sqrt", square), epsilon)
        change = graph.node("Div", graph.node("Mul", mean, STEP_SIZE), denominator)
        return [graph.node("Sub", parameter, change), mean, square]


@dataclass(frozen=True)
class Adadelta(Update):
    """w - lr d, d = sqrt(u + eps) / sqrt(v + eps) g: Zeiler 2012.

    v is the running average of g^2, and u that of d^2 before this step. Both are stored divided by (1 - rho), and the
    quotient stays the same with eps / (1 - rho).
    """

    adadelta: spec.Adadelta
    slots: ClassVar[tuple[str, ...]] = ("square", "change_square")

    def apply(self, graph: Graph, parameter: Tensor, gradient: Gradient, slots: list[Tensor]) -> list[Tensor]:
        adadelta, g = self.adadelta, _multiplied(graph, gradient)
        epsilon = graph.scalar(adadelta.epsilon / (1 - adadelta.rho))
        square = _decayed_sum(graph, slots[0], adadelta.rho, graph.node("Mul", g, g))
        quotient = graph.node("Div", graph.node("Add", slots[1], epsilon), graph.node("Add", square, epsilon))
        change = graph.node("Mul", graph.node("Sqrt", quotient), g)
        change_square = _decayed_sum(graph, slots[1], adadelta.rho, graph.node("Mul", change, change))
        step = graph.node("Mul", change, graph.scalar(adadelta.learning_rate))
        return [graph.node("Sub", parameter, step), square, change_square]


def make_update(optimizer: spec.Optimizer) -> Update:
    """Return the update of a scenario's optimizer."""
    match optimizer:
        case spec.Sgd():
            return Sgd(optimizer)
        case spec.Adam():
            return Adam(optimizer)
        case spec.Adadelta():
            return Adadelta(optimizer)


def _multiplied(graph: Graph, gradient: Gradient) -> Tensor:
    return gradient.multiply(graph) if isinstance(gradient, Product) else gradient


def _decayed_sum(graph: Graph, total: Tensor, decay: float, value: Tensor) -> Tensor:
    return graph.node("Add", graph.node("Mul", total, graph.scalar(decay)), value)
