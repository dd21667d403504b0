"""PyTorch's side of `Adapter.kernel`, and its probes of arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own name for it

from scenarios.adapter import KernelName, NotOffered
from scenarios.frameworks import probes


def make_kernel(name: KernelName, size: int, device: torch.device, dtype: torch.dtype) -> Callable[[int], None]:
    """See `Adapter.kernel`. dtype: of the operands of matmul and convolution. Eager calls: each one computes."""
    once = operation(name, size, device, dtype)

    def repeat(times: int) -> None:
        for _ in range(times):
            once()
        synchronise(device)

    return repeat


def operation(name: KernelName, size: int, device: torch.device, dtype: torch.dtype) -> Callable[[], Any]:
    """One call of the kernel. Results go to memory of their own, made here, except a convolution's: PyTorch has no
    such call, so it takes it from its allocator as in training."""

    def uniform(*shape: int) -> torch.Tensor:
        return torch.rand(shape, generator=torch.Generator(device).manual_seed(0), device=device)

    match name:
        case "matmul":
            left, right = uniform(size, size).to(dtype), uniform(size, size).to(dtype)
            product = torch.empty_like(left)
            return lambda: torch.mm(left, right, out=product)
        case "convolution":
            # channels last is twice as fast as NCHW on CPUs, and what tensor cores take
            last = torch.channels_last
            edge, channels, kernel = probes.EDGE, probes.CHANNELS, probes.KERNEL
            images = uniform(size, channels, edge, edge).to(dtype, memory_format=last)
            weight = uniform(channels, channels, kernel, kernel).to(dtype, memory_format=last)
            return lambda: F.conv2d(images, weight, padding="same")
        case "memory" | "launch":
            values = uniform(size // 4 if name == "memory" else size)
            negatives = torch.zeros_like(values)  # written once, so that its pages are there
            return lambda: torch.neg(values, out=negatives)
        case "upload":
            if device.type == "cpu":
                raise NotOffered(probes.UPLOAD_ON_CPU)
            host = torch.zeros(size, dtype=torch.uint8).pin_memory()  # the fastest way that there is
            there = torch.empty_like(host, device=device)
            return lambda: there.copy_(host, non_blocking=True)


def synchronise(device: torch.device) -> None:
    """Wait until the device has finished what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def denormals(device: torch.device) -> Literal["kept", "flushed"]:
    """What PyTorch's float32 kernels do with denormal results on this device and its intra-op threads."""
    products = torch.full((probes.PRODUCTS,), probes.NORMAL, device=device) * probes.FACTOR
    return probes.fate_of_denormals(products.cpu().numpy())


def rounds_to_tf32() -> bool:
    """Whether the GPU multiplies float32 in TF32 now, by matrix product or convolution.

    1.0001 lies between two TF32 numbers, 1 and 1 + 2^-10, so 1024 such products by 1 sum up to 1024.0 instead of
    1024.1 (the probe in TensorFlow's documentation of `enable_tensor_float_32_execution`).
    """
    values = torch.full((1024, 1024), 1.0001, device="cuda")
    ones = torch.ones_like(values)
    product = values @ ones
    convolved = F.conv2d(values.reshape(32, 1024, 32, 1)[:, :, :8], ones.reshape(1024, 1024, 1, 1))
    return any(abs(found.mean().item() - 1024) < 0.05 for found in (product, convolved))
