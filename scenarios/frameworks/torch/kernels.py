"""PyTorch's side of `Adapter.kernel`, and the evidence of where and how PyTorch computes."""

from collections import Counter
from collections.abc import Callable
from typing import Any, Literal

import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own name for it
from torch import nn

from scenarios.adapter import KernelName, NotOffered
from scenarios.contract.evidence import Placement
from scenarios.frameworks import probes


def make_kernel(name: KernelName, size: int, device: torch.device, dtype: torch.dtype) -> Callable[[int], None]:
    """Return the kernel of `Adapter.kernel`; every repetition is an eager call. dtype: of matmul and convolution."""
    once = operation(name, size, device, dtype)

    def repeat(times: int) -> None:
        for _ in range(times):
            once()
        synchronize(device)

    return repeat


def operation(name: KernelName, size: int, device: torch.device, dtype: torch.dtype) -> Callable[[], Any]:
    """Return one call of the kernel.

    Results go to memory that is allocated here. Only a convolution's result comes from PyTorch's allocator at each
    call, as in training, because PyTorch has no convolution with an output argument.
    """

    def uniform(*shape: int) -> torch.Tensor:
        return torch.rand(shape, generator=torch.Generator(device).manual_seed(0), device=device)

    match name:
        case "matmul":
            left, right = uniform(size, size).to(dtype), uniform(size, size).to(dtype)
            product = torch.empty_like(left)
            return lambda: torch.mm(left, right, out=product)
        case "convolution nchw" | "convolution nhwc":
            layout = torch.contiguous_format if name == "convolution nchw" else torch.channels_last
            edge, channels, kernel = probes.EDGE, probes.CHANNELS, probes.KERNEL
            images = uniform(size, channels, edge, edge).to(dtype, memory_format=layout)
            weight = uniform(channels, channels, kernel, kernel).to(dtype, memory_format=layout)
            return lambda: F.conv2d(images, weight, padding="same")
        case "memory" | "launch":
            values = uniform(size // 4 if name == "memory" else size)
            negatives = torch.zeros_like(values)  # writing zeros maps its pages
            return lambda: torch.neg(values, out=negatives)
        case "upload":
            if device.type == "cpu":
                raise NotOffered(probes.UPLOAD_ON_CPU)
            on_host = torch.zeros(size, dtype=torch.uint8).pin_memory()  # pinned memory is the fastest to copy
            on_device = torch.empty_like(on_host, device=device)
            return lambda: on_device.copy_(on_host, non_blocking=True)


def synchronize(device: torch.device) -> None:
    """Wait until the device has finished all its work."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def placement(
    net: nn.Module, device: torch.device, images_contiguous: bool, training: str, loader: str, tf32: bool | None
) -> Placement:
    """Describe the training of `net`. Its nodes are parameter tensors.

    device: of a training step's logits. images_contiguous: whether the step's images had the strides of NCHW. tf32: see
    `Placement`.
    """
    cuda = device.type == "cuda"
    capability = torch.backends.cpu.get_cpu_capability()
    return Placement(
        device=str(device),
        device_name=torch.cuda.get_device_name(device) if cuda else f"CPU with {capability}",
        provider="CUDA, cuDNN" if cuda else f"ATen and oneDNN ({capability})",
        layout="NCHW" if images_contiguous and all(weight.is_contiguous() for weight in net.parameters()) else "NHWC",
        tf32=tf32,
        threads=torch.get_num_threads(),
        training=training,
        loader=loader,
        denormals=denormals(device),
        nodes=dict(Counter(str(parameter.device) for parameter in net.parameters())),
    )


def denormals(device: torch.device) -> Literal["kept", "flushed"]:
    """Return what PyTorch's float32 kernels do with denormal results on this device and its intra-op threads."""
    products = torch.full((probes.PRODUCTS,), probes.NORMAL, device=device) * probes.FACTOR
    return probes.fate_of_denormals(products.cpu().numpy())


def rounds_to_tf32(device: torch.device) -> bool:
    """Return whether the device rounds float32 to TF32 in matrix products or convolutions.

    1.0001 lies between two TF32 numbers, 1 and 1 + 2^-10, so 1024 such products by 1 sum up to 1024.0 instead of
    1024.1 (the probe in TensorFlow's documentation of `enable_tensor_float_32_execution`).
    """
    values = torch.full((1024, 1024), 1.0001, device=device)
    ones = torch.ones_like(values)
    product = values @ ones
    convolved = F.conv2d(values.reshape(32, 1024, 32, 1)[:, :, :8], ones.reshape(1024, 1024, 1, 1))
    return any(abs(result.mean().item() - 1024) < 0.05 for result in (product, convolved))
