"""Define what a scenario is: data set, preprocessing, network, loss and optimizer, independent of any framework.

Standard library only, because both the orchestrator and the worker import it. Images are NHWC, pixel values are divided
by 255, convolution kernels are HWIO, dense kernels are (in, out), and `Flatten` keeps NHWC order, whatever layout a
framework uses inside.
"""

import hashlib
import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Literal

Activation = Literal["linear", "relu", "softmax", "sigmoid"]
Init = Literal["glorot_uniform", "he_normal"]
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Conv:
    """2-D convolution, stride 1, square kernel, with bias. `same` pads with zeros and keeps height and width."""

    filters: int
    kernel: int = 3
    padding: Literal["valid", "same"] = "valid"
    activation: Activation = "relu"
    init: Init = "glorot_uniform"


@dataclass(frozen=True)
class MaxPool:
    """Max pooling. The stride is the window size. Rows and columns that do not fill a window are dropped."""

    size: int = 2


@dataclass(frozen=True)
class Dropout:
    """In training, set each value to zero with probability `rate` and scale the rest by 1 / (1 - rate)."""

    rate: float


@dataclass(frozen=True)
class Flatten:
    """Reshape (H, W, C) to (H * W * C), in that order."""


@dataclass(frozen=True)
class Dense:
    """Fully connected layer with bias."""

    units: int
    activation: Activation = "relu"
    init: Init = "glorot_uniform"


Layer = Conv | MaxPool | Dropout | Flatten | Dense


@dataclass(frozen=True)
class Sgd:
    """w -= learning_rate * g."""

    learning_rate: float = 0.01


@dataclass(frozen=True)
class Adam:
    """Kingma and Ba 2014. The position of epsilon differs between frameworks. The adapter declares it."""

    learning_rate: float = 1e-3
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-7


@dataclass(frozen=True)
class Adadelta:
    """Zeiler 2012, scaled by a learning rate."""

    learning_rate: float = 1.0
    rho: float = 0.95
    epsilon: float = 1e-7


Optimizer = Sgd | Adam | Adadelta


@dataclass(frozen=True)
class Augment:
    """Random augmentation of each training photo, with the distribution of Keras' `ImageDataGenerator`.

    shear: the angle is drawn from +-shear degrees. zoom: the factors of height and width are drawn independently from
    1 +- zoom; a factor above 1 shows more of the picture (edge pixels are repeated). flip: half of the photos are
    mirrored left to right.
    """

    shear: float = 0.2
    zoom: float = 0.2
    flip: bool = True


@dataclass(frozen=True)
class Dataset:
    """The facts of a labeled image set that orchestrator and worker need.

    train, test: number of images in each part. shape: (H, W, C) of one image; None for photos of varying size.
    """

    name: str
    title: str
    train: int
    test: int
    classes: tuple[str, ...]
    shape: tuple[int, int, int] | None


DATASETS: dict[str, Dataset] = {
    d.name: d
    for d in (
        Dataset("mnist", "MNIST", 60_000, 10_000, tuple("0123456789"), (28, 28, 1)),
        Dataset(
            "fashion-mnist",
            "Fashion-MNIST",
            60_000,
            10_000,
            (
                "T-shirt/top",
                "trouser",
                "pullover",
                "dress",
                "coat",
                "sandal",
                "shirt",
                "sneaker",
                "bag",
                "ankle boot",
            ),
            (28, 28, 1),
        ),
        Dataset(
            "cifar-10",
            "CIFAR-10",
            50_000,
            10_000,
            ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
            (32, 32, 3),
        ),
        Dataset("cats-dogs", "Cats and dogs", 8_000, 2_000, ("cats", "dogs"), None),
    )
}


@dataclass(frozen=True)
class Parameter:
    """One trainable tensor in canonical layout. fan_in and fan_out belong to the formula of its initializer."""

    name: str
    shape: Shape
    init: Init | Literal["zeros"]
    fan_in: int
    fan_out: int


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """The specification of one training task. A variant is a scenario with a `variant` name and changed fields.

    The last layer is a `Dense` whose activation gives the output of the network. The loss is always computed from the
    input of this activation, the logits, in a stable form. `categorical`: softmax cross-entropy. After a `sigmoid` of
    several units Keras' rule applies: clip to [1e-7, 1 - 1e-7], normalize to sum 1, -log of the label's share.
    `binary`: sigmoid cross-entropy of one unit.

    scaling: how photos are scaled to `image`. `nearest`: the photo is decoded at full resolution, and row i of H is row
    floor((i + 0.5) * h / H) of its h rows, in exact arithmetic. Columns likewise. The aspect ratio may change. Keras'
    `ImageDataGenerator` and Pillow's `Image.resize` with NEAREST give the same, except that they may take the neighbor
    of a pixel if (i + 0.5) * h / H is an integer and H no power of 2. Without effect on sets of arrays.

    inference_batch: images per call when throughput is measured. proof_batch: images in the proof. Raise ValueError if
    the parts do not fit together.
    """

    name: str
    title: str
    study: str
    dataset: str
    image: tuple[int, int, int]
    layers: tuple[Layer, ...]
    loss: Literal["categorical", "binary"]
    optimizer: Optimizer
    batch: int
    epochs: int
    variant: str = ""
    augment: Augment | None = None
    scaling: Literal["nearest"] = "nearest"
    inference_batch: int = 256
    proof_batch: int = 16

    def __post_init__(self) -> None:
        last = self.layers[-1] if self.layers else None
        if not isinstance(last, Dense) or last.activation == "relu":
            raise ValueError(f"{self.label}: the last layer must be Dense with linear, softmax or sigmoid activation")
        if self.dataset not in DATASETS:
            raise ValueError(f"{self.label}: unknown data set {self.dataset!r}, known: {', '.join(DATASETS)}")
        if (self.loss == "binary") != (last.units == 1):
            raise ValueError(f"{self.label}: binary loss needs one output unit, categorical loss needs several")
        if any(isinstance(x, Conv | Dense) and x.activation in ("softmax", "sigmoid") for x in self.layers[:-1]):
            raise ValueError(f"{self.label}: only the last layer may have softmax or sigmoid activation")
        if min(self.batch, self.epochs, self.inference_batch, self.proof_batch) < 1:
            raise ValueError(f"{self.label}: batch sizes and epochs must be at least 1")
        list(shapes(self))  # raises if a layer does not fit its input

    @property
    def label(self) -> str:
        """Return `name` or `name+variant`, the form used in keys and file names."""
        return f"{self.name}+{self.variant}" if self.variant else self.name

    @property
    def output(self) -> Dense:
        """Return the last layer."""
        last = self.layers[-1]
        assert isinstance(last, Dense)
        return last


