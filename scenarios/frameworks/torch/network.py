"""A scenario in PyTorch's terms: `nn.Sequential`, weights in and out of canonical layout, optimizer, loss."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own name for it
from torch import nn

from scenarios import spec
from scenarios.frameworks.torch.layers import Blocked, ByteDropout, ChannelsLastFlatten, TunedLinear, onednn_product
from scenarios.frameworks.torch.optimizers import FusedAdam
from scenarios.spec import Adadelta, Adam, Conv, Dense, Dropout, Flatten, MaxPool, Scenario, Sgd
from scenarios.weights import Weights

LossFunction = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def build_net(scenario: Scenario, settings: Mapping[str, str]) -> nn.Sequential:
    """The network up to the logits; the last activation is left to loss and predictor. settings: of
    `settings.offered`."""
    dropout = ByteDropout if settings.get("dropout") == "bytes" else nn.Dropout
    flatten = ChannelsLastFlatten if settings.get("layout") == "nhwc" else nn.Flatten
    relu = settings.get("relu", "apart")
    modules: list[nn.Module] = []
    for _, layer, before, _ in spec.shapes(scenario):
        behind = modules.pop() if isinstance(layer, MaxPool) and relu == "after pooling" and _is_relu(modules) else None
        match layer:
            case Conv(filters=filters, kernel=kernel, padding=padding):
                modules.append(nn.Conv2d(before[2], filters, kernel, padding=padding))
            case MaxPool(size=size):
                modules.append(nn.MaxPool2d(size))
            case Dropout(rate=rate):
                modules.append(dropout(rate))
            case Flatten():
                modules.append(flatten())
            case Dense(units=units):
                modules.append(_dense(scenario.optimizer, settings, before[0], units))
        if isinstance(layer, Conv | Dense) and layer.activation == "relu":
            modules.append(nn.ReLU(inplace=relu != "apart"))
        if behind:  # of the largest value it is the same as the largest of it, for fewer values
            modules.append(behind)
    return nn.Sequential(*(_blocked(modules) if settings.get("layout") == "blocked" else modules))


def _blocked(modules: list[nn.Module]) -> list[nn.Module]:
    """The same with all that comes first and can be in a `Blocked` in one. A ReLU at its end is as quick outside."""
    first = list(itertools.takewhile(Blocked.has, modules))
    if _is_relu(first):
        first.pop()
    return [Blocked(*first), *modules[len(first) :]]


def _dense(optimizer: spec.Optimizer, settings: Mapping[str, str], inputs: int, units: int) -> nn.Linear:
    product = onednn_product if settings.get("dense") == "onednn" else F.linear
    if settings.get("kernels") == "stepped backward":
        if not isinstance(optimizer, Sgd):
            raise ValueError(f"only plain SGD adds gradients as they are, {optimizer} does not")
        return TunedLinear(inputs, units, product, optimizer.learning_rate)
    return TunedLinear(inputs, units, product, None) if product is onednn_product else nn.Linear(inputs, units)


def _is_relu(modules: list[nn.Module]) -> bool:
    return bool(modules) and isinstance(modules[-1], nn.ReLU)


@dataclass(frozen=True)
class Slot:
    """Where the two parameters of one layer live, and how they turn into canonical layout and back.

    Every kernel is seen as (height, width, in, out): a `Dense` right after `nn.Flatten` spans the whole height and
    width of what was flattened, which turns the canonical NHWC order into the NCHW order that it leaves; other dense
    layers have height and width 1.
    """

    index: int
    module: nn.Module
    hwio: spec.Shape
    canonical: spec.Shape

    def write(self, weights: Weights) -> None:
        """Copy kernel and bias into the module."""
        height, width, inputs, outputs = self.hwio
        kernel = weights[f"{self.index}/kernel"].reshape(height, width, inputs, outputs).transpose(3, 2, 0, 1)
        with torch.no_grad():
            self.module.weight.copy_(torch.tensor(kernel.reshape(self.module.weight.shape)))
            self.module.bias.copy_(torch.tensor(weights[f"{self.index}/bias"]))

    def read(self) -> Weights:
        """Kernel and bias as new canonical arrays."""
        height, width, inputs, outputs = self.hwio
        kernel = self.module.weight.detach().cpu().numpy().reshape(outputs, inputs, height, width)
        return {
            f"{self.index}/kernel": kernel.transpose(2, 3, 1, 0).reshape(self.canonical).copy(),
            f"{self.index}/bias": self.module.bias.detach().cpu().numpy().copy(),
        }


def find_slots(scenario: Scenario, net: nn.Sequential) -> list[Slot]:
    """The slots of all Conv and Dense layers of `net`, in order."""
    slots = []
    modules = (module for module in net.modules() if isinstance(module, nn.Conv2d | nn.Linear))
    canonical = any(isinstance(module, ChannelsLastFlatten) for module in net)
    flattened: spec.Shape = (1, 1)
    for index, layer, before, after in spec.shapes(scenario):
        match layer:
            case Conv(kernel=kernel):
                shape = (kernel, kernel, before[2], after[2])
                slots.append(Slot(index, next(modules), shape, shape))
            case Flatten():
                flattened = (1, 1) if canonical else before[:2]
            case Dense():
                hwio = (*flattened, before[0] // math.prod(flattened), *after)
                slots.append(Slot(index, next(modules), hwio, (*before, *after)))
                flattened = (1, 1)
            case MaxPool() | Dropout():
                pass
    return slots


def build_optimizer(
    optimizer: spec.Optimizer, net: nn.Module, how: str | None = None, *, capturable: bool = False
) -> torch.optim.Optimizer:
    """The optimizer, every hyper-parameter that changes the update spelled out. how: its implementation, of
    `settings.offered`; None for PyTorch's own choice. capturable: keeps its count of steps on the device, so
    that a CUDA graph can hold a step; SGD counts none."""
    parameters = list(net.parameters())
    if how == "fused" and isinstance(optimizer, Adam):
        return FusedAdam(parameters, optimizer)
    forms: dict[str, Any] = {"loop": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}
    form = forms.get(how or "", {})
    match optimizer:
        case Sgd(learning_rate=rate):
            return torch.optim.SGD(parameters, lr=rate, momentum=0, dampening=0, weight_decay=0, nesterov=False, **form)
        case Adam(learning_rate=rate, beta_1=beta_1, beta_2=beta_2, epsilon=epsilon):
            return torch.optim.Adam(
                parameters,
                lr=rate,
                betas=(beta_1, beta_2),
                eps=epsilon,
                weight_decay=0,
                amsgrad=False,
                capturable=capturable,
                **form,
            )
        case Adadelta(learning_rate=rate, rho=rho, epsilon=epsilon):
            return torch.optim.Adadelta(
                parameters, lr=rate, rho=rho, eps=epsilon, weight_decay=0, capturable=capturable, **form
            )


def loss_function(scenario: Scenario) -> LossFunction:
    """(logits, labels) to the mean loss, as `Scenario` defines it."""
    if scenario.loss == "binary":
        return lambda logits, labels: F.binary_cross_entropy_with_logits(logits.squeeze(1), labels.to(logits.dtype))
    if scenario.output.activation == "sigmoid":
        return sigmoid_categorical
    softmax_categorical: LossFunction = F.cross_entropy
    return softmax_categorical


def sigmoid_categorical(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Keras' categorical loss after sigmoid outputs: clip, normalise to sum 1, -log of the label's share."""
    outputs = logits.sigmoid().clamp(1e-7, 1 - 1e-7)
    return F.nll_loss(outputs.log() - outputs.sum(1, keepdim=True).log(), labels)
