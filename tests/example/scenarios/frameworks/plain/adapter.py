"""An example framework: NumPy, by the mathematics of `scenarios.reference`. What a new adapter looks like.

A framework is this module, which defines `ADAPTER`, and the folder `docker/plain`, which says how its image is made.
"""

from __future__ import annotations

import importlib.metadata
import math
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np

from scenarios.adapter import (
    Arrays,
    Axes,
    DeviceUnavailable,
    Images,
    KernelName,
    Labels,
    Logits,
    Meter,
    NotOffered,
    Options,
    Photos,
    Sums,
    TrainSet,
    require_offered,
)
from scenarios.contract.result import Placement
from scenarios.data.photos import PhotoLoader, read_photos
from scenarios.frameworks import probes
from scenarios.proof import reference
from scenarios.spec import Dropout, Scenario, shapes
from scenarios.weights import Weights


class PlainAdapter:
    """Meets `base.Adapter`."""

    name: ClassVar[str] = "plain"
    optimizer_form: ClassVar[Literal["keras", "torch"]] = "torch"
    likely: ClassVar[Mapping[str, Sequence[str]]] = {}

    @staticmethod
    def axes(options: Options, scenario: Scenario) -> Axes:
        """What the tuner may try: fewer threads share out a batch in fewer parts."""
        return {"training": {"threads": options.thread_counts}}

    def __init__(self, options: Options) -> None:
        if options.device != "cpu":
            raise DeviceUnavailable("NumPy computes on the CPU alone.")
        if options.devices != 1 or options.precision != "fp32":
            raise NotOffered("The plain adapter offers one device and fp32.")
        self._options = replace(options, threads=options.intra_op_threads)

    def versions(self) -> dict[str, str]:
        """Python, NumPy, and what reads the photos."""
        known = {name: importlib.metadata.version(name) for name in ("numpy", "opencv-python-headless")}
        return {"python": platform.python_version(), "plain": known["numpy"], **known}

    def build(self, scenario: Scenario, weights: Weights) -> PlainModel:
        """A model with these weights."""
        require_offered(self.axes, self._options, scenario)
        return PlainModel(self._options, scenario, weights)

    def kernel(self, name: KernelName, size: int) -> Callable[[int], None]:
        """Matrix product, memory and launch in float32; NumPy has no convolution and nothing to upload to."""
        random = np.random.default_rng(0)
        match name:
            case "matmul":
                operands = [random.random((size, size), dtype=np.float32) for _ in range(2)]
                return repeated(np.matmul, operands)
            case "memory":
                return repeated(np.negative, [random.random(size // 4, dtype=np.float32)])
            case "launch":
                return repeated(np.negative, [random.random(size, dtype=np.float32)])
            case "convolution":
                raise NotOffered("NumPy has no convolution.")
            case "upload":
                raise NotOffered(probes.UPLOAD_ON_CPU)

    def read_photos(self, photos: Photos) -> Images:
        """As the kit's own loader reads them."""
        return read_photos(photos, self._options.threads)


ADAPTER = PlainAdapter


def repeated(operation: Callable[..., object], operands: list[Images]) -> Callable[[int], None]:
    """`operation` again and again into one array of the first operand's shape."""
    outcome = np.zeros_like(operands[0])

    def run(times: int) -> None:
        for _ in range(times):
            operation(*operands, out=outcome)

    return run


def denormals(threads: int) -> Literal["kept", "flushed"]:
    """What NumPy does with denormal results in threads like those of a training step."""
    values = np.full(probes.PRODUCTS, probes.NORMAL, np.float32)
    with ThreadPoolExecutor(threads) as pool:
        parts = pool.map(lambda part: part * np.float32(probes.FACTOR), np.array_split(values, threads))
        return probes.fate_of_denormals(np.concatenate(list(parts)))


class PlainModel:
    """Meets `base.Model`. Each batch is cut into as many parts as there are threads, worked on side by side."""

    def __init__(self, options: Options, scenario: Scenario, weights: Weights) -> None:
        self._options = options
        self._scenario = scenario
        self._random = np.random.default_rng(options.seed)  # dropout
        self.load(weights)

    def weights(self) -> Weights:
        """Copies."""
        return {name: value.copy() for name, value in self._weights.items()}

    def load(self, weights: Weights) -> None:
        """Replace the weights; the optimizer starts anew."""
        self._weights = {name: value.copy() for name, value in weights.items()}
        self._state = reference.start(weights)

    def step(self, images: Images, labels: Labels) -> float:
        """One training step; returns the mean loss before the update."""
        return self._step(images, labels).loss

    def train_epoch(self, train: TrainSet, epoch: int, meter: Meter) -> Sums:
        """One pass in an order drawn by (seed, epoch)."""
        self._random = np.random.default_rng([self._options.seed, epoch, 1])
        seen, loss, correct = 0, 0.0, 0
        meter.begin()
        for images, labels in self._batches(train, epoch):
            values = self._step(images, labels)
            seen += len(labels)
            loss += values.loss * len(labels)
            correct += int((reference.predictions(self._scenario, values.logits) == labels).sum())
            if meter.step(len(labels)) and not meter.mark():
                break
        return Sums(seen, loss, correct)

    def resident_steps(self, images: Images, labels: Labels) -> Callable[[int], None]:
        """The steps of `train_epoch`; the arrays are where NumPy computes, and it returns from a call when it is
        finished."""

        def run(steps: int) -> None:
            for _ in range(steps):
                self._step(images, labels)

        return run

    def logits(self, images: Images) -> Logits:
        """(N, units) before the last activation, dropout off."""
        return reference.forward(self._scenario, self._weights, images).astype(np.float32)

    def predictor(self, batch: int) -> Callable[[Images], Logits]:
        """A function over a copy of the present weights."""
        scenario, weights = self._scenario, self.weights()

        def predict(images: Images) -> Logits:
            logits = reference.forward(scenario, weights, images)
            return reference.output(scenario, logits).astype(np.float32)

        return predict

    def placement(self) -> Placement:
        """NumPy knows no other place."""
        return Placement(
            device="cpu",
            device_name=platform.machine(),
            provider="NumPy",
            layout="NHWC",
            tf32=None,
            threads=self._options.threads,
            training="reference mathematics in float64, weights in float32",
            loader="NumPy slices; photos by the kit's own loader",
            denormals=denormals(self._options.threads),
            nodes={"cpu": len(self._weights)},
        )

    def device_peak_bytes(self) -> int | None:
        """There is no GPU."""
        return None

    def _batches(self, train: TrainSet, epoch: int) -> Iterator[tuple[Images, Labels]]:
        batch, seed = self._scenario.batch, self._options.seed
        if isinstance(train, Photos):
            yield from PhotoLoader(train, batch, seed, epoch, self._options.threads)
            return
        assert isinstance(train, Arrays)
        order = np.random.default_rng([seed, epoch]).permutation(len(train))
        for part in np.array_split(order, range(batch, len(order), batch)):
            yield train.images[part], train.labels[part]

    def _step(self, images: Images, labels: Labels) -> reference.Values:
        masks = {
            index: (self._random.random((len(labels), *before)) >= layer.rate) / (1 - layer.rate)
            for index, layer, before, _ in shapes(self._scenario)
            if isinstance(layer, Dropout)
        }
        values = self._evaluate(images, labels, masks)
        changes, self._state = reference.update(
            self._scenario.optimizer, PlainAdapter.optimizer_form, self._state, values.gradients
        )
        for name, change in changes.items():
            self._weights[name] = (self._weights[name] + change).astype(np.float32)
        return values

    def _evaluate(self, images: Images, labels: Labels, masks: dict[int, reference.Array]) -> reference.Values:
        parts = np.array_split(np.arange(len(labels)), min(self._options.threads, len(labels)))

        def evaluate(part: Labels) -> reference.Values:
            cut = {index: mask[part] for index, mask in masks.items()}
            return reference.evaluate(self._scenario, self._weights, images[part], labels[part], cut)

        with ThreadPoolExecutor(len(parts)) as pool:
            values = list(pool.map(evaluate, parts))
        shares = [len(part) / len(labels) for part in parts]
        return reference.Values(
            np.concatenate([value.logits for value in values]),
            math.fsum(share * value.loss for share, value in zip(shares, values, strict=True)),
            {
                name: sum(share * value.gradients[name] for share, value in zip(shares, values, strict=True))
                for name in self._weights
            },
        )
