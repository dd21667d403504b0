"""Compute a scenario's function in numpy float64. Every adapter is compared with this reference.

Layers, losses and their derivatives are written out by hand, so that no framework judges itself. The derivative of ReLU
at 0 is 0. Of equal maxima in a pooling window, the first in row-major order gets the whole gradient. Convolutions are
matrix products over unrolled windows, for a few images at a time to limit memory.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from scenarios.spec import Adadelta, Adam, Conv, Dense, Dropout, Flatten, MaxPool, Optimizer, Scenario, Sgd

Array = npt.NDArray[np.float64]
Tensors = dict[str, Array]
Floats = npt.NDArray[np.floating[Any]]
Labels = npt.NDArray[np.int64]
Form = Literal["keras", "torch"]
Pull = Callable[[Array], tuple[Array, tuple[Array, ...]]]  # dL/dy -> dL/dx, (dL/dkernel, dL/dbias) or ()
Operation = Callable[[Array], tuple[Array, Pull]]  # x -> y, and how its gradient goes back

SHARE_CLIP = 1e-7  # Keras' backend.epsilon()
COLUMN_BYTES = 64 * 2**20


@dataclass(frozen=True)
class Values:
    """What the reference computes on one batch.

    logits: (N, units). loss: (weighted) mean over the batch, in nats. gradients: of that mean, for each parameter.
    """

    logits: Array
    loss: float
    gradients: Tensors


def forward(scenario: Scenario, weights: Mapping[str, Floats], images: Floats) -> Array:
    """Return the logits (N, units) of images (N, H, W, C), dropout off."""
    x = np.asarray(images, np.float64)
    for _, operation in _operations(scenario, weights, {}):
        x, _ = operation(x)
    return x


def evaluate(
    scenario: Scenario,
    weights: Mapping[str, Floats],
    images: Floats,
    labels: Labels,
    masks: Mapping[int, Array] | None = None,
    shares: Array | None = None,
) -> Values:
    """Return logits, loss and gradients on one batch.

    images: (N, H, W, C). labels: (N,). masks: factors for the input of the Dropout layer with that index (0 or
    1 / (1 - rate) for each value). A layer without a mask drops nothing. shares: weight of each image in the mean loss,
    (N,), with sum 1; None for equal weights.
    """
    x = np.asarray(images, np.float64)
    tape: list[tuple[int, Pull]] = []
    for index, operation in _operations(scenario, weights, masks or {}):
        x, pull = operation(x)
        tape.append((index, pull))
    each, slope = _loss(scenario, x, labels)
    if shares is None:
        shares = np.full(len(labels), 1 / len(labels))
    slope *= shares[:, np.newaxis]
    found: Tensors = {}
    for index, pull in reversed(tape):
        slope, gradients = pull(slope)
        if gradients:
            found[f"{index}/kernel"], found[f"{index}/bias"] = gradients
    return Values(x, float(shares @ each), {name: found[name] for name in weights})


def output(scenario: Scenario, logits: Floats) -> Array:
    """Return the output of the network, (N, units): the last activation applied to the logits."""
    exact = np.asarray(logits, np.float64)
    match scenario.output.activation:
        case "softmax":
            return np.asarray(np.exp(_log_softmax(exact)))
        case "sigmoid":
            return _sigmoid(exact)
        case _:
            return exact


def predictions(scenario: Scenario, logits: Floats) -> Labels:
    """Return the predicted label of each image, (N,): the largest logit; with one unit, 1 if the logit is positive."""
    if scenario.loss == "binary":
        return (logits[:, 0] > 0).astype(np.int64)
    return np.asarray(logits.argmax(axis=1), np.int64)


def probabilities(scenario: Scenario, logits: Floats) -> Array:
    """Return the probability of each class, (N, classes), as the loss defines it: exp(-loss) of an image with that
    label. One output unit means two classes."""
    labels = range(max(2, scenario.output.units))
    return np.stack([np.exp(-losses(scenario, logits, np.full(len(logits), label))) for label in labels], axis=1)


def losses(scenario: Scenario, logits: Floats, labels: Labels) -> Array:
    """Return the loss of each image, (N,), in nats."""
    return _loss(scenario, np.asarray(logits, np.float64), labels)[0]


# ---- layers: each takes x, and returns y and the function that maps dL/dy to dL/dx ------------------------------


def _operations(
    scenario: Scenario, weights: Mapping[str, Floats], masks: Mapping[int, Array]
) -> Iterator[tuple[int, Operation]]:
    """Yield the operations of the network up to its logits, each with the index of its layer."""
    for index, layer in enumerate(scenario.layers):
        match layer:
            case Conv() | Dense():
                kernel, bias = (np.asarray(weights[f"{index}/{part}"], np.float64) for part in ("kernel", "bias"))
                if isinstance(layer, Conv):
                    yield index, partial(_conv, kernel=kernel, bias=bias, same=layer.padding == "same")
                else:
                    yield index, partial(_dense, kernel=kernel, bias=bias)
                if layer.activation == "relu":
                    yield index, _relu
            case MaxPool(size=size):
                yield index, partial(_max_pool, size=size)
            case Dropout():
                if index in masks:
                    yield index, partial(_scale, factors=masks[index])
            case Flatten():
                yield index, _flatten


def _conv(x: Array, kernel: Array, bias: Array, *, same: bool) -> tuple[Array, Pull]:
    size, _, channels, filters = kernel.shape
    before, after = ((size - 1) // 2, size // 2) if same else (0, 0)  # TensorFlow's rule for even kernels
    padded = np.pad(x, ((0, 0), (before, after), (before, after), (0, 0)))
    height, width = padded.shape[1] - size + 1, padded.shape[2] - size + 1
    flat = kernel.reshape(-1, filters)
    parts = _parts(len(x), height * width * len(flat) * kernel.itemsize)
    y = np.empty((len(x), height, width, filters))
    for part in parts:
        y[part] = _columns(padded[part], size) @ flat + bias

    def pull(dy: Array) -> tuple[Array, tuple[Array, Array]]:
        dx, dkernel = np.zeros_like(padded), np.zeros_like(flat)
        for part in parts:
            dkernel += _columns(padded[part], size).reshape(-1, len(flat)).T @ dy[part].reshape(-1, filters)
            spread = (dy[part] @ flat.T).reshape(-1, height, width, size, size, channels)
            for row in range(size):
                for column in range(size):
                    dx[part, row : row + height, column : column + width] += spread[:, :, :, row, column]
        inner = dx[:, before : before + x.shape[1], before : before + x.shape[2]]
        return inner, (dkernel.reshape(kernel.shape), dy.sum(axis=(0, 1, 2)))

    return y, pull


def _parts(images: int, bytes_each: int) -> list[slice]:
    step = max(1, COLUMN_BYTES // bytes_each)
    return [slice(start, start + step) for start in range(0, images, step)]


def _columns(x: Array, size: int) -> Array:
    """Map (N, H, W, C) to (N, H - size + 1, W - size + 1, size * size * C): each window as a row, in HWI order."""
    windows = sliding_window_view(x, (size, size), axis=(1, 2))
    return windows.transpose(0, 1, 2, 4, 5, 3).reshape(*windows.shape[:3], -1)


def _dense(x: Array, kernel: Array, bias: Array) -> tuple[Array, Pull]:
    return x @ kernel + bias, lambda dy: (dy @ kernel.T, (x.T @ dy, dy.sum(axis=0)))


def _relu(x: Array) -> tuple[Array, Pull]:
    return np.maximum(x, 0), lambda dy: (dy * (x > 0), ())


def _max_pool(x: Array, size: int) -> tuple[Array, Pull]:
    count, height, width, channels = x.shape
    rows, columns = height // size, width // size
    inner = (slice(None), slice(rows * size), slice(columns * size))
    windows = x[inner].reshape(count, rows, size, columns, size, channels).transpose(0, 1, 3, 5, 2, 4)
    windows = windows.reshape(count, rows, columns, channels, size * size)
    first = windows.argmax(axis=-1)[..., np.newaxis]  # argmax returns the first of equal maxima

    def pull(dy: Array) -> tuple[Array, tuple[()]]:
        dwindows = np.zeros_like(windows)
        np.put_along_axis(dwindows, first, dy[..., np.newaxis], axis=-1)
        dwindows = dwindows.reshape(count, rows, columns, channels, size, size).transpose(0, 1, 4, 2, 5, 3)
        dx = np.zeros_like(x)
        dx[inner] = dwindows.reshape(count, rows * size, columns * size, channels)
        return dx, ()

    return np.take_along_axis(windows, first, axis=-1)[..., 0], pull


def _scale(x: Array, factors: Array) -> tuple[Array, Pull]:
    return x * factors, lambda dy: (dy * factors, ())


def _flatten(x: Array) -> tuple[Array, Pull]:
    return x.reshape(len(x), -1), lambda dy: (dy.reshape(x.shape), ())


# ---- losses: each returns the loss of each image and its derivative with respect to the logits ------------------


def _loss(scenario: Scenario, logits: Array, labels: Labels) -> tuple[Array, Array]:
    if scenario.loss == "binary":
        return _binary_loss(logits, labels)
    target = np.zeros_like(logits)
    target[np.arange(len(labels)), labels] = 1
    return _share_loss(logits, target) if scenario.output.activation == "sigmoid" else _softmax_loss(logits, target)


def _binary_loss(logits: Array, labels: Labels) -> tuple[Array, Array]:
    """Return the cross-entropy of the sigmoid of one logit: softplus(z) - y z."""
    target = labels.reshape(-1, 1)
    return (np.logaddexp(0, logits) - target * logits)[:, 0], _sigmoid(logits) - target


def _softmax_loss(logits: Array, target: Array) -> tuple[Array, Array]:
    logs = _log_softmax(logits)
    return -(target * logs).sum(axis=1), np.exp(logs) - target


def _share_loss(logits: Array, target: Array) -> tuple[Array, Array]:
    """Return Keras' sparse categorical cross-entropy of probabilities, here after a sigmoid: clip, normalize, -log."""
    chances = _sigmoid(logits)
    clipped = chances.clip(SHARE_CLIP, 1 - SHARE_CLIP)
    total = clipped.sum(axis=1, keepdims=True)
    dclipped = 1 / total - target / clipped
    passing = clipped == chances  # no gradient where the clip cuts
    return -np.log((target * clipped / total).sum(axis=1)), dclipped * passing * chances * (1 - chances)


