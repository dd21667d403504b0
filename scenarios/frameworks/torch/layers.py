"""Layers of the tuned lane: each computes what PyTorch's own does, in another way. One takes its step as well."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

BYTE = 256

Product = Callable[[torch.Tensor, torch.Tensor, torch.Tensor | None], torch.Tensor]

Network = Callable[[torch.Tensor], torch.Tensor]


def onednn_product(x: torch.Tensor, kernel: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """`F.linear` by oneDNN, which uses instructions on some processors (AVX-512 on AMD's) that the library behind
    PyTorch's own, MKL, leaves out there. On the CPU; has no gradient of its own. (A kernel's gradient, which has few
    terms and many values, takes either as long.)"""
    made: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, kernel, bias, "none", [], "")  # noqa: SLF001
    return made


def has_onednn_product() -> bool:
    """Whether this build of PyTorch has what `onednn_product` calls: an operator that `torch.compile` uses itself."""
    return hasattr(torch.ops.mkldnn, "_linear_pointwise")


class TunedLinear(nn.Linear):  # type: ignore[misc]
    """A dense layer that trains by a product of choice; evaluated as ever.

    learning_rate: None, or that of plain SGD: then the kernel takes its step in the backward pass, and no gradient of
    it is kept or handed to the optimizer. In float32 none is written at all: the product that would be it is added into
    the kernel. So each backward pass in training mode changes the kernel. The bias has a gradient as ever. Under
    autocast products are taken in its dtype, and kernels stay float32, as those of `nn.Linear`.
    """

    def __init__(self, inputs: int, outputs: int, product: Product, learning_rate: float | None) -> None:
        super().__init__(inputs, outputs)
        self.product = product
        self.learning_rate = learning_rate

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, in) to (N, out)."""
        if not self.training:
            return super().forward(x)
        kind = x.device.type
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else torch.float32
        made: torch.Tensor = _Dense.apply(x, self.weight, self.bias, self.product, self.learning_rate, dtype)
        return made


class _Dense(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        kernel: torch.Tensor,
        bias: torch.Tensor,
        product: Product,
        rate: float | None,
        dtype: torch.dtype,
    ) -> torch.Tensor:
        x, factor, bias = x.to(dtype), kernel.to(dtype), bias.to(dtype)
        ctx.save_for_backward(x, factor, kernel)
        ctx.product, ctx.rate = product, rate
        return product(x, factor, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (of_outputs,) = gradients
        x, factor, kernel = ctx.saved_tensors
        # by the weights before their step
        of_inputs = ctx.product(of_outputs, factor.t(), None) if ctx.needs_input_grad[0] else None
        of_kernel = None
        if ctx.rate is None:
            of_kernel = of_outputs.t() @ x
        elif x.dtype is kernel.dtype:
            kernel.addmm_(of_outputs.t(), x, alpha=-ctx.rate)
        else:
            kernel.add_(of_outputs.t() @ x, alpha=-ctx.rate)
        return of_inputs, of_kernel, of_outputs.sum(0), None, None, None


class Blocked(nn.Sequential):  # type: ignore[misc]
    """Convolutions, poolings and ReLUs that train on tensors in oneDNN's own blocked layouts, in which convolutions of
    few channels are quicker than in either of PyTorch's. On the CPU; evaluated, or compiled, as ever. Under autocast
    tensors have its dtype, and kernels stay float32, as those of `nn.Conv2d`.

    ran: whether what it made in the last training step was blocked.
    """

    def __init__(self, *modules: nn.Module) -> None:
        super().__init__(*modules)
        self.ran = False
        for before, module in itertools.pairwise(self):
            if isinstance(before, nn.MaxPool2d) and isinstance(module, nn.ReLU):
                module.inplace = False  # oneDNN's pooling needs its output in the backward pass

    @staticmethod
    def offered(precision: str) -> bool:
        """Whether this build of PyTorch, and for bfloat16 this processor, has such layouts."""
        has_bf16 = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)
        return bool(torch.backends.mkldnn.is_available() and (precision != "bf16" or has_bf16()))

    @staticmethod
    def has(module: nn.Module) -> bool:
        """Whether these layouts are known to it."""
        return isinstance(module, nn.Conv2d | nn.MaxPool2d | nn.ReLU)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, C, H, W) to (N, C, H, W), both in PyTorch's layout."""
        if not self.training or torch.compiler.is_compiling():
            made: torch.Tensor = super().forward(x)
            return made
        dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else x.dtype
        with torch.autocast("cpu", enabled=False):  # it would cast kernels, which a blocked input must not meet
            blocks = super().forward(x.to_mkldnn(dtype))
        self.ran = blocks.is_mkldnn
        return blocks.to_dense()


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
