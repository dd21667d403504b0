"""TensorFlow's side of `Adapter.kernel`, and its probes of arithmetic and library."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tensorflow as tf

from scenarios.adapter import KernelName, NotOffered
from scenarios.frameworks import probes


def make_kernel(name: KernelName, size: int, device: str, dtype: Any) -> Callable[[int], None]:
    """See `Adapter.kernel`. device: TensorFlow's name of it; dtype: of the operands of matmul and convolution.

    Eager calls: each one computes, while a graph would be free to leave out what it has computed before. Results come
    from TensorFlow's own allocator, which hands the same memory out again; no operation writes into a given tensor.
    """
    with tf.device(device):
        once = operation(name, size, device, dtype)

    def repeat(times: int) -> None:
        with tf.device(device):
            for _ in range(times):
                once()
        tf.test.experimental.sync_devices()

    return repeat


def operation(name: KernelName, size: int, device: str, dtype: Any) -> Callable[[], Any]:
    """One call of the kernel."""

    def uniform(*shape: int) -> Any:
        return tf.random.stateless_uniform(shape, seed=(0, 0))

    match name:
        case "matmul":
            left, right = (tf.cast(uniform(size, size), dtype) for _ in range(2))
            return lambda: tf.linalg.matmul(left, right)
        case "convolution":
            edge, channels, kernel = probes.EDGE, probes.CHANNELS, probes.KERNEL
            images = tf.cast(uniform(size, edge, edge, channels), dtype)
            weights = tf.cast(uniform(kernel, kernel, channels, channels), dtype)
            return lambda: tf.nn.conv2d(images, weights, strides=1, padding="SAME")
        case "memory" | "launch":
            values = uniform(size // 4 if name == "memory" else size)
            return lambda: tf.negative(values)
        case "upload":
            if "GPU" not in device:
                raise NotOffered(probes.UPLOAD_ON_CPU)
            # from an array: of a tensor on the host, TensorFlow would keep the first copy and show that again
            host = np.zeros(size, np.uint8)
            return lambda: tf.constant(host)


def denormals(device: str, *, jit_compile: bool) -> Literal["kept", "flushed"]:
    """What TensorFlow's float32 kernels do with denormal results on this device and its intra-op threads, in a graph
    that is compiled as the training step is."""
    multiply = tf.function(lambda values: values * probes.FACTOR, jit_compile=jit_compile)
    with tf.device(device):
        products = multiply(tf.fill((probes.PRODUCTS,), probes.NORMAL))
    return probes.fate_of_denormals(products.numpy())


def rounds_to_tf32() -> bool:
    """Whether the GPU multiplies float32 in TF32 now.

    1.0001 lies between two TF32 numbers, 1 and 1 + 2^-10, so 1024 such products by 1 sum up to 1024.0 instead of
    1024.1 (the probe in TensorFlow's documentation of `enable_tensor_float_32_execution`).
    """
    values = tf.fill((1024, 1024), 1.0001)
    return abs(float(tf.reduce_mean(tf.linalg.matmul(values, tf.ones_like(values)))) - 1024) < 0.05


def onednn_version() -> str | None:
    """The oneDNN that TensorFlow was built with, by the header that its package brings along; no function tells it.
    None where there is no such header."""
    header = Path(tf.sysconfig.get_include(), "external/onednn/include/oneapi/dnnl/dnnl_version.h")
    if not header.is_file():
        return None
    parts = dict(re.findall(r"#define DNNL_VERSION_(MAJOR|MINOR|PATCH) (\d+)", header.read_text()))
    return f"{parts['MAJOR']}.{parts['MINOR']}.{parts['PATCH']}"
