"""The layers in ONNX. Each one adds its forward pass to a graph, and then its backward pass from what it kept.

Feature maps are NCHW inside the graph, the layout of ONNX Runtime's convolutions. The batch axis is symbolic: a 0 in
the shape given to `Reshape` copies it. The formulations are those that were fastest on the CPU. Every operator has a
CUDA kernel too.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from onnx import TensorProto

from scenarios import spec
from scenarios.frameworks.onnxruntime.graph import Graph, Tensor
from scenarios.weights import Array

MAX_IM2COL_CHANNELS = 8  # see Conv._kernel_gradient
INT32_MAX = 2**31 - 1  # stands for the end of an axis in `Slice`


@dataclass(frozen=True)
class Product:
    """The gradient of a dense kernel, left_transposed^T @ right, not multiplied out yet.

    An optimizer can fuse its update into the product. left_transposed: (batch, rows). right: (batch, columns).
    """

    left_transposed: Tensor
    right: Tensor

    def multiply(self, graph: Graph) -> Tensor:
        """Add the node that multiplies it out."""
        return graph.node("Gemm", self.left_transposed, self.right, transA=1)


Gradient = Tensor | Product
Gradients = dict[str, Gradient]


@dataclass(frozen=True)
class Layout:
    """How the graph stores a parameter: the canonical array reshaped to `view`, its axes permuted, then reshaped to
    `stored`."""

    shape: spec.Shape
    view: spec.Shape
    axes: tuple[int, ...]
    stored: spec.Shape

    def to_graph(self, canonical: Array) -> Array:
        """Return the parameter as the graph stores it, in a new contiguous array."""
        return canonical.reshape(self.view).transpose(self.axes).reshape(self.stored).copy()

    def to_canonical(self, stored: Array) -> Array:
        """Return the inverse of `to_graph`."""
        permuted = stored.reshape([self.view[axis] for axis in self.axes])
        return permuted.transpose(np.argsort(self.axes)).reshape(self.shape).copy()


class Operation(Protocol):
    """One operation of the network. `forward` is called once, before `backward`."""

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        """Add the nodes that compute the output."""

    def backward(self, graph: Graph, dy: Tensor, *, input_needed: bool) -> tuple[Tensor, Gradients]:
        """Add the nodes that compute, from the gradient of the output, those of the input and of the parameters.

        The gradient of the input may be anything if it is not needed.
        """


class Conv:
    """A convolution of stride 1 with the parameters `<index>/kernel` (OIHW) and `<index>/bias`.

    transposes: whether the gradient of the input is a `ConvTranspose`. Otherwise it is a `Conv` with the flipped
    kernel, which is slower on the CPU.
    """

    def __init__(
        self, index: int, layer: spec.Conv, before: spec.Shape, after: spec.Shape, *, transposes: bool
    ) -> None:
        self._kernel, self._bias = f"{index}/kernel", f"{index}/bias"
        self._size, self._filters, self._channels = layer.kernel, layer.filters, before[2]
        self._out_height, self._out_width = after[:2]
        extra = layer.kernel - 1 if layer.padding == "same" else 0
        self._pads = [extra // 2, extra // 2, extra - extra // 2, extra - extra // 2]  # top, left, bottom, right
        self._uneven = extra % 2 == 1  # ConvTranspose on CUDA refuses it, so `Pad` and `Slice` do it
        self._in_height, self._in_width = before[:2]
        self._transposes = transposes

    def layouts(self) -> dict[str, Layout]:
        size, channels, filters = self._size, self._channels, self._filters
        hwio, oihw = (size, size, channels, filters), (filters, channels, size, size)
        return {
            self._kernel: Layout(hwio, hwio, (3, 2, 0, 1), oihw),
            self._bias: Layout((filters,), (filters,), (0,), (filters,)),
        }

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        self._x = x
        if self._uneven:
            return graph.node("Conv", self._padded(graph), self._kernel, self._bias)
        return graph.node("Conv", x, self._kernel, self._bias, pads=self._pads)

    def backward(self, graph: Graph, dy: Tensor, *, input_needed: bool) -> tuple[Tensor, Gradients]:
        dx = self._input_gradient(graph, dy) if input_needed else ""
        per_image = graph.node("ReduceSum", dy, graph.ints(2, 3), keepdims=0)
        bias = graph.node("ReduceSum", per_image, graph.ints(0), keepdims=0)
        return dx, {self._kernel: self._kernel_gradient(graph, dy), self._bias: bias}

    def _padded(self, graph: Graph) -> Tensor:
        top, left, bottom, right = self._pads
        return graph.node("Pad", self._x, graph.ints(0, 0, top, left, 0, 0, bottom, right))

    def _input_gradient(self, graph: Graph, dy: Tensor) -> Tensor:
        if not self._uneven:
            return self._transposed(graph, dy, self._pads)
        top, left = self._pads[:2]
        ends = graph.ints(top + self._in_height, left + self._in_width)
        of_padded = self._transposed(graph, dy, [0, 0, 0, 0])
        return graph.node("Slice", of_padded, graph.ints(top, left), ends, graph.ints(2, 3))

    def _transposed(self, graph: Graph, dy: Tensor, pads: list[int]) -> Tensor:
        if self._transposes:
            return graph.node("ConvTranspose", dy, self._kernel, pads=pads)
        backward, before_first = graph.ints(-1, -1), graph.ints(-INT32_MAX, -INT32_MAX)
        flipped = graph.node("Slice", self._kernel, backward, before_first, graph.ints(2, 3), backward)
        iohw = graph.node("Transpose", flipped, perm=[1, 0, 2, 3])
        return graph.node("Conv", dy, iohw, pads=[self._size - 1 - pad for pad in pads])

    def _kernel_gradient(self, graph: Graph, dy: Tensor) -> Tensor:
        """Return dK[o, i, r, s] = sum over images and positions of dy[o, p, q] x[i, p + r, q + s].

        This is, for each tap (r, s) of the kernel, the shifted input times dy. With few channels all taps go into one
        product (im2col). With more channels the products are large enough one tap at a time, and need a ninth of the
        memory.
        """
        size, channels, filters = self._size, self._channels, self._filters
        padded = self._padded(graph) if any(self._pads) else self._x
        positions = self._out_height * self._out_width
        flat_dy = graph.node("Reshape", dy, graph.ints(0, filters, positions))
        taps = [(row, column) for row in range(size) for column in range(size)]
        at_once = len(taps) if channels <= MAX_IM2COL_CHANNELS else 1
        products = []
        for start in range(0, len(taps), at_once):
            shifted = [self._shift(graph, padded, *tap) for tap in taps[start : start + at_once]]
            columns = graph.node(
                "Reshape", graph.concat(shifted, axis=1), graph.ints(0, len(shifted) * channels, positions)
            )
            product = graph.node("MatMul", flat_dy, graph.node("Transpose", columns, perm=[0, 2, 1]))
            products.append(graph.node("ReduceSum", product, graph.ints(0), keepdims=0))
        ohwi = graph.node("Reshape", graph.concat(products, axis=1), graph.ints(filters, size, size, channels))
        return graph.node("Transpose", ohwi, perm=[0, 3, 1, 2])

    def _shift(self, graph: Graph, padded: Tensor, row: int, column: int) -> Tensor:
        ends = graph.ints(row + self._out_height, column + self._out_width)
        return graph.node("Slice", padded, graph.ints(row, column), ends, graph.ints(2, 3))


class MaxPool:
    """Max pooling with stride = window. The gradient goes to the first maximum of a window in row-major order.

    `backward` finds the maximum again: `MaxPool` with its `Indices` output is many times slower.
    """

    def __init__(self, layer: spec.MaxPool, before: spec.Shape, after: spec.Shape) -> None:
        self._size = layer.size
        self._height, self._width, self._channels = before
        self._out_height, self._out_width = after[:2]

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        self._x = x
        window = [self._size, self._size]
        self._y = graph.node("MaxPool", x, kernel_shape=window, strides=window)
        return self._y

    def backward(self, graph: Graph, dy: Tensor, *, input_needed: bool) -> tuple[Tensor, Gradients]:
        """Undo the pooling in two steps: among the rows of each window, then within each row.

        The first column with the maximum, in the first row with the maximum, is the first maximum in row-major order.
        """
        size, channels, height, width = self._size, self._channels, self._out_height, self._out_width
        x = self._x
        covered_height, covered_width = height * size, width * size
        partial = (covered_height, covered_width) != (self._height, self._width)  # the last rows, columns are dropped
        if partial:
            ends = graph.ints(covered_height, covered_width)
            x = graph.node("Slice", x, graph.ints(0, 0), ends, graph.ints(2, 3))
        by_column = graph.node("Reshape", x, graph.ints(0, -1, width, size))
        columns = graph.nodes("Split", size, by_column, axis=3, num_outputs=size)
        row_maximum = graph.node("Max", *columns)
        by_row = graph.node("Reshape", row_maximum, graph.ints(0, channels * height, size, width))
        rows = graph.nodes("Split", size, by_row, axis=2, num_outputs=size)
        by_window = graph.ints(0, channels * height, 1, width)
        y, dy = (graph.node("Reshape", t, by_window) for t in (self._y, dy))
        row_gradient = graph.concat(_to_first_maximum(graph, rows, y, dy), axis=2)
        row_gradient = graph.node("Reshape", row_gradient, graph.ints(0, -1, width, 1))
        dx = graph.concat(_to_first_maximum(graph, columns, row_maximum, row_gradient), axis=3)
        dx = graph.node("Reshape", dx, graph.ints(0, channels, covered_height, covered_width))
        if partial:
            ends = graph.ints(0, 0, 0, 0, 0, 0, self._height - covered_height, self._width - covered_width)
            dx = graph.node("Pad", dx, ends)
        return dx, {}


def _to_first_maximum(graph: Graph, parts: Sequence[Tensor], maximum: Tensor, gradient: Tensor) -> list[Tensor]:
    """Divide `gradient` among `parts`: at each position all of it goes to the first part that equals `maximum`."""
    shares = []
    for part in parts[:-1]:
        is_maximum = graph.node("Cast", graph.node("GreaterOrEqual", part, maximum), to=TensorProto.FLOAT)
        shares.append(graph.node("Mul", gradient, is_maximum))
        gradient = graph.node("Sub", gradient, shares[-1])
    return [*shares, gradient]


class Relu:
    """max(x, 0). Its derivative at 0 is 0."""

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        self._y = graph.node("Relu", x)
        return self._y

    def backward(self, graph: Graph, dy: Tensor, *, input_needed: bool) -> tuple[Tensor, Gradients]:
        positive = graph.node("Cast", graph.node("Cast", self._y, to=TensorProto.BOOL), to=TensorProto.FLOAT)
        return graph.node("Mul", dy, positive), {}


class Dropout:
    """Inverted dropout. Every run draws a new mask.

    ONNX Runtime's kernel has its own random generator, which is seeded with `seed` when the session is created.
    """

    def __init__(self, layer: spec.Dropout, seed: int) -> None:
        self._rate, self._seed = layer.rate, seed

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        training = graph.constant(np.array(True))
        y, self._mask = graph.nodes("Dropout", 2, x, graph.scalar(self._rate), training, seed=self._seed)
        return y

    def backward(self, graph: Graph, dy: Tensor, *, input_needed: bool) -> tuple[Tensor, Gradients]:
        kept = graph.node("Mul", dy, graph.node("Cast", self._mask, to=TensorProto.FLOAT))
        return graph.node("Mul", kept, graph.scalar(1 / (1 - self._rate))), {}


class Flatten:
    """To (N, features) in the graph's own order, which is NCHW after feature maps: see `Dense.layouts`."""

    def __init__(self, before: spec.Shape) -> None:
        self._height, self._width, self._channels = before

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        return graph.node("Reshape", x, graph.ints(0, self._height * self._width * self._channels))

    def backward(self, graph: Graph, dy: Tensor, *, input_needed: bool) -> tuple[Tensor, Gradients]:
        return graph.node("Reshape", dy, graph.ints(0, self._channels, self._height, self._width)), {}


