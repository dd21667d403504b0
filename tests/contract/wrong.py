"""Break the real adapters in ways that a person might: each function returns an adapter, or patches its framework."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from scenarios.adapter import Adapter, Arrays, Images, Meter, Model, Photos, Sums, TrainSet
from scenarios.spec import Augment, Dropout, Scenario, Sgd
from scenarios.weights import Weights

DECAY = 5e-4


class Wrapped:
    """A model whose other methods are those of the real one."""

    def __init__(self, inner: Model) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@dataclass(frozen=True)
class Wrong:
    """An adapter that builds another scenario than the requested one, or a model in a wrapper."""

    adapter: Adapter
    scenario: Callable[[Scenario], Scenario] = lambda scenario: scenario
    model: Callable[[Model], Any] = lambda model: model

    def __getattr__(self, name: str) -> Any:
        return getattr(self.adapter, name)

    def build(self, scenario: Scenario, weights: Weights) -> Any:
        return self.model(self.adapter.build(self.scenario(scenario), weights))


# ---- other scenarios -------------------------------------------------------------------------------------------


def other_dropout(rate: Callable[[float], float]) -> Callable[[Scenario], Scenario]:
    def changed(scenario: Scenario) -> Scenario:
        layers = [Dropout(rate(layer.rate)) if isinstance(layer, Dropout) else layer for layer in scenario.layers]
        return replace(scenario, layers=tuple(layers))

    return changed


def other_optimizer(**values: float) -> Callable[[Scenario], Scenario]:
    """Return a change of these values of the optimizer, if it has them and is not the proof's SGD."""

    def changed(scenario: Scenario) -> Scenario:
        present = scenario.optimizer
        if isinstance(present, Sgd) or not values.keys() <= vars(present).keys():
            return scenario
        return replace(scenario, optimizer=replace(present, **values))

    return changed


def half_gradients(scenario: Scenario) -> Scenario:
    present = scenario.optimizer
    if not isinstance(present, Sgd):  # Adam and Adadelta do not depend on the size of gradients
        return scenario
    return replace(scenario, optimizer=Sgd(present.learning_rate / 2))


# ---- other loops -----------------------------------------------------------------------------------------------


def chosen(train: TrainSet, indices: npt.NDArray[np.int64]) -> TrainSet:
    if isinstance(train, Arrays):
        return Arrays(train.images[indices], train.labels[indices])
    paths = [train.paths[index] for index in indices.tolist()]
    return replace(train, paths=paths, labels=train.labels[indices])


class SkipsLastBatch(Wrapped):
    def train_epoch(self, train: TrainSet, epoch: int, meter: Meter) -> Sums:
        batch = self._inner._scenario.batch  # type: ignore[attr-defined]
        whole = len(train) // batch * batch or len(train)
        sums = self._inner.train_epoch(chosen(train, np.arange(whole)), epoch, meter)
        if whole < len(train):
            meter.step(len(train) - whole)
        share = len(train) / whole
        return Sums(len(train), sums.loss * share, round(sums.correct * share))


class SameOrder(Wrapped):
    def train_epoch(self, train: TrainSet, epoch: int, meter: Meter) -> Sums:
        return self._inner.train_epoch(train, 0, meter)


class DrawsWithReplacement(Wrapped):
    def train_epoch(self, train: TrainSet, epoch: int, meter: Meter) -> Sums:
        drawn = np.random.default_rng(epoch).integers(0, len(train), len(train))
        return self._inner.train_epoch(chosen(train, drawn), epoch, meter)


class OtherLabels(Wrapped):
    def train_epoch(self, train: TrainSet, epoch: int, meter: Meter) -> Sums:
        return self._inner.train_epoch(replace(train, labels=np.roll(train.labels, 1)), epoch, meter)  # type: ignore[type-var]


def other_augmentation(change: Callable[[Augment | None], Augment | None]) -> type[Wrapped]:
    class OtherAugmentation(Wrapped):
        def train_epoch(self, train: TrainSet, epoch: int, meter: Meter) -> Sums:
            if isinstance(train, Photos):
                train = replace(train, augment=train.augment and change(train.augment))
            return self._inner.train_epoch(train, epoch, meter)

    return OtherAugmentation


