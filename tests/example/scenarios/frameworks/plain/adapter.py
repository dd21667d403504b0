"""An example of a new adapter: NumPy, with the mathematics of `scenarios.proof.reference`.

A framework consists of this module, which defines `ADAPTER`, and the folder `docker/plain`, which describes its image.
"""

from __future__ import annotations

import importlib.metadata
import math
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

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
    State,
    Sums,
    TrainSet,
    require_offered,
)
from scenarios.contract.evidence import BuildInfo, Placement
from scenarios.data.photos import PhotoLoader, read_photos
from scenarios.frameworks import probes
from scenarios.proof import reference
from scenarios.spec import Dropout, Scenario, shapes
from scenarios.weights import Weights


class PlainAdapter:
    """Implementation of `Adapter`."""

    name: ClassVar[str] = "plain"
    optimizer_form: ClassVar[Literal["keras", "torch"]] = "torch"
    likely: ClassVar[Mapping[str, Sequence[str]]] = {}

    @staticmethod
    def axes(options: Options, scenario: Scenario) -> Axes:
        """Return the settings that the tuner may try. Fewer threads divide a batch into fewer parts."""
        return {"training": {"threads": options.thread_counts}}

    def __init__(self, options: Options) -> None:
        if options.device != "cpu":
            raise DeviceUnavailable("NumPy computes only on the CPU.")
        if options.precision != "fp32":
            raise NotOffered("The plain adapter offers fp32.")
        self._options = replace(options, threads=options.intra_op_threads)

    def versions(self) -> dict[str, str]:
        """Return the versions of Python, NumPy and the reader of photos."""
        packages = {name: importlib.metadata.version(name) for name in ("numpy", "opencv-python-headless")}
        return {"python": platform.python_version(), "plain": packages["numpy"], **packages}

    def build_info(self) -> BuildInfo:
        """Return the library that computes NumPy's matrix products."""
        blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
        return BuildInfo(["cpu"], {"blas": f"{blas['name']} {blas['version']}"})

    def build(self, scenario: Scenario, weights: Weights) -> PlainModel:
        """Return a model with these weights."""
        require_offered(self.axes, self._options, scenario)
        return PlainModel(self._options, scenario, weights)

    def kernel(self, name: KernelName, size: int) -> Callable[[int], None]:
        """Return the matrix product, memory or launch kernel in float32. NumPy has no convolution and no upload."""
        random = np.random.default_rng(0)
        match name:
            case "matmul":
                operands = [random.random((size, size), dtype=np.float32) for _ in range(2)]
                return repeat(np.matmul, operands)
            case "memory":
                return repeat(np.negative, [random.random(size // 4, dtype=np.float32)])
            case "launch":
                return repeat(np.negative, [random.random(size, dtype=np.float32)])
            case "convolution nchw" | "convolution nhwc":
                raise NotOffered("NumPy has no convolution.")
            case "upload":
                raise NotOffered(probes.UPLOAD_ON_CPU)

    def read_photos(self, photos: Photos) -> Images:
        """Read with the kit's own loader."""
        return read_photos(photos, self._options.threads)


ADAPTER = PlainAdapter


def repeat(operation: Callable[..., object], operands: list[Images]) -> Callable[[int], None]:
    """Return a function that repeats `operation`. All results go to one array of the first operand's shape."""
    result = np.zeros_like(operands[0])

    def run(times: int) -> None:
        for _ in range(times):
            operation(*operands, out=result)

    return run


def denormals(threads: int) -> Literal["kept", "flushed"]:
    """Return what NumPy does with denormal results in threads like those of a training step."""
    values = np.full(probes.PRODUCTS, probes.NORMAL, np.float32)
    with ThreadPoolExecutor(threads) as pool:
        parts = pool.map(lambda part: part * np.float32(probes.FACTOR), np.array_split(values, threads))
        return probes.fate_of_denormals(np.concatenate(list(parts)))


class PlainModel:
    """Implementation of `Model`. Each thread computes one part of a batch."""

    def __init__(self, options: Options, scenario: Scenario, weights: Weights) -> None:
        self._options = options
        self._scenario = scenario
        self._random = np.random.default_rng(options.seed)  # dropout
        self._workers: int | None = None  # threads that load photos
        self.load(weights)

    def weights(self) -> Weights:
        """Return copies."""
        return {name: value.copy() for name, value in self._weights.items()}

    def load(self, weights: Weights) -> None:
        """Replace the weights and reset the optimizer."""
        self._weights = {name: value.copy() for name, value in weights.items()}
        self._state = reference.start(weights)

    def state(self) -> State:
        """Return copies of the weights and of the optimizer's state. Dropout depends on (seed, epoch)."""
        moments = {f"first/{name}": value.copy() for name, value in self._state.first.items()}
        moments |= {f"second/{name}": value.copy() for name, value in self._state.second.items()}
        return {**self.weights(), **moments, "step": np.array(self._state.step)}

    def restore(self, state: Mapping[str, npt.NDArray[Any]]) -> None:
        """Continue from a state. Raise ValueError if it lacks something."""
        first, second = ({name: f"{moment}/{name}" for name in self._weights} for moment in ("first", "second"))
        if missing := {*self._weights, *first.values(), *second.values(), "step"} - state.keys():
            raise ValueError(f"the state lacks {', '.join(sorted(missing))}")
        self.load({name: state[name] for name in self._weights})
        self._state = reference.State(
            int(state["step"]),
            {name: state[key].copy() for name, key in first.items()},
            {name: state[key].copy() for name, key in second.items()},
        )

    def step(self, images: Images, labels: Labels) -> float:
        """Train one step. Return the mean loss before the update."""
        return self._step(images, labels).loss

    def train_epoch(self, train: TrainSet, epoch: int, meter: Meter) -> Sums:
        """Train one epoch in an order drawn from (seed, epoch)."""
        meter.begin()
        self._random = np.random.default_rng([self._options.seed, epoch, 1])
        count, loss, correct = 0, 0.0, 0
        for images, labels in self._batches(train, epoch):
            values = self._step(images, labels)
            count += len(labels)
            loss += values.loss * len(labels)
            correct += int((reference.predictions(self._scenario, values.logits) == labels).sum())
            if meter.step(len(labels)) and not meter.mark():
                break
        return Sums(count, loss, correct)

    def resident_steps(self, images: Images, labels: Labels) -> Callable[[int], None]:
        """Return a function that runs the steps of `train_epoch`. NumPy computes on host arrays, and synchronously."""

        def run(steps: int) -> None:
            for _ in range(steps):
                self._step(images, labels)

        return run

    def logits(self, images: Images) -> Logits:
        """Return (N, units) before the last activation, without dropout."""
        return reference.forward(self._scenario, self._weights, images).astype(np.float32)

    def predictor(self, batch: int) -> Callable[[Images], Logits]:
        """Return a function that uses a copy of the current weights."""
        scenario, weights = self._scenario, self.weights()

        def predict(images: Images) -> Logits:
            logits = reference.forward(scenario, weights, images)
            return reference.output(scenario, logits).astype(np.float32)

        return predict

    def placement(self) -> Placement:
        """Return constants: NumPy always computes on the CPU."""
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
            workers=self._workers,
            serving="reference mathematics in float64",
        )

    def device_peak_bytes(self) -> int | None:
        """Return None, because NumPy uses no GPU."""
        return None

    def _batches(self, train: TrainSet, epoch: int) -> Iterator[tuple[Images, Labels]]:
        batch, seed = self._scenario.batch, self._options.seed
        if isinstance(train, Photos):
            loader = PhotoLoader(train, batch, seed, epoch, self._options.photo_threads)
            self._workers = loader.workers
            yield from loader
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
