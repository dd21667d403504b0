"""Layers of the tuned lane: each computes what PyTorch's own does, in another way. One takes its step as well."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own name for it
from torch import nn

BYTE = 256


class ConvolvedLinear(nn.Linear):  # type: ignore[misc]
    """A dense layer as a 1x1 convolution of one pixel: that goes to oneDNN, which uses instructions on some processors
    (AVX-512 on AMD's) that the library behind `nn.Linear`, MKL, leaves out there."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, in) to (N, out)."""
        return F.conv2d(x[:, :, None, None], self.weight[:, :, None, None], self.bias).flatten(1)


class UpdatingLinear(nn.Linear):  # type: ignore[misc]
    """A dense layer whose kernel takes its step of plain SGD in the backward pass: the product that would be its
    gradient is added into it, and no gradient is written, read or handed to the optimizer. So each backward pass in
    training mode changes the kernel. The bias has a gradient as ever. float32 alone."""

    def __init__(self, inputs: int, outputs: int, learning_rate: float) -> None:
        super().__init__(inputs, outputs)
        self._learning_rate = learning_rate

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, in) to (N, out)."""
        if not self.training:
            return super().forward(x)
        made: torch.Tensor = _Updating.apply(x, self.weight, self.bias, self._learning_rate)
        return made


class _Updating(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, rate: float) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        ctx.rate = rate
        return F.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, None, torch.Tensor, None]:
        (of_outputs,) = gradients
        x, weight = ctx.saved_tensors
        of_inputs = of_outputs @ weight if ctx.needs_input_grad[0] else None  # by the weights before their step
        weight.addmm_(of_outputs.t(), x, alpha=-ctx.rate)
        return of_inputs, None, of_outputs.sum(0), None


class ChannelsLastFlatten(nn.Module):  # type: ignore[misc]
    """Flattens in the order (H, W, C): with the strides of channels-last nothing is copied, nor on the way back."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, C, H, W) to (N, H * W * C)."""
        return x.permute(0, 2, 3, 1).flatten(1)


class ByteDropout(nn.Module):  # type: ignore[misc]
    """Dropout at a rate that is a whole number of 256ths: each value is kept or zeroed by a random byte of its own. On
    the CPU PyTorch's own draws a double for each, in one thread."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self._zeroed = int(rate * BYTE)  # of the bytes
        self._scale = 1 / (1 - rate)

    @staticmethod
    def has(rate: float) -> bool:
        """Whether bytes can have this rate."""
        return (rate * BYTE).is_integer()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Any shape, without gaps in memory."""
        if not self.training:
            return x
        words = torch.empty(-(-x.numel() // 8), dtype=torch.int64, device=x.device).random_(-(2**63), None)
        kept = words.view(torch.uint8)[: x.numel()] >= self._zeroed
        return x * kept.as_strided(x.shape, x.stride()).to(x.dtype).mul_(self._scale)