@contextmanager
def bilinear_photos(adapter: Adapter) -> Iterator[None]:
    """Let the framework's own loader scale photos bilinearly, as is usual with its library. torch: antialiased."""

    def scaled(pixels: Any, size: tuple[int, int]) -> Any:
        if adapter.name == "tensorflow":
            tf = importlib.import_module("tensorflow")
            return tf.cast(tf.round(tf.image.resize(pixels, size)), tf.uint8)
        if adapter.name == "torch":
            return np.asarray(Image.fromarray(pixels).resize(size[::-1], Image.Resampling.BILINEAR))
        cv2 = importlib.import_module("cv2")
        return cv2.resize(pixels, size[::-1], interpolation=cv2.INTER_LINEAR)

    places = {"tensorflow": "scenarios.frameworks.tensorflow.pipelines", "torch": "scenarios.frameworks.torch.photos"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(importlib.import_module(places.get(adapter.name, "scenarios.data.photos")), "scale", scaled)
        yield


def bilinear_training(adapter: Adapter) -> Wrong:
    class Bilinear(Wrapped):
        def train_epoch(self, train: TrainSet, epoch: int, meter: Meter) -> Sums:
            with bilinear_photos(adapter):
                return self._inner.train_epoch(train, epoch, meter)

    return Wrong(adapter, model=Bilinear)


class BilinearEvaluation(Wrong):
    def read_photos(self, photos: Photos) -> Images:
        with bilinear_photos(self.adapter):
            return self.adapter.read_photos(photos)


class CountsTwice(Wrapped):
    def train_epoch(self, train: TrainSet, epoch: int, meter: Meter) -> Sums:
        sums = self._inner.train_epoch(train, epoch, meter)
        return Sums(2 * sums.images, 2 * sums.loss, 2 * sums.correct)


class DropsUpdates(Wrapped):
    """Take back the update of the second step of an epoch."""

    def train_epoch(self, train: TrainSet, epoch: int, meter: Meter) -> Sums:
        taken: list[Weights] = []

        class Undo(Wrapped):
            def step(_, images: int) -> bool:  # noqa: N805 - `self` is the model
                taken.append(self._inner.weights())
                if len(taken) == 2:
                    restore(self._inner, taken[0])
                return meter.step(images)

            def due(_) -> int:  # noqa: N805
                return 1

        return self._inner.train_epoch(train, epoch, Undo(meter))  # type: ignore[arg-type]


def restore(model: Any, weights: Weights) -> None:
    """Write weights into a model of any framework, without a change of the optimizer's state."""
    if hasattr(model, "_trainer"):
        for name, layout in model._layouts.items():
            model._trainer._write(name, layout.to_graph(weights[name]))
    elif hasattr(model, "_net"):
        for layer in model._parameters:
            layer.write(weights)
    else:
        for parameter, variable in zip(model._parameters, model._model.trainable_variables, strict=True):
            variable.assign(weights[parameter.name])


class StalePredictor(Wrapped):
    def __init__(self, inner: Model) -> None:
        super().__init__(inner)
        self._built = inner.weights()

    def predictor(self, batch: int) -> Callable[[Images], Any]:
        present = self._inner.weights()
        self._inner.load(self._built)
        predict = self._inner.predictor(batch)
        self._inner.load(present)
        return predict


class LargeBatchesAreCut(Wrapped):
    """Predict batches of more than 64 images from the first 64."""

    def predictor(self, batch: int) -> Callable[[Images], Any]:
        if batch <= 64:
            return self._inner.predictor(batch)
        predict = self._inner.predictor(64)
        return lambda images: np.resize(predict(images[:64]), (len(images), self._inner._scenario.output.units))  # type: ignore[attr-defined]


# ---- other computations of the framework -----------------------------------------------------------------------


def module(adapter: Adapter, name: str) -> Any:
    return importlib.import_module(f"scenarios.frameworks.{adapter.name}.{name}")


def decay_gradients(adapter: Adapter, patch: pytest.MonkeyPatch) -> None:
    """Add the weights, times DECAY, to all gradients."""
    if adapter.name == "torch":
        _before_updates(adapter, patch, lambda parameter: parameter.grad.add_(parameter, alpha=DECAY))
    elif adapter.name == "tensorflow":

        def decayed(made: Any) -> None:
            apply = made.apply_gradients
            made.apply_gradients = lambda pairs: apply([(slope + DECAY * value, value) for slope, value in pairs])

        build = module(adapter, "model").build_optimizer

        def changed(*given: Any) -> Any:
            made = build(*given)
            decayed(made)
            return made

        for lane in ("model", "tuned"):
            patch.setattr(module(adapter, lane), "build_optimizer", changed)
    else:
        _replace_updates(
            adapter,
            patch,
            lambda apply, graph, parameter, gradient, slots: apply(
                graph, parameter, graph.node("Add", gradient, _scaled(graph, parameter, DECAY)), slots
            ),
        )


def use_adamw(adapter: Adapter, patch: pytest.MonkeyPatch) -> None:
    """Let the weights decay apart from the gradient, as AdamW does in this framework by default."""
    if adapter.name == "torch":
        _before_updates(adapter, patch, lambda parameter: parameter.mul_(1 - 1e-3 * 1e-2))
    elif adapter.name == "tensorflow":
        models = module(adapter, "model")
        made = models.build_optimizer
        optimizers = models.keras.optimizers
        classes = SimpleNamespace(Adam=optimizers.AdamW, SGD=optimizers.SGD, Adadelta=optimizers.Adadelta)
        for lane in (models, module(adapter, "tuned")):
            patch.setattr(lane, "build_optimizer", lambda optimizer, _=None: made(optimizer, classes))
    else:

        def decayed(apply: Any, graph: Any, parameter: Any, gradient: Any, slots: Any) -> Any:
            updated, *rest = apply(graph, parameter, gradient, slots)
            return [graph.node("Sub", updated, _scaled(graph, parameter, 1e-3 * 1e-2)), *rest]

        _replace_updates(adapter, patch, decayed)


def unscaled_dropout(adapter: Adapter, patch: pytest.MonkeyPatch) -> None:
    """Do not divide what dropout keeps by 1 - rate."""
    if adapter.name == "torch":
        torch = importlib.import_module("torch")
        byte_dropout = module(adapter, "layers").ByteDropout
        for layer, kept in ((torch.nn.Dropout, lambda self: 1 - self.p), (byte_dropout, lambda self: 1 / self._scale)):

            def unscaled(self: Any, x: Any, forward: Any = layer.forward, kept: Any = kept) -> Any:
                return forward(self, x) * (kept(self) if self.training else 1)

            patch.setattr(layer, "forward", unscaled)
    elif adapter.name == "tensorflow":
        layer = module(adapter, "model").keras.layers.Dropout
        call = layer.call
        patch.setattr(
            layer, "call", lambda self, x, training=False: call(self, x, training) * (1 - self.rate if training else 1)
        )
    else:
        layers = module(adapter, "layers")
        forward, backward = layers.Dropout.forward, layers.Dropout.backward

        def scaled(self: Any, graph: Any, x: Any) -> Any:
            return _scaled(graph, forward(self, graph, x), 1 - self._rate)

        def scaled_back(self: Any, graph: Any, dy: Any, **options: Any) -> Any:
            dx, gradients = backward(self, graph, dy, **options)
            return _scaled(graph, dx, 1 - self._rate), gradients

        patch.setattr(layers.Dropout, "forward", scaled)
        patch.setattr(layers.Dropout, "backward", scaled_back)


def _before_updates(adapter: Adapter, patch: pytest.MonkeyPatch, change: Callable[[Any], Any]) -> None:
    """Change each parameter, or its gradient, before each step of Adam in PyTorch, in both lanes."""
    torch = importlib.import_module("torch")
    for kind in (torch.optim.Adam, module(adapter, "optimizers").FusedAdam):
        step = kind.step

        def changed(self: Any, step: Any = step) -> None:
            with torch.no_grad():
                for parameter in self.param_groups[0]["params"]:
                    change(parameter)
            step(self)

        changed.hooked = True  # type: ignore[attr-defined] - otherwise PyTorch would replace it in the class for good
        patch.setattr(kind, "step", changed)


def _replace_updates(adapter: Adapter, patch: pytest.MonkeyPatch, update: Callable[..., Any]) -> None:
    """Replace the update of each optimizer of ONNX Runtime. Its first argument is the real update."""
    optimizers = module(adapter, "optimizers")
    for kind in (optimizers.Adam, optimizers.Adadelta):
        apply = kind.apply

        def replaced(self: Any, graph: Any, parameter: Any, gradient: Any, slots: Any, apply: Any = apply) -> Any:
            multiplied = optimizers._multiplied(graph, gradient)
            return update(apply.__get__(self), graph, parameter, multiplied, slots)

        patch.setattr(kind, "apply", replaced)


def _scaled(graph: Any, tensor: Any, factor: float) -> Any:
    return graph.node("Mul", tensor, graph.scalar(factor))