def shapes(scenario: Scenario) -> Iterator[tuple[int, Layer, Shape, Shape]]:
    """Yield (index, layer, input shape, output shape) of each layer, without the batch axis.

    Raise ValueError if a layer does not fit its input.
    """
    shape: Shape = scenario.image
    for index, layer in enumerate(scenario.layers):
        before = shape
        if isinstance(layer, Conv | MaxPool | Flatten) and len(shape) != 3:
            raise ValueError(f"{scenario.label}: layer {index} {layer} needs (H, W, C), got {shape}")
        match layer:
            case Conv(filters=filters, kernel=kernel, padding=padding):
                lost = 0 if padding == "same" else kernel - 1
                shape = (shape[0] - lost, shape[1] - lost, filters)
            case MaxPool(size=size):
                shape = (shape[0] // size, shape[1] // size, shape[2])
            case Flatten():
                shape = (math.prod(shape),)
            case Dense(units=units):
                if len(shape) != 1:
                    raise ValueError(f"{scenario.label}: layer {index} {layer} needs a Flatten before it, got {shape}")
                shape = (units,)
            case Dropout(rate=rate):
                if not 0 <= rate < 1:
                    raise ValueError(f"{scenario.label}: layer {index} {layer}: the rate must be in [0, 1)")
        if min(shape) < 1:
            raise ValueError(f"{scenario.label}: layer {index} {layer} leaves nothing of {before}")
        yield index, layer, before, shape


def parameters(scenario: Scenario) -> list[Parameter]:
    """Return the trainable tensors in order: for each Conv and Dense layer `<index>/kernel`, then `<index>/bias`."""
    found = []
    for index, layer, before, _ in shapes(scenario):
        if isinstance(layer, Conv):
            shape: Shape = (layer.kernel, layer.kernel, before[2], layer.filters)
            field = layer.kernel * layer.kernel
            fans = field * before[2], field * layer.filters
        elif isinstance(layer, Dense):
            shape, fans = (before[0], layer.units), (before[0], layer.units)
        else:
            continue
        found.append(Parameter(f"{index}/kernel", shape, layer.init, *fans))
        found.append(Parameter(f"{index}/bias", shape[-1:], "zeros", *fans))
    return found


def with_hidden_layers(scenario: Scenario, count: int) -> Scenario:
    """Return the scenario with `count` of its hidden dense layers, which are all Dense layers but the last.

    Raise ValueError unless they are equal and directly before the last layer, because then no other number is defined.
    """
    dense = [layer for layer in scenario.layers[:-1] if isinstance(layer, Dense)]
    before = scenario.layers[: -1 - len(dense)]
    if not dense or len(set(dense)) > 1 or any(isinstance(layer, Dense) for layer in before):
        raise ValueError(f"{scenario.label} has no equal hidden layers whose number can vary")
    return replace(scenario, layers=(*before, *dense[:1] * count, scenario.output))


def without_randomness(scenario: Scenario) -> Scenario:
    """Return the scenario with dropout at rate 0 and no augmentation, for the proof.

    The layers keep their positions, so parameter names stay the same.
    """
    layers = tuple(Dropout(0.0) if isinstance(layer, Dropout) else layer for layer in scenario.layers)
    return replace(scenario, layers=layers, augment=None)


def digest(scenario: Scenario) -> str:
    """Return the SHA-256 (hex) of every field that changes what is computed: all but title and study, and scaling only
    if the set has photos."""

    def tagged(part: object) -> dict[str, object]:
        return {"type": type(part).__name__, **asdict(part)}  # type: ignore[call-overload]

    fields = asdict(scenario) | {
        "layers": [tagged(layer) for layer in scenario.layers],
        "optimizer": tagged(scenario.optimizer),
    }
    unused = () if DATASETS[scenario.dataset].shape is None else ("scaling",)
    for name in ("title", "study", *unused):
        del fields[name]
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