def _log_softmax(logits: Array) -> Array:
    shifted = logits - logits.max(axis=1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))


def _sigmoid(logits: Array) -> Array:
    return np.asarray(np.exp(-np.logaddexp(0, -logits)))


# ---- optimizers ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trajectory:
    """What steps on the same batch do. losses: before each step, (steps,), in nats. changes: of each weight, over all
    steps."""

    losses: Array
    changes: Tensors


@dataclass(frozen=True)
class State:
    """The state of an optimizer.

    Adam: step count and the moments m, v. Adadelta: the decaying averages of squared gradients (first) and squared
    updates (second). SGD: nothing.
    """

    step: int
    first: Tensors
    second: Tensors


def start(weights: Mapping[str, Floats]) -> State:
    """Return the state before the first step: zeros."""
    zeros = {name: np.zeros(value.shape) for name, value in weights.items()}
    return State(0, zeros, zeros)


def update(optimizer: Optimizer, form: Form, state: State, gradients: Mapping[str, Floats]) -> tuple[Tensors, State]:
    """Return what one step adds to each weight, and the state after it. `form` is the position of Adam's epsilon:

    keras: -lr sqrt(1 - b2^t) / (1 - b1^t) m / (sqrt(v) + eps), the "epsilon hat" of Kingma and Ba 2014, section 2;
    torch: -lr m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps), their algorithm 1.
    """
    step = state.step + 1
    updates = {
        name: _update_one(optimizer, form, step, np.asarray(value, np.float64), state.first[name], state.second[name])
        for name, value in gradients.items()
    }
    changes, first, second = ({name: parts[index] for name, parts in updates.items()} for index in range(3))
    return changes, State(step, first, second)


