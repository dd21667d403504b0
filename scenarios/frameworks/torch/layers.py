"""The tuned lane's layers. Each one computes what PyTorch's own layer computes, in another way."""

import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own name for it
from torch import nn

from scenarios.spec import Optimizer, Sgd

LinearFunction = Callable[[torch.Tensor, torch.Tensor, torch.Tensor | None], torch.Tensor]


def tune_layers(modules: Iterable[nn.Module], optimizer: Optimizer, settings: Mapping[str, str]) -> list[nn.Module]:
    """Replace, reorder or change the stock network's modules as the settings say."""
    tuned = [_tune(module, optimizer, settings) for module in modules]
    if settings.get("relu") == "after pooling":  # the ReLU of a maximum is the maximum of the ReLUs, for fewer values
        for place in range(1, len(tuned)):
            if isinstance(tuned[place], nn.MaxPool2d) and isinstance(tuned[place - 1], nn.ReLU):
                tuned[place - 1 : place + 1] = tuned[place], tuned[place - 1]
    if settings.get("layout") != "blocked":
        return tuned
    leading = list(itertools.takewhile(Blocked.supports, tuned))
    if isinstance(leading[-1], nn.ReLU):  # as fast outside
        leading.pop()
    return [Blocked(*leading), *tuned[len(leading) :]]


def _tune(module: nn.Module, optimizer: Optimizer, settings: Mapping[str, str]) -> nn.Module:
    onednn, stepped = settings.get("dense") == "onednn", settings.get("kernels") == "stepped backward"
    if isinstance(module, nn.Dropout) and settings.get("dropout") == "bytes":
        return ByteDropout(module.p)
    if isinstance(module, nn.Flatten) and settings.get("layout") == "nhwc":
        return ChannelsLastFlatten()
    if isinstance(module, nn.Linear) and (onednn or stepped):
        assert isinstance(optimizer, Sgd) or not stepped, "only plain SGD adds gradients unchanged"
        function = onednn_linear if onednn else F.linear
        return TunedLinear(module, function, optimizer.learning_rate if stepped else None)
    if isinstance(module, nn.ReLU):
        module.inplace = settings.get("relu", "apart") != "apart"
    return module


