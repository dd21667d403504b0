"""What an adapter is: the one place where a framework's name for a thing meets ours.

A module `scenarios/frameworks/<framework>.py` defines `ADAPTER`, a class that meets `Adapter`; the folder
`docker/<framework>/` holds its image. Nothing else names a framework.

Everything at this boundary is canonical: float32 NHWC images already divided by 255, int64 labels, `Weights`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal, Protocol

import numpy as np
import numpy.typing as npt

from scenarios.contract.request import Request
from scenarios.contract.result import Placement
from scenarios.spec import Augment, Scenario
from scenarios.weights import Weights

Images = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]
Logits = npt.NDArray[np.float32]


Axes = dict[str, dict[str, list[str]]]  # by objective, then by name: values, stock's own first
KernelName = Literal["matmul", "convolution", "memory", "upload", "launch"]


class DeviceUnavailable(RuntimeError):
    """The requested device is not visible to the framework in this process."""


class NotOffered(RuntimeError):
    """The adapter does not do this (a lane, a precision, several devices). The text says what and why."""


@dataclass(frozen=True)
class Options:
    """What holds for the whole process. threads: intra-op threads, to be set explicitly. settings: as in Request."""

    device: Literal["cpu", "cuda"] = "cpu"
    devices: int = 1
    threads: int = 1
    lane: Literal["stock", "tuned"] = "stock"
    precision: Literal["fp32", "tf32", "bf16"] = "fp32"
    seed: int = 0
    settings: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, request: Request) -> Options:
        """Return what a request says about the whole process."""
        return cls(
            device=request.device,
            devices=request.devices,
            threads=request.threads,
            lane=request.lane,
            precision=request.precision,
            seed=request.seed,
            settings=request.settings,
        )

    def __post_init__(self) -> None:
        if self.settings and self.lane != "tuned":
            raise NotOffered("Settings go with the tuned lane alone.")

    @property
    def thread_counts(self) -> list[str]:
        """What the setting `threads` can be: as many as are asked for, or half, as hyperthreads share cores."""
        return [str(self.threads), *([str(self.threads // 2)] if self.threads > 1 else [])]

    @property
    def intra_op_threads(self) -> int:
        """Threads to be set. Raises NotOffered for a setting that goes with another number of them."""
        if (found := self.settings.get("threads", str(self.threads))) not in self.thread_counts:
            raise NotOffered(f"The setting threads = {found} does not go with {self.threads} threads.")
        return int(found)


@dataclass(frozen=True)
class Arrays:
    """A labelled set held in memory. images: (N, H, W, C) float32 in [0, 1]; labels: (N,)."""

    images: Images
    labels: Labels

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Photos:
    """A labelled set of JPEG files of varying size, to be decoded, scaled to `size` (H, W) and divided by 255."""

    paths: Sequence[Path]
    labels: Labels
    size: tuple[int, int]
    augment: Augment | None = None

    def __len__(self) -> int:
        return len(self.labels)


TrainSet = Arrays | Photos


@dataclass(frozen=True)
class Sums:
    """Running sums over the images a training loop saw, taken before each update, dropout on."""

    images: int
    loss: float
    correct: int


def require_offered(axes: Callable[[Options, Scenario], Axes], options: Options, scenario: Scenario) -> None:
    """Raise NotOffered for settings that the axes do not have for this scenario."""
    if not options.settings:
        return
    offered = {name: values for objective in axes(options, scenario).values() for name, values in objective.items()}
    for name, value in options.settings.items():
        if value not in offered.get(name, []):
            of, known = ("", offered) if name not in offered else (f" of {name}", offered[name])
            raise NotOffered(f"There is no setting {name} = {value} here; offered{of}: {', '.join(known) or 'none'}.")


class Meter(Protocol):
    """The clock that a training loop carries. The loop calls `begin` once, right before it asks for its first batch,
    `step` after each step, and, where that returns True, waits for the device and calls `mark`. One that makes several
    steps at once makes at most `due()` of them, and calls `step` for each afterwards."""

    def begin(self) -> None:
        """A new epoch starts."""

    def due(self) -> int:
        """Steps until the window ends, at least 1."""

    def step(self, images: int) -> bool:
        """Count one step over `images` images; True where a window ends here."""

    def mark(self) -> bool:
        """The device is synchronised: close the window. False: stop training now, mid-epoch."""


class Model(Protocol):
    """A scenario turned into something that trains and predicts."""

    def weights(self) -> Weights:
        """Read the weights back from wherever the framework keeps them."""

    def load(self, weights: Weights) -> None:
        """Replace the weights; the optimizer starts anew (state zero, step 0)."""

    def step(self, images: Images, labels: Labels) -> float:
        """One training step on this batch, dropout on, through the same path that `train_epoch` uses; returns the
        mean loss before the update."""

    def train_epoch(self, train: TrainSet, epoch: int, meter: Meter) -> Sums:
        """One pass over `train`, in the framework's own shuffled order seeded by (options.seed, epoch), the short
        last batch included, as the lane has it. Stops early where `meter.mark` says so."""

    def logits(self, images: Images) -> Logits:
        """Evaluate (dropout off): (N, units) before the last activation. Any N from 1; the caller chunks."""

    def resident_steps(self, images: Images, labels: Labels) -> Callable[[int], None]:
        """Put this batch (any size up to the scenario's) on the device once. The callable does that many training
        steps on it, through the path of `train_epoch`, and returns when the device has finished. Those of several
        batches may be called by turns."""

    def predictor(self, batch: int) -> Callable[[Images], npt.NDArray[np.float32]]:
        """Freeze the present weights for inference at this batch size, as the framework's users would serve it.
        The callable takes a host array (batch, H, W, C), returns the network's output (after the last activation;
        (batch, units)) as a host array, finished."""

    def placement(self) -> Placement:
        """Evidence of what really ran; called after training."""

    def device_peak_bytes(self) -> int | None:
        """Peak of the framework's own allocator on the GPU; None on the CPU."""


