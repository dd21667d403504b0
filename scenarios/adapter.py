"""The protocol between the kit and a framework.

The module `scenarios/frameworks/<framework>/adapter.py` defines `ADAPTER`, a class that implements `Adapter`. The
folder `docker/<framework>/` describes its image. Nothing else names a framework.

All values at this boundary are canonical: float32 NHWC images divided by 255, int64 labels, `Weights`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
import numpy.typing as npt

from scenarios.contract.cell import Device, Lane, Precision
from scenarios.contract.evidence import BuildInfo, Placement
from scenarios.contract.request import Request
from scenarios.spec import Augment, Scenario
from scenarios.weights import Weights

Images = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]
Logits = npt.NDArray[np.float32]
State = dict[str, npt.NDArray[Any]]  # of a training, by name

Axes = dict[str, dict[str, list[str]]]  # values by objective and setting, the stock lane's value first
KernelName = Literal["matmul", "convolution nchw", "convolution nhwc", "memory", "upload", "launch"]


class DeviceUnavailable(RuntimeError):
    """The requested device is not visible to the framework in this process."""


class NotOffered(RuntimeError):
    """The adapter does not support this (a lane, a precision, several devices). The text says what and why."""


@dataclass(frozen=True)
class Options:
    """Options of the whole process. Raise NotOffered for options that no adapter has.

    threads: intra-op threads, always set explicitly. workers: threads or processes that load photos; None for the
    framework's default. settings: as in `Request`.
    """

    device: Device = "cpu"
    devices: int = 1
    threads: int = 1
    lane: Lane = "stock"
    precision: Precision = "fp32"
    seed: int = 0
    settings: Mapping[str, str] = field(default_factory=dict)
    workers: int | None = None

    @classmethod
    def of(cls, request: Request) -> Options:
        """Return the options of a request."""
        return cls(
            device=request.cell.device,
            devices=request.cell.devices,
            threads=request.threads,
            lane=request.cell.lane,
            precision=request.cell.precision,
            seed=request.seed,
            settings=request.settings,
            workers=request.cell.workers,
        )

    def __post_init__(self) -> None:
        if self.devices != 1:
            raise NotOffered("Training runs on one device.")
        if self.precision == "tf32" and self.device == "cpu":
            raise NotOffered("TF32 is a mode of NVIDIA GPUs. Choose another precision on the CPU.")
        if self.settings and self.lane != "tuned":
            raise NotOffered("The stock lane has no settings. Request the tuned lane.")

    @property
    def thread_counts(self) -> list[str]:
        """Return the values of the setting `threads`: all requested threads, or half, as hyperthreads share cores."""
        return [str(self.threads), *([str(self.threads // 2)] if self.threads > 1 else [])]

    @property
    def photo_threads(self) -> int:
        """Return the number of threads that load photos: the workers, by default as many as compute."""
        return self.workers or self.threads

    @property
    def intra_op_threads(self) -> int:
        """Return the number of threads to set. Raise NotOffered if the setting `threads` has no such value."""
        if (count := self.settings.get("threads", str(self.threads))) not in self.thread_counts:
            raise NotOffered(
                f"The setting threads = {count} is not available for {self.threads} threads. "
                f"Use {' or '.join(self.thread_counts)}."
            )
        return int(count)


@dataclass(frozen=True)
class Arrays:
    """A labeled set in memory. images: (N, H, W, C) float32 in [0, 1]; labels: (N,)."""

    images: Images
    labels: Labels

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Photos:
    """A labeled set of JPEG files of varying size. They are decoded, scaled to `size` (H, W) and divided by 255.

    `Scenario.scaling` defines how they are scaled.
    """

    paths: Sequence[Path]
    labels: Labels
    size: tuple[int, int]
    augment: Augment | None = None

    def __len__(self) -> int:
        return len(self.labels)


TrainSet = Arrays | Photos


@dataclass(frozen=True)
class Sums:
    """Sums over the images of a training loop, computed before each update and with dropout."""

    images: int
    loss: float
    correct: int


def require_offered(axes: Callable[[Options, Scenario], Axes], options: Options, scenario: Scenario) -> None:
    """Raise NotOffered if the axes of this scenario lack one of the settings."""
    if not options.settings:
        return
    offered = {name: values for objective in axes(options, scenario).values() for name, values in objective.items()}
    for name, value in options.settings.items():
        if value not in offered.get(name, []):
            kind, known = (f"Values of {name}", offered[name]) if name in offered else ("Settings", offered)
            raise NotOffered(f"There is no setting {name} = {value} here. {kind}: {', '.join(known) or 'none'}.")


class Meter(Protocol):
    """The clock of a training loop.

    The loop calls `begin` once, after what it prepares only once per training set or batch size, and before what it
    does in each epoch: shuffling, starting the iterator and its workers, resetting sums. It calls `step` after each
    step. If `step` returns True, the loop waits for the device and calls `mark`. A loop that runs several steps at once
    runs at most `due()` of them, and then calls `step` for each.
    """

    def begin(self) -> None:
        """Start an epoch."""

    def due(self) -> int:
        """Return the number of steps until the window ends, at least 1. It may end in a later epoch."""

    def step(self, images: int) -> bool:
        """Count one step over `images` images. Return True if a window ends here."""

    def mark(self) -> bool:
        """Close the window; the device is synchronized. Return False to end the epoch now."""


class Model(Protocol):
    """A scenario's network, which trains and predicts."""

    def weights(self) -> Weights:
        """Return a copy of the weights."""

    def load(self, weights: Weights) -> None:
        """Replace the weights and reset the optimizer (state zero, step 0)."""

    def state(self) -> State:
        """Return copies of everything that the next epoch depends on, apart from its number and the options.

        These are the weights, by their canonical names, and under names of the adapter: the optimizer's state, its step
        count, and random state that (options.seed, epoch) does not determine.
        """

    def restore(self, state: Mapping[str, npt.NDArray[Any]]) -> None:
        """Continue from the state of a model with the same options and scenario, maybe of another process.

        Raise ValueError if the state does not fit.
        """

    def step(self, images: Images, labels: Labels) -> float:
        """Train one step on this batch, with dropout, through the code path of `train_epoch`. Return the mean loss
        before the update."""

    def train_epoch(self, train: TrainSet, epoch: int, meter: Meter) -> Sums:
        """Train one pass over `train`, the short last batch included, as the lane does it.

        The framework shuffles in its own order, seeded by (options.seed, epoch). Stop early if `meter.mark` returns
        False.
        """

    def logits(self, images: Images) -> Logits:
        """Return (N, units) before the last activation, without dropout, for any N from 1. The caller chunks."""

    def resident_steps(self, images: Images, labels: Labels) -> Callable[[int], None]:
        """Copy this batch, of any size up to the scenario's, to the device once.

        Return a function that trains the given number of steps on it, through the code path of `train_epoch`, and
        returns when the device has finished. Calls of several such functions may alternate.
        """

    def predictor(self, batch: int) -> Callable[[Images], npt.NDArray[np.float32]]:
        """Freeze the current weights for inference at this batch size, as the framework's users would serve them.

        The function takes a host array (batch, H, W, C) and returns the outputs after the last activation,
        (batch, units), as a host array.
        """

    def placement(self) -> Placement:
        """Return evidence of what ran. The caller trains first."""

    def device_peak_bytes(self) -> int | None:
        """Return the peak of the framework's own allocator on the GPU. Return None on the CPU."""