class Dense:
    """A fully connected layer with the parameters `<index>/kernel` (in, out) and `<index>/bias`.

    flattened: (H, W, C) of the feature maps if the input has their NCHW order, None if it has the canonical order.
    """

    def __init__(self, index: int, layer: spec.Dense, inputs: int, flattened: spec.Shape | None) -> None:
        self._kernel, self._bias = f"{index}/kernel", f"{index}/bias"
        self._inputs, self._units, self._flattened = inputs, layer.units, flattened

    def layouts(self) -> dict[str, Layout]:
        """Return the layout of each parameter by name.

        After feature maps the rows of the kernel are permuted once, when it is loaded. That saves a transposition of
        every batch to NHWC.
        """
        shape, units = (self._inputs, self._units), (self._units,)
        kernel = Layout(shape, shape, (0, 1), shape)
        if self._flattened:
            kernel = Layout(shape, (*self._flattened, self._units), (2, 0, 1, 3), shape)
        return {self._kernel: kernel, self._bias: Layout(units, units, (0,), units)}

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        self._x = x
        return graph.node("Gemm", x, self._kernel, self._bias)

    def backward(self, graph: Graph, dy: Tensor, *, input_needed: bool) -> tuple[Tensor, Gradients]:
        dx = graph.node("Gemm", dy, self._kernel, transB=1) if input_needed else ""
        bias = graph.node("ReduceSum", dy, graph.ints(0), keepdims=0)
        return dx, {self._kernel: Product(self._x, dy), self._bias: bias}
