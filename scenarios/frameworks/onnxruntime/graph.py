"""A thin builder over `onnx.helper`: tensors are names, every node has a fresh one, equal constants are shared."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from onnx import NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

OPSET = 21
IR_VERSION = 10  # the one that belongs to opset 21

Tensor = str
Dim = int | str


class Graph:
    """An ONNX graph under construction."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._nodes: list[NodeProto] = []
        self._constants: list[TensorProto] = []
        self._shared: dict[tuple[str, tuple[int, ...], bytes], Tensor] = {}
        self._inputs: list[ValueInfoProto] = []
        self._outputs: list[ValueInfoProto] = []

    def node(self, op: str, *inputs: Tensor, **attributes: object) -> Tensor:
        """Add a node with one output and return it."""
        (only,) = self.nodes(op, 1, *inputs, **attributes)
        return only

    def nodes(self, op: str, count: int, *inputs: Tensor, **attributes: object) -> list[Tensor]:
        """Add a node with `count` outputs and return them."""
        stem = f"{len(self._nodes)}_{op}"
        outputs = [f"{stem}.{i}" for i in range(count)]
        self._nodes.append(helper.make_node(op, list(inputs), outputs, name=stem, **attributes))
        return outputs

    def concat(self, tensors: Sequence[Tensor], axis: int) -> Tensor:
        """`Concat`; one tensor is given back as it is, for which ONNX Runtime would copy it."""
        return self.node("Concat", *tensors, axis=axis) if len(tensors) > 1 else tensors[0]

    def ints(self, *values: int) -> Tensor:
        """A constant int64 vector: axes, starts, shapes."""
        return self.constant(np.array(values, np.int64))

    def scalar(self, value: float) -> Tensor:
        """A constant float32 scalar."""
        return self.constant(np.array(value, np.float32))

    def constant(self, value: npt.NDArray[np.generic]) -> Tensor:
        """A constant; the same one where an equal one exists already."""
        key = value.dtype.str, value.shape, value.tobytes()
        if key not in self._shared:
            self._shared[key] = self.weight(f"constant_{len(self._shared)}", value)
        return self._shared[key]

    def weight(self, name: Tensor, value: npt.NDArray[np.generic]) -> Tensor:
        """A constant under a name of its own."""
        self._constants.append(numpy_helper.from_array(np.asarray(value, order="C"), name))
        return name

    def input(self, name: Tensor, dtype: npt.DTypeLike, shape: Sequence[Dim]) -> Tensor:
        """Declare an input of the graph."""
        self._inputs.append(_value_info(name, dtype, shape))
        return name

    def output(self, tensor: Tensor, dtype: npt.DTypeLike, shape: Sequence[Dim]) -> None:
        """Declare `tensor` an output of the graph."""
        self._outputs.append(_value_info(tensor, dtype, shape))

    def serialize(self) -> bytes:
        """The finished model, as `onnxruntime.InferenceSession` takes it."""
        graph = helper.make_graph(self._nodes, self._name, self._inputs, self._outputs, self._constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
        serialized: bytes = model.SerializeToString()
        return serialized


def _value_info(name: Tensor, dtype: npt.DTypeLike, shape: Sequence[Dim]) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), list(shape))