class Adapter(Protocol):
    """One framework in one process. Importing the module imports the framework.

    optimizer_form: the place of Adam's epsilon. "keras": lr * sqrt(1-b2^t)/(1-b1^t) * m / (sqrt(v) + eps);
    "torch": lr * m/(1-b1^t) / (sqrt(v/(1-b2^t)) + eps).
    likely: for each setting the values that usually gain. The tuner starts with the first available value of each, all
    together.
    """

    name: ClassVar[str]
    optimizer_form: ClassVar[Literal["keras", "torch"]]
    likely: ClassVar[Mapping[str, Sequence[str]]]

    @staticmethod
    def axes(options: Options, scenario: Scenario) -> Axes:
        """Return the settings that the tuner may try for this cell.

        The objectives are `training`, and for inference `latency` and `throughput`. Must not run anything of the
        framework, because the process will fork.
        """

    def __init__(self, options: Options) -> None:
        """Configure the process: threads, device, precision, seeds. Raise DeviceUnavailable or NotOffered."""

    def versions(self) -> dict[str, str]:
        """Return versions of the framework and of the libraries that compute for it (CUDA, cuDNN, oneDNN if known).

        The caller trains first: CUDA's libraries are those that the framework has loaded, not those it was built with.
        """

    def build_info(self) -> BuildInfo:
        """Return which devices the framework sees, and how it was built, by the framework's own names."""

    def build(self, scenario: Scenario, weights: Weights) -> Model:
        """Return a model with these weights, ready for its first step. Raise NotOffered.

        Several models may exist in one process, for example the proof's.
        """

    def kernel(self, name: KernelName, size: int) -> Callable[[int], None]:
        """Prepare one primitive with its operands on the adapter's device at its precision. Raise NotOffered.

        The returned function runs it the given number of times and returns when the device has finished.

        matmul: (size, size) by (size, size). convolution: `size` images of 56x56x64 by 64 kernels 3x3, same padding,
        in this layout (NotOffered if the framework lacks it on this device). memory: read and write `size` bytes of
        float32 each, elementwise. upload: copy `size` bytes from host memory to the device (NotOffered on the CPU).
        launch: the smallest elementwise kernel, on `size` values.
        """

    def read_photos(self, photos: Photos) -> Images:
        """Decode and scale as this framework's loader does for evaluation: (N, H, W, 3), without augmentation."""