class Adapter(Protocol):
    """One framework in one process. Importing the module imports the framework.

    optimizer_form: where Adam's epsilon stands. "keras": lr * sqrt(1-b2^t)/(1-b1^t) * m / (sqrt(v) + eps);
    "torch": lr * m/(1-b1^t) / (sqrt(v/(1-b2^t)) + eps).
    likely: values of settings in `axes` that gain more often than not; of several the first that there is. The tuner
    begins with all of them together.
    """

    name: ClassVar[str]
    optimizer_form: ClassVar[Literal["keras", "torch"]]
    likely: ClassVar[Mapping[str, Sequence[str]]]

    @staticmethod
    def axes(options: Options, scenario: Scenario) -> Axes:
        """The settings that the tuner may try for this cell, by objective (`training`; `latency` and `throughput` of
        inference). Runs nothing of the framework: the process will fork."""

    def __init__(self, options: Options) -> None:
        """Configure the process: threads, device, precision, seeds. Raises DeviceUnavailable, NotOffered."""

    def versions(self) -> dict[str, str]:
        """Versions of the framework and of the libraries that do its work (CUDA, cuDNN, oneDNN where known)."""

    def build(self, scenario: Scenario, weights: Weights) -> Model:
        """A model with these weights, ready for its first step. Several may live in one process (the proof builds
        its own). Raises NotOffered."""

    def kernel(self, name: KernelName, size: int) -> Callable[[int], None]:
        """One primitive on the adapter's device at its precision, operands in place. The callable runs it that many
        times and returns when the device has finished. Raises NotOffered.

        matmul: (size, size) by (size, size). convolution: `size` images of 56x56x64 by 64 kernels 3x3, same padding.
        memory: `size` bytes of float32 read and as many written, elementwise. upload: `size` bytes copied from host
        memory to the device (NotOffered on the CPU). launch: the smallest elementwise kernel, on `size` values.
        """

    def read_photos(self, photos: Photos) -> Images:
        """Decode and scale as this framework's loader does in evaluation: (N, H, W, 3), no augmentation."""
