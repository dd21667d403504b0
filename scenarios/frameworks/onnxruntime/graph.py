"""A thin builder over `onnx.helper`: a tensor is its name, each node gets a new name, equal constants are shared."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from onnx import NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

# Opset 18 is the first with `Split` by a number of outputs. Later ones change seven operators of these graphs (Cast,
# Equal, Pad, Reshape, Squeeze, Transpose, Unsqueeze), but only add types and modes that are not used here. Older builds
# have no CUDA kernels for some: onnxruntime-gpu 1.24.1 has none for Equal and Pad of opset 19, 1.25.1 none for Equal.
OPSET = 18
IR_VERSION = 8  # the version that belongs to opset 18

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
        """Add a node with one output and return the output."""
        return self.nodes(op, 1, *inputs, **attributes)[0]

    def nodes(self, op: str, outputs: int, *inputs: Tensor, **attributes: object) -> list[Tensor]:
        """Add one node with several outputs and return the outputs."""
        name = f"{len(self._nodes)}_{op}"
        names = [f"{name}.{i}" for i in range(outputs)]
        self._nodes.append(helper.make_node(op, list(inputs), names, name=name, **attributes))
        return names

    def named(self, tensor: Tensor, name: Tensor) -> None:
        """Add a copy of a tensor with this name, for example for users of an exported model."""
        self._nodes.append(helper.make_node("Identity", [tensor], [name], name=name))

    def concat(self, tensors: Sequence[Tensor], axis: int) -> Tensor:
        """Add a `Concat`. Return a single tensor unchanged, because ONNX Runtime would copy it."""
        return self.node("Concat", *tensors, axis=axis) if len(tensors) > 1 else tensors[0]

    def ints(self, *values: int) -> Tensor:
        """Return a constant int64 vector, for example axes, starts or a shape."""
        return self.constant(np.array(values, np.int64))

    def scalar(self, value: float) -> Tensor:
        """Return a constant float32 scalar."""
        return self.constant(np.array(value, np.float32))

    def constant(self, value: npt.NDArray[np.generic]) -> Tensor:
        """Return a constant. Equal constants are added once."""
        key = value.dtype.str, value.shape, value.tobytes()
        if key not in self._shared:
            self._shared[key] = self.named_constant(f"constant_{len(self._shared)}", value)
        return self._shared[key]

    def named_constant(self, name: Tensor, value: npt.NDArray[np.generic]) -> Tensor:
        """Add a constant with this name, for example the weights of a parameter."""
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
        """Return the finished model in the form that `onnxruntime.InferenceSession` takes."""
        graph = helper.make_graph(self._nodes, self._name, self._inputs, self._outputs, self._constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
        return bytes(model.SerializeToString())


def _value_info(name: Tensor, dtype: npt.DTypeLike, shape: Sequence[Dim]) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), list(shape))
