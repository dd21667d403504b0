"""Helpers of the contract tests: small scenarios, cheating adapters and a recording meter."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from scenarios.adapter import Adapter, Arrays, Images, Labels, Logits, Meter, Model, Options, Sums, TrainSet
from scenarios.proof import feed
from scenarios.spec import Activation, Dense, Flatten, Layer, Optimizer, Scenario, Sgd, parameters
from scenarios.weights import Weights


def named_adapter() -> type[Adapter]:
    """Return the adapter that KIT_TEST_FRAMEWORK names."""
    name = os.environ.get("KIT_TEST_FRAMEWORK")
    if not name:
        pytest.exit("KIT_TEST_FRAMEWORK is not set. Set it to the adapter to test.", returncode=2)
    adapters: type[Adapter] = importlib.import_module(f"scenarios.frameworks.{name}.adapter").ADAPTER
    return adapters


def torch_module(name: str) -> ModuleType:
    return importlib.import_module(f"scenarios.frameworks.torch.{name}")


def record_without_graph(work: Any) -> Any:
    """Replace a CUDA graph: every replay works on the same tensors and fills the same outputs."""
    for _ in range(3):
        outputs = tuple(tensor.clone() for tensor in work())

    def replay() -> None:
        for output, new in zip(outputs, work(), strict=True):
            output.copy_(new)

    return replay, outputs


def toy(
    layers: tuple[Layer, ...] = (Flatten(),),
    output: Activation = "softmax",
    *,
    image: tuple[int, int, int] = (10, 10, 2),
    units: int = 4,
    optimizer: Optimizer = Sgd(1.0),  # noqa: B008 - frozen
    batch: int = 8,
    dataset: str = "mnist",
) -> Scenario:
    """Return a scenario of these layers and a final Dense layer."""
    return Scenario(
        name="toy",
        title="Toy",
        dataset=dataset,
        image=image,
        layers=(*layers, Dense(units, activation=output)),
        loss="binary" if units == 1 else "categorical",
        optimizer=optimizer,
        batch=batch,
        epochs=1,
    )


def each_net_tuned(adapters: type[Adapter], excluded: set[str]) -> type[Adapter]:
    """Return the adapter in the tuned lane. Each setting of a net, except the excluded ones, has the first value that
    is not the stock lane's."""

    class EachNetTuned(adapters):  # type: ignore[valid-type, misc]
        def __init__(self, options: Options) -> None:
            super().__init__(options)
            self._stock = options

        def build(self, scenario: Scenario, weights: Weights) -> Model:
            axes = adapters.axes(self._stock, scenario)["training"]
            settings = {name: values[1] for name, values in axes.items() if len(values) > 1 and name not in excluded}
            return adapters(replace(self._stock, lane="tuned", settings=settings)).build(scenario, weights)

    return EachNetTuned


def zeros(scenario: Scenario) -> Weights:
    return {p.name: np.zeros(p.shape, np.float32) for p in parameters(scenario)}


def save_photo(path: Path, pixels: npt.NDArray[np.uint8]) -> Path:
    """Save pixels (H, W, 3) as a JPEG file of the best quality."""
    Image.fromarray(pixels).save(path, quality=100, subsampling=0)
    return path


def noise(scenario: Scenario, count: int, seed: int = 0) -> tuple[Images, Labels]:
    generator = np.random.default_rng([seed, count])
    images = generator.random((count, *scenario.image), dtype=np.float32)
    return images, generator.integers(0, max(2, scenario.output.units), count)


@dataclass
class RecordingMeter:
    """A meter that ends a window after every `window` steps and stops training after `windows` windows."""

    window: int = 1_000_000
    windows: int = 1_000_000
    events: list[str | int] = field(default_factory=list)

    def begin(self) -> None:
        self.events.append("begin")

    def due(self) -> int:
        return self.window - sum(isinstance(event, int) for event in self.events) % self.window

    def step(self, images: int) -> bool:
        self.events.append(images)
        return self.due() == self.window

    def mark(self) -> bool:
        self.events.append("mark")
        return self.events.count("mark") < self.windows


def identity(value: Any) -> Any:
    return value


@dataclass
class AlteredModel:
    """A model whose framework gets altered images, labels or weights, or that returns altered weights.

    into, out: what alters weights on their way into the framework and out of it.
    """

    inner: Model
    images: Callable[[Images], Images] = identity
    labels: Callable[[Labels], Labels] = identity
    into: Callable[[Weights], Weights] = identity
    out: Callable[[Weights], Weights] = identity

    def weights(self) -> Weights:
        return self.out(self.inner.weights())

    def load(self, weights: Weights) -> None:
        self.inner.load(self.into(weights))

    def step(self, images: Images, labels: Labels) -> float:
        return self.inner.step(self.images(images), self.labels(labels))

    def train_epoch(self, train: TrainSet, epoch: int, meter: Meter) -> Sums:
        assert isinstance(train, Arrays)
        return self.inner.train_epoch(Arrays(self.images(train.images), self.labels(train.labels)), epoch, meter)

    def logits(self, images: Images) -> Logits:
        return self.inner.logits(self.images(images))

    def predictor(self, batch: int) -> Callable[[Images], Logits]:
        predict = self.inner.predictor(batch)
        return lambda images: predict(self.images(images))


class Cheat:
    """An adapter that builds another scenario than the requested one, or an `AlteredModel`."""

    def __init__(
        self,
        adapter: Adapter,
        scenario: Callable[[Scenario], Scenario] = identity,
        *,
        other_form: bool = False,
        **alterations: Any,
    ) -> None:
        self.adapter, self.scenario, self.alterations = adapter, scenario, alterations
        form = adapter.optimizer_form
        self.optimizer_form = {"keras": "torch", "torch": "keras"}[form] if other_form else form

    def build(self, scenario: Scenario, weights: Weights) -> Model | AlteredModel:
        if scenario.output.units == feed.COUNT + 1:  # its own network, which shows the order of the images
            return self.adapter.build(scenario, weights)
        altered = self.alterations.get("into", identity)(weights)
        return AlteredModel(self.adapter.build(self.scenario(scenario), altered), **self.alterations)
