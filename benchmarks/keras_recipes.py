"""The studies' recipes as a person would type them into Keras: `compile`, `fit`, every default as it comes.

    python -m benchmarks.keras_recipes SCENARIO --images 19200

What the kit's TensorFlow cells, and its tuned lane, are measured against. Each epoch is a `fit` of its own: in a longer
one, which the driver would have to hold up between its epochs, the thread of `tf.data`'s autotuner goes on to sleep for
ever longer meanwhile, and the next epoch waits for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tensorflow import keras

from benchmarks import side

L = keras.layers
CROSS_ENTROPY = "sparse_categorical_crossentropy"


@dataclass(frozen=True)
class Recipe:
    """A net and how it is trained. optimizer, loss: as `compile` takes them."""

    layers: list[Any]
    optimizer: Any
    loss: Any
    shape: tuple[int, int, int]
    batch: int


def mnist_cnn() -> Recipe:
    """A small CNN on MNIST."""
    layers = [
        L.Conv2D(32, 3, activation="relu"),
        L.MaxPooling2D(),
        L.Conv2D(64, 3, activation="relu"),
        L.MaxPooling2D(),
        L.Flatten(),
        L.Dense(128, activation="relu"),
        L.Dense(10, activation="softmax"),
    ]
    return Recipe(layers, "adam", CROSS_ENTROPY, (28, 28, 1), 64)


def mnist_cnn_dropout() -> Recipe:
    """A CNN with dropout on MNIST."""
    layers = [
        L.Conv2D(32, 3, activation="relu"),
        L.Conv2D(64, 3, activation="relu"),
        L.MaxPooling2D(),
        L.Dropout(0.25),
        L.Flatten(),
        L.Dense(128, activation="relu"),
        L.Dropout(0.5),
        L.Dense(10, activation="softmax"),
    ]
    return Recipe(layers, keras.optimizers.Adadelta(1.0), CROSS_ENTROPY, (28, 28, 1), 128)


def cifar_cnn() -> Recipe:
    """A CNN on CIFAR-10, its loss from logits."""
    layers = [
        L.Conv2D(32, 3, activation="relu"),
        L.MaxPooling2D(),
        L.Conv2D(64, 3, activation="relu"),
        L.MaxPooling2D(),
        L.Conv2D(64, 3, activation="relu"),
        L.Flatten(),
        L.Dense(64, activation="relu"),
        L.Dense(10),
    ]
    return Recipe(layers, "adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), (32, 32, 3), 32)


def cifar_mlp() -> Recipe:
    """A wide dense network on CIFAR-10."""
    layers = [
        L.Flatten(),
        L.Dense(3000, activation="relu"),
        L.Dense(1000, activation="relu"),
        L.Dense(10, activation="softmax"),
    ]
    return Recipe(layers, "sgd", CROSS_ENTROPY, (32, 32, 3), 32)


def fashion_mlp() -> Recipe:
    """A deep dense network on Fashion-MNIST."""
    hidden = [L.Dense(500, activation="relu") for _ in range(5)]
    return Recipe([L.Flatten(), *hidden, L.Dense(10, activation="softmax")], "adam", CROSS_ENTROPY, (28, 28, 1), 32)


RECIPES: dict[str, Callable[[], Recipe]] = {
    "mnist-cnn": mnist_cnn,
    "mnist-cnn-dropout": mnist_cnn_dropout,
    "cifar-cnn": cifar_cnn,
    "cifar-mlp": cifar_mlp,
    "fashion-mlp": fashion_mlp,
}


def main() -> None:
    """Compile the recipe and fit it for an epoch as often as one is asked for."""
    parser = side.parser(RECIPES)
    parser.add_argument("--steps-alone", action="store_true", help="leave out what `fit` does before and after them")
    options = parser.parse_args()
    recipe = RECIPES[options.scenario]()
    model = keras.Sequential([keras.Input(recipe.shape), *recipe.layers])
    model.compile(recipe.optimizer, recipe.loss, metrics=["accuracy"])
    images, labels = side.random_set(recipe.shape, options.images)
    loop = side.Loop(
        model.count_params(),
        len(labels),
        refresher(model),
        lambda: model.fit(images, labels, batch_size=recipe.batch, epochs=1, verbose=0),
        StepClock(model).seconds if options.steps_alone else side.seconds,
    )
    side.serve({side.COMMAND: loop})


def refresher(model: Any) -> Callable[[], None]:
    """What sets weights and optimizer back to what they are now."""
    model.optimizer.build(model.trainable_variables)
    fresh = [(variable, variable.numpy()) for variable in (*model.variables, *model.optimizer.variables)]

    def refresh() -> None:
        for variable, value in fresh:
            variable.assign(value)

    return refresh


class StepClock:
    """Times an epoch from its first step's beginning to its last one's end. A callback for each step would make Keras
    hand it the step's numbers."""

    def __init__(self, model: Any) -> None:
        model.make_train_function()
        self._train = model.train_function
        model.train_function = self._noted
        self._times: list[float] = []  # before and after each step

    def seconds(self, epoch: Callable[[], object]) -> float:
        """What the steps of an epoch take."""
        self._times.clear()
        epoch()
        return self._times[-1] - self._times[0]

    def _noted(self, iterator: Any) -> Any:
        self._times.append(time.monotonic())
        logs = self._train(iterator)
        self._times.append(time.monotonic())
        return logs


if __name__ == "__main__":
    main()