def _update_one(
    optimizer: Optimizer, form: Form, step: int, gradient: Array, first: Array, second: Array
) -> tuple[Array, Array, Array]:
    rate = optimizer.learning_rate
    match optimizer:
        case Sgd():
            return -rate * gradient, first, second
        case Adam(beta_1=beta_1, beta_2=beta_2, epsilon=epsilon):
            first = beta_1 * first + (1 - beta_1) * gradient
            second = beta_2 * second + (1 - beta_2) * gradient**2
            correction_1, correction_2 = 1 - beta_1**step, np.sqrt(1 - beta_2**step)
            if form == "keras":
                return -rate * correction_2 / correction_1 * first / (np.sqrt(second) + epsilon), first, second
            return -rate / correction_1 * first / (np.sqrt(second) / correction_2 + epsilon), first, second
        case Adadelta(rho=rho, epsilon=epsilon):
            first = rho * first + (1 - rho) * gradient**2
            step_taken = np.sqrt(second + epsilon) / np.sqrt(first + epsilon) * gradient
            return -rate * step_taken, first, rho * second + (1 - rho) * step_taken**2


def trajectory(
    scenario: Scenario, form: Form, weights: Mapping[str, Floats], images: Floats, labels: Labels, steps: int
) -> Trajectory:
    """Train this number of steps on one batch, images (N, H, W, C) and labels (N,), with the scenario's optimizer."""
    present, state, losses = (
        {name: np.asarray(value, np.float64) for name, value in weights.items()},
        start(weights),
        [],
    )
    for _ in range(steps):
        values = evaluate(scenario, present, images, labels)
        changes, state = update(scenario.optimizer, form, state, values.gradients)
        losses.append(values.loss)
        present = {name: value + changes[name] for name, value in present.items()}
    return Trajectory(np.array(losses), {name: present[name] - value for name, value in weights.items()})
