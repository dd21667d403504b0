"""ONNX Runtime's side of `Adapter.kernel`, and its probe of denormals: graphs of one operator between tensors that lie
on the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from scenarios.adapter import KernelName, NotOffered
from scenarios.frameworks import probes
from scenarios.frameworks.onnxruntime.graph import Graph, Tensor
from scenarios.frameworks.onnxruntime.session import Runtime

Values = npt.NDArray[np.float32]

# A training step is one run of a graph of many nodes. To start a run costs ten times what a node costs, so launches are
# measured by runs of this many nodes, each of which works on the result of the one before.
CHAIN = 100


class BoundRun:
    """A session over a finished graph whose inputs and only output are bound to tensors on the device."""

    def __init__(self, runtime: Runtime, graph: Graph, inputs: dict[Tensor, Values]) -> None:
        self._session = runtime.open(graph.serialize())
        self._values = {name: ort.OrtValue.ortvalue_from_numpy(value, runtime.device) for name, value in inputs.items()}
        (declared,) = self._session.get_outputs()
        self.output = runtime.value(tuple(declared.shape), np.dtype(np.float32))
        self._binding = self._session.io_binding()
        for name, value in self._values.items():
            self._binding.bind_ortvalue_input(name, value)
        self._binding.bind_ortvalue_output(declared.name, self.output)

    def __call__(self, times: int) -> None:
        """Run it so many times; the device has finished on return."""
        for _ in range(times):
            self._session.run_with_iobinding(self._binding)
        self._binding.synchronize_outputs()


def make_kernel(runtime: Runtime, name: KernelName, size: int) -> Callable[[int], None]:
    """See `Adapter.kernel`."""
    random = np.random.default_rng(0)
    match name:
        case "matmul":
            operands = [random.random((size, size), dtype=np.float32) for _ in range(2)]
            return _single(runtime, "MatMul", operands)
        case "convolution":
            edge, channels, kernel = probes.EDGE, probes.CHANNELS, probes.KERNEL
            images = random.random((size, channels, edge, edge), dtype=np.float32)
            weights = random.random((channels, channels, kernel, kernel), dtype=np.float32)
            return _single(runtime, "Conv", [images, weights], auto_pad="SAME_UPPER")
        case "memory":
            return _single(runtime, "Neg", [random.random(size // 4, dtype=np.float32)])
        case "upload":
            return _upload(runtime, size)
        case "launch":
            return _launches(runtime, random.random(size, dtype=np.float32))


def denormals(runtime: Runtime) -> Literal["kept", "flushed"]:
    """What ONNX Runtime's kernels do with denormal results on this device and the intra-op threads of a session."""
    values = np.full(probes.PRODUCTS, probes.NORMAL, np.float32)
    product = _single(runtime, "Mul", [values, np.array([probes.FACTOR], np.float32)])
    product(1)
    return probes.fate_of_denormals(product.output.numpy())


def _single(runtime: Runtime, op: str, operands: list[Values], **attributes: object) -> BoundRun:
    """One node, whose output has the shape of its first operand. All operands are inputs: nothing can be folded."""
    graph = Graph(op)
    inputs = {graph.input(f"operand_{i}", np.float32, value.shape): value for i, value in enumerate(operands)}
    graph.output(graph.node(op, *inputs, **attributes), np.float32, operands[0].shape)
    return BoundRun(runtime, graph, inputs)


def _launches(runtime: Runtime, values: Values) -> Callable[[int], None]:
    chain, single = (_negations(runtime, values, nodes) for nodes in (CHAIN, 1))

    def run(times: int) -> None:
        runs, rest = divmod(times, CHAIN)
        chain(runs)
        single(rest)

    return run


def _negations(runtime: Runtime, values: Values, nodes: int) -> BoundRun:
    graph = Graph(f"{nodes} negations")
    tensor = operand = graph.input("operand", np.float32, values.shape)
    for _ in range(nodes):
        tensor = graph.node("Neg", tensor)
    graph.output(tensor, np.float32, values.shape)
    return BoundRun(runtime, graph, {operand: values})


def _upload(runtime: Runtime, size: int) -> Callable[[int], None]:
    if runtime.device == "cpu":
        raise NotOffered(probes.UPLOAD_ON_CPU)
    host = np.zeros(size // 4, np.float32)
    there = runtime.value(host.shape, host.dtype)

    def run(times: int) -> None:
        for _ in range(times):
            there.update_inplace(host)  # returns when the copy is done

    return run