def onednn_linear(x: torch.Tensor, kernel: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """Compute `F.linear` with oneDNN on the CPU, without a gradient.

    On some processors oneDNN uses instructions (AVX-512 on AMD's) that MKL, the library of PyTorch's own product, does
    not use there. For a kernel's gradient, which has few terms and many values, both take the same time.
    """
    return torch.ops.mkldnn._linear_pointwise(x, kernel, bias, "none", [], "")  # noqa: SLF001


def has_onednn_linear() -> bool:
    """Return whether this build of PyTorch has the operator of `onednn_linear`, which `torch.compile` uses, too."""
    return hasattr(torch.ops.mkldnn, "_linear_pointwise")


class TunedLinear(nn.Linear):  # type: ignore[misc]
    """A dense layer with the parameters of `linear` that trains with a chosen product. Its evaluation is PyTorch's.

    learning_rate: of plain SGD, or None. With a rate the backward pass in training mode updates the kernel itself, and
    neither keeps the kernel's gradient nor gives it to the optimizer. In float32 it does not even write the gradient:
    it adds the product to the kernel directly. The bias has a gradient in any case. Under autocast the products are in
    its dtype, and kernels stay float32 as those of `nn.Linear`.
    """

    def __init__(self, linear: nn.Linear, function: LinearFunction, learning_rate: float | None) -> None:
        nn.Module.__init__(self)  # not `nn.Linear`'s, which would create other parameters
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight, self.bias = linear.weight, linear.bias
        self.function = function
        self.learning_rate = learning_rate

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (N, in) to (N, out)."""
        if not self.training:
            return super().forward(x)
        device = x.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else torch.float32
        return _Dense.apply(x, self.weight, self.bias, self.function, self.learning_rate, dtype)


class _Dense(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        kernel: torch.Tensor,
        bias: torch.Tensor,
        function: LinearFunction,
        learning_rate: float | None,
        dtype: torch.dtype,
    ) -> torch.Tensor:
        x, cast_kernel, bias = x.to(dtype), kernel.to(dtype), bias.to(dtype)
        ctx.save_for_backward(x, cast_kernel, kernel)
        ctx.function, ctx.learning_rate = function, learning_rate
        return function(x, cast_kernel, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (outputs_gradient,) = gradients
        x, cast_kernel, kernel = ctx.saved_tensors
        # before the kernel's update
        x_gradient = ctx.function(outputs_gradient, cast_kernel.t(), None) if ctx.needs_input_grad[0] else None
        kernel_gradient = None
        if ctx.learning_rate is None:
            kernel_gradient = outputs_gradient.t() @ x
        elif x.dtype is kernel.dtype:
            kernel.addmm_(outputs_gradient.t(), x, alpha=-ctx.learning_rate)
        else:
            kernel.add_(outputs_gradient.t() @ x, alpha=-ctx.learning_rate)
        return x_gradient, kernel_gradient, outputs_gradient.sum(0), None, None, None


class Blocked(nn.Sequential):  # type: ignore[misc]
    """Convolutions, poolings and ReLUs that train on tensors in oneDNN's own blocked layouts, on the CPU.

    Convolutions of few channels are faster in these layouts than in either of PyTorch's. Evaluation and compiled
    networks use PyTorch's layouts. Under autocast tensors have its dtype, and kernels stay float32 as those of
    `nn.Conv2d`.

    ran: whether the outputs of the last training step were blocked.
    """

    def __init__(self, *modules: nn.Module) -> None:
        super().__init__(*modules)
        self.ran = False
        for before, module in itertools.pairwise(self):
            if isinstance(before, nn.MaxPool2d) and isinstance(module, nn.ReLU):
                module.inplace = False  # oneDNN's pooling needs its output in the backward pass

    @staticmethod
    def offered(precision: str) -> bool:
        """Return whether this build of PyTorch (for bfloat16 also this processor) has such layouts."""
        has_bf16 = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)
        return bool(torch.backends.mkldnn.is_available() and (precision != "bf16" or has_bf16()))

    @staticmethod
    def supports(module: nn.Module) -> bool:
        """Return whether the module can run in these layouts."""
        return isinstance(module, nn.Conv2d | nn.MaxPool2d | nn.ReLU)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (N, C, H, W) to (N, C, H, W), both in PyTorch's layout."""
        if not self.training or torch.compiler.is_compiling():
            return super().forward(x)
        dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else x.dtype
        with torch.autocast("cpu", enabled=False):  # it would cast kernels, which blocked inputs do not allow
            blocked = super().forward(x.to_mkldnn(dtype))
        self.ran = blocked.is_mkldnn
        return blocked.to_dense()


class ChannelsLastFlatten(nn.Module):  # type: ignore[misc]
    """Flattening in the order (H, W, C). With channels-last strides, neither direction copies anything."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (N, C, H, W) to (N, H * W * C)."""
        return x.permute(0, 2, 3, 1).flatten(1)


class ByteDropout(nn.Module):  # type: ignore[misc]
    """Dropout at a rate that is a multiple of 1/256. One random byte per value decides whether it is zeroed.

    PyTorch's dropout on the CPU draws a double for each value, in one thread.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self._zeroed = int(rate * 256)  # number of byte values that zero
        self._scale = 1 / (1 - rate)

    @staticmethod
    def supports(rate: float) -> bool:
        """Return whether the rate is a multiple of 1/256."""
        return (rate * 256).is_integer()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply dropout to values of any shape without gaps in memory."""
        if not self.training:
            return x
        words = torch.empty(-(-x.numel() // 8), dtype=torch.int64, device=x.device).random_(-(2**63), None)
        mask = words.view(torch.uint8)[: x.numel()] >= self._zeroed
        return x * mask.as_strided(x.shape, x.stride()).to(x.dtype).mul_(self._scale)
