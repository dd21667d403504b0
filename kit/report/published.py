"""List the training speeds that the studies published, computed from their times and numbers of images.

A time includes the evaluation after each epoch where the study made one. So the speed of the training alone was higher.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from scenarios.contract.cell import Cell, Device

MNIST, CIFAR = 60_000, 50_000  # training images
UNNAMED = "hardware not named"


@dataclass(frozen=True)
class PublishedSpeed:
    """A published training speed of one network, in images/s. label: of a cell. hardware: as the study names it."""

    label: str
    batch: int
    device: Device
    images_per_s: float
    hardware: str
    study: str

    @property
    def note(self) -> str:
        """Return the speed with its origin, as a sentence without a period."""
        return f"{self.images_per_s:,.0f} images/s, {self.hardware}, study {self.study}"


# Study mnist-batch-sweep: seconds of 10 epochs with validation on the CPUs and on one GPU, by batch size.
_SWEEP_HARDWARE: Mapping[Device, str] = {"cpu": "2× Xeon E5-2670 v3", "cuda": "Tesla P100"}
_SWEEP = {
    32: (790.19, 119.89),
    64: (640.23, 68.56),
    128: (585.06, 41.34),
    256: (556.50, 28.07),
    512: (517.46, 22.63),
    1024: (512.07, 19.14),
    2048: (506.80, 17.64),
}

SPEEDS = (
    PublishedSpeed("mnist-cnn", 64, "cpu", 5 * MNIST / 350.68, UNNAMED, "mnist-cpu-vs-gpu"),
    PublishedSpeed("mnist-cnn", 64, "cuda", 5 * MNIST / 352.21, UNNAMED, "mnist-cpu-vs-gpu"),
    *(
        PublishedSpeed("mnist-cnn-dropout", batch, device, 10 * MNIST / seconds, hardware, "mnist-batch-sweep")
        for batch, times in _SWEEP.items()
        for (device, hardware), seconds in zip(_SWEEP_HARDWARE.items(), times, strict=True)
    ),
    PublishedSpeed("cifar-cnn", 32, "cpu", 15 * CIFAR / 1260.25, UNNAMED, "cifar-epochs"),
    PublishedSpeed("cifar-cnn", 32, "cuda", 50 * CIFAR / 385.03, "Tesla T4", "cifar-epochs"),
    PublishedSpeed("catdog-cnn/conv-dropout", 32, "cuda", 425, "Tesla V100", "catdog-depth"),
    PublishedSpeed("catdog-cnn/no-augment", 32, "cuda", 533, "Tesla V100", "catdog-depth"),
    PublishedSpeed("catdog-cnn/128", 32, "cuda", 333, "Tesla V100", "catdog-depth"),
    PublishedSpeed("catdog-cnn/deep", 32, "cpu", 3, UNNAMED, "catdog-depth"),
    PublishedSpeed("catdog-cnn/deep", 32, "cuda", 300, "Tesla V100", "catdog-depth"),
)


def published_speeds(cell: Cell) -> list[PublishedSpeed]:
    """Return the published speeds of the network, batch size and device of a cell in the stock lane and in fp32."""
    if (cell.lane, cell.precision, cell.devices) != ("stock", "fp32", 1):
        return []
    return [
        speed for speed in SPEEDS if (speed.label, speed.batch, speed.device) == (cell.network, cell.batch, cell.device)
    ]
