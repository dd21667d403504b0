"""The studies' recipes as a person would type them into Keras: `compile`, `fit`, every default as it comes.

    python -m benchmarks.keras_recipes SCENARIO --images 19200

What the kit's TensorFlow cells are measured against. All epochs are those of one `fit`, so that what `fit` does once,
as copying the images into a tensor, is in none of them; a callback that acts between epochs alone takes the time.
"""

from __future__ import annotations

import sys
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


class Timekeeper(keras.callbacks.Callback):  # type: ignore[misc]
    """Starts each epoch of a `fit` when it is asked for, from fresh weights, and answers how long it took: as a whole,
    or to_last_step. After that, `fit` waits for a timer of `tf.data`'s autotuner, for up to as long as the epoch took.
    """

    def __init__(self, *, to_last_step: bool) -> None:
        super().__init__()
        self._to_last_step = to_last_step

    def watch(self, model: Any) -> None:
        """Note when each step ends. A callback for each would make Keras hand it the step's numbers."""
        model.make_train_function()
        train = model.train_function

        def watched(iterator: Any) -> Any:
            logs = train(iterator)
            self._stepped = time.monotonic()
            return logs

        model.train_function = watched

    def on_train_begin(self, logs: object = None) -> None:
        """Keep what is fresh, and wait for the first one."""
        self.model.optimizer.build(self.model.trainable_variables)
        variables = [*self.model.variables, *self.model.optimizer.variables]
        self._fresh = [(variable, variable.numpy()) for variable in variables]
        self._wait()

    def on_epoch_end(self, epoch: int, logs: object = None) -> None:
        """Answer, and wait for the next one."""
        side.tell((self._stepped if self._to_last_step else time.monotonic()) - self._began)
        for variable, value in self._fresh:
            variable.assign(value)
        self._wait()

    def _wait(self) -> None:
        side.wait()
        self._began = time.monotonic()


def main() -> None:
    """Compile the recipe and fit it for as many epochs as are asked for."""
    parser = side.parser(RECIPES)
    parser.add_argument("--to-last-step", action="store_true", help="leave out what `fit` waits for after it")
    options = parser.parse_args()
    recipe = RECIPES[options.scenario]()
    model = keras.Sequential([keras.Input(recipe.shape), *recipe.layers])
    model.compile(recipe.optimizer, recipe.loss, metrics=["accuracy"])
    images, labels = side.random_set(recipe.shape, options.images)
    side.ready(model.count_params(), len(labels))
    timekeeper = Timekeeper(to_last_step=options.to_last_step)
    timekeeper.watch(model)
    model.fit(images, labels, recipe.batch, epochs=sys.maxsize, verbose=0, callbacks=[timekeeper])


if __name__ == "__main__":
    main()
