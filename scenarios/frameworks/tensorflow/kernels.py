"""TensorFlow's side of `Adapter.kernel`, and the evidence of what it really ran: devices, arithmetic, compiler."""

import platform
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tensorflow as tf

from scenarios.adapter import KernelName, NotOffered
from scenarios.contract.evidence import Placement
from scenarios.frameworks import probes


def make_kernel(name: KernelName, size: int, device: str, dtype: Any) -> Callable[[int], None]:
    """Implement `Adapter.kernel`. device: TensorFlow's name of it. dtype: of the operands of matmul and convolution.

    The calls are eager, so each one computes. A graph could leave out what it has already computed. Results come from
    TensorFlow's own allocator, which reuses the same memory. No operation can write into a given tensor.
    """
    with tf.device(device):
        run_once = make_operation(name, size, device, dtype)

    def run(times: int) -> None:
        with tf.device(device):
            for _ in range(times):
                run_once()
        tf.test.experimental.sync_devices()

    return run


def make_operation(name: KernelName, size: int, device: str, dtype: Any) -> Callable[[], Any]:
    """Return a function that runs the kernel once."""

    def uniform(*shape: int) -> Any:
        return tf.random.stateless_uniform(shape, seed=(0, 0))

    match name:
        case "matmul":
            left, right = (tf.cast(uniform(size, size), dtype) for _ in range(2))
            return lambda: tf.linalg.matmul(left, right)
        case "convolution nchw" | "convolution nhwc":
            if name == "convolution nchw" and "GPU" not in device:
                raise NotOffered("TensorFlow's convolutions on the CPU take NHWC only.")
            edge, channels, kernel = probes.EDGE, probes.CHANNELS, probes.KERNEL
            images = tf.cast(uniform(size, edge, edge, channels), dtype)
            weights = tf.cast(uniform(kernel, kernel, channels, channels), dtype)
            if name == "convolution nchw":
                images = tf.transpose(images, (0, 3, 1, 2))
            layout = "NCHW" if name == "convolution nchw" else "NHWC"
            return lambda: tf.nn.conv2d(images, weights, strides=1, padding="SAME", data_format=layout)
        case "memory" | "launch":
            values = uniform(size // 4 if name == "memory" else size)
            return lambda: tf.negative(values)
        case "upload":
            if "GPU" not in device:
                raise NotOffered(probes.UPLOAD_ON_CPU)
            # A numpy array: TensorFlow would copy a host tensor once and then reuse the copy.
            host = np.zeros(size, np.uint8)
            return lambda: tf.constant(host)


def placement(model: Any, loop: str, loader: str, tf32: bool | None) -> Placement:
    """Return where and how a compiled Keras model trained.

    loop, loader: in words, for the report. tf32: see `Placement`.

    The device is that of the weights (nodes: parameter tensors per device), because TensorFlow runs an update on the
    device of the variable that it changes.
    """
    devices = [tf.DeviceSpec.from_string(variable.value.device) for variable in model.trainable_variables]
    device = devices[0]
    cuda = device.device_type == "GPU"
    return Placement(
        device=device_label(device),
        device_name=gpu_name(device.device_index) if cuda else f"CPU ({platform.machine()})",
        provider="XLA" if model.jit_compile else "TensorFlow kernels",
        layout="NHWC",
        tf32=tf32,
        threads=tf.config.threading.get_intra_op_parallelism_threads(),
        training=f"Keras {loop}, {type(model.optimizer).__name__}",
        loader=loader,
        denormals=denormals(device.to_string(), jit_compile=model.jit_compile),
        nodes=dict(Counter(map(device_label, devices))),
    )


def device_label(device: Any) -> str:
    """Return the kit's name of a `tf.DeviceSpec`: "cpu" or "cuda:0"."""
    return f"cuda:{device.device_index}" if device.device_type == "GPU" else str(device.device_type).lower()


def gpu_name(index: int) -> str:
    """Return the model name of a visible GPU, as its driver reports it."""
    gpu = tf.config.get_visible_devices("GPU")[index]
    return str(tf.config.experimental.get_device_details(gpu)["device_name"])


def denormals(device: str, *, jit_compile: bool) -> Literal["kept", "flushed"]:
    """Return what TensorFlow's float32 kernels do with denormal results on this device and its intra-op threads.

    The probe runs in a graph that is compiled the same way as the training step.
    """
    multiply = tf.function(lambda values: values * probes.FACTOR, jit_compile=jit_compile)
    with tf.device(device):
        products = multiply(tf.fill((probes.PRODUCTS,), probes.NORMAL))
    return probes.fate_of_denormals(products.numpy())


def rounds_to_tf32() -> bool:
    """Return whether the GPU multiplies float32 matrices in TF32 now.

    1.0001 lies between two TF32 numbers, 1 and 1 + 2^-10. In TF32, 1024 such products by 1 therefore sum to 1024.0
    instead of 1024.1 (the probe in TensorFlow's documentation of `enable_tensor_float_32_execution`).
    """
    values = tf.fill((1024, 1024), 1.0001)
    return abs(float(tf.reduce_mean(tf.linalg.matmul(values, tf.ones_like(values)))) - 1024) < 0.05


def onednn_version() -> str | None:
    """Return the version of the oneDNN that TensorFlow was built with, or None if its package has no oneDNN header.

    No function of TensorFlow returns it, so it is read from that header.
    """
    header = Path(tf.sysconfig.get_include(), "external/onednn/include/oneapi/dnnl/dnnl_version.h")
    if not header.is_file():
        return None
    parts = dict(re.findall(r"#define DNNL_VERSION_(MAJOR|MINOR|PATCH) (\d+)", header.read_text()))
    return f"{parts['MAJOR']}.{parts['MINOR']}.{parts['PATCH']}"
