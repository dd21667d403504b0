"""Exchange of parameters between PyTorch's modules and the kit's canonical layout."""

import math
from dataclasses import dataclass

import torch
from torch import nn

from scenarios import spec
from scenarios.spec import Conv, Dense, Flatten, Scenario
from scenarios.weights import Weights


@dataclass(frozen=True)
class LayerParameters:
    """Kernel and bias of one layer. index: of the layer in the scenario.

    hwio: the kernel's shape as (height, width, in, out). A `Dense` layer right after `nn.Flatten` has the height and
    width of what was flattened, because `nn.Flatten` returns NCHW order and the canonical order is NHWC. Every other
    dense layer has height and width 1.
    """

    index: int
    module: nn.Module
    hwio: spec.Shape

    def write(self, weights: Weights) -> None:
        """Copy kernel and bias into the module."""
        kernel = weights[f"{self.index}/kernel"].reshape(self.hwio).transpose(3, 2, 0, 1)
        with torch.no_grad():
            self.module.weight.copy_(torch.tensor(kernel.reshape(self.module.weight.shape)))
            self.module.bias.copy_(torch.tensor(weights[f"{self.index}/bias"]))

    def read(self) -> Weights:
        """Return kernel and bias as new canonical arrays."""
        height, width, inputs, outputs = self.hwio
        kernel = self.module.weight.detach().cpu().numpy().reshape(outputs, inputs, height, width)
        shape = (-1, outputs) if isinstance(self.module, nn.Linear) else self.hwio
        return {
            f"{self.index}/kernel": kernel.transpose(2, 3, 1, 0).reshape(shape).copy(),
            f"{self.index}/bias": self.module.bias.detach().cpu().numpy().copy(),
        }


def map_parameters(scenario: Scenario, net: nn.Sequential) -> list[LayerParameters]:
    """Return the parameters of all Conv and Dense layers of `net`, in order."""
    parameters = []
    modules = (module for module in net.modules() if isinstance(module, nn.Conv2d | nn.Linear))
    flattens_nchw = any(isinstance(module, nn.Flatten) for module in net)
    flattened: spec.Shape = (1, 1)  # height and width
    for index, layer, before, after in spec.shapes(scenario):
        if isinstance(layer, Conv):
            parameters.append(LayerParameters(index, next(modules), (layer.kernel, layer.kernel, before[2], after[2])))
        elif isinstance(layer, Flatten) and flattens_nchw:
            flattened = before[:2]
        elif isinstance(layer, Dense):
            hwio = (*flattened, before[0] // math.prod(flattened), *after)
            parameters.append(LayerParameters(index, next(modules), hwio))
            flattened = (1, 1)
    return parameters
