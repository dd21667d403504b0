"""The primitives of `Adapter.kernel` in ONNX Runtime, and the probes of its arithmetic: graphs of one operator between
tensors on the device."""

from collections.abc import Callable
from typing import Literal

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from scenarios.adapter import KernelName, NotOffered
from scenarios.frameworks import probes
from scenarios.frameworks.onnxruntime.graph import Graph
from scenarios.frameworks.onnxruntime.session import Runtime

Values = npt.NDArray[np.float32]

# A training step is one run of a graph of many nodes. Starting a run costs ten times as much as a node, so the kernel
# `launch` times chains of this many nodes. Each node works on the result of the one before.
NODES_PER_RUN = 100


class BoundRun:
    """A session over a chain of equal nodes, with the inputs and the output bound to tensors on the device.

    The output has the shape of the first operand. All operands are inputs, so that nothing can be folded.
    """

    def __init__(self, runtime: Runtime, op: str, operands: list[Values], nodes: int = 1, **attributes: object) -> None:
        graph = Graph(op)
        inputs = [graph.input(f"operand_{i}", np.float32, value.shape) for i, value in enumerate(operands)]
        result = inputs[0]
        for _ in range(nodes):
            result = graph.node(op, result, *inputs[1:], **attributes)
        graph.output(result, np.float32, operands[0].shape)
        self.output = runtime.empty(operands[0].shape, np.dtype(np.float32))
        self._session = runtime.open(graph.serialize())
        self._values = [ort.OrtValue.ortvalue_from_numpy(value, runtime.device) for value in operands]
        self._binding = self._session.io_binding()
        for name, value in zip(inputs, self._values, strict=True):
            self._binding.bind_ortvalue_input(name, value)
        self._binding.bind_ortvalue_output(result, self.output)

    def __call__(self, times: int) -> None:
        """Run it that many times, and return when the device has finished."""
        for _ in range(times):
            self._session.run_with_iobinding(self._binding)
        self._binding.synchronize_outputs()


def make_kernel(runtime: Runtime, name: KernelName, size: int) -> Callable[[int], None]:
    """Implement `Adapter.kernel`."""

    def uniform(*shape: int) -> Values:
        return random.random(shape, dtype=np.float32)

    random = np.random.default_rng(0)
    match name:
        case "matmul":
            return BoundRun(runtime, "MatMul", [uniform(size, size), uniform(size, size)])
        case "convolution nchw":
            edge, channels, kernel = probes.EDGE, probes.CHANNELS, probes.KERNEL
            operands = [uniform(size, channels, edge, edge), uniform(channels, channels, kernel, kernel)]
            return BoundRun(runtime, "Conv", operands, auto_pad="SAME_UPPER")
        case "convolution nhwc":
            raise NotOffered("The operators of ONNX take NCHW only.")
        case "memory":
            return BoundRun(runtime, "Neg", [uniform(size // 4)])
        case "upload":
            return _make_upload(runtime, size)
        case "launch":
            return _make_launches(runtime, uniform(size))


def denormals(runtime: Runtime) -> Literal["kept", "flushed"]:
    """Return what ONNX Runtime's kernels do with denormal results on this device and a session's intra-op threads."""
    values = np.full(probes.PRODUCTS, probes.NORMAL, np.float32)
    product = BoundRun(runtime, "Mul", [values, np.array([probes.FACTOR], np.float32)])
    product(1)
    return probes.fate_of_denormals(product.output.numpy())


def rounds_to_tf32(runtime: Runtime) -> bool:
    """Return whether this device multiplies float32 matrices in TF32 now.

    1.0001 lies between two TF32 numbers, 1 and 1 + 2^-10. In TF32, 1024 such products by 1 therefore sum to 1024.0
    instead of 1024.1.
    """
    values = np.full((1024, 1024), 1.0001, np.float32)
    product = BoundRun(runtime, "MatMul", [values, np.ones_like(values)])
    product(1)
    return abs(float(np.mean(product.output.numpy())) - 1024) < 0.05


def _make_launches(runtime: Runtime, values: Values) -> Callable[[int], None]:
    chain, single = (BoundRun(runtime, "Neg", [values], nodes) for nodes in (NODES_PER_RUN, 1))

    def run(times: int) -> None:
        runs, rest = divmod(times, NODES_PER_RUN)
        chain(runs)
        single(rest)

    return run


def _make_upload(runtime: Runtime, size: int) -> Callable[[int], None]:
    if runtime.device == "cpu":
        raise NotOffered(probes.UPLOAD_ON_CPU)
    host = np.zeros(size // 4, np.float32)
    target = runtime.empty(host.shape, host.dtype)

    def run(times: int) -> None:
        for _ in range(times):
            target.update_inplace(host)  # returns when the copy is done

    return run
