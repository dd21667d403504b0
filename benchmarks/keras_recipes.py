"""Train the studies' recipes with plain Keras: `compile` and `fit`, with all defaults.

    python -m benchmarks.keras_recipes SCENARIO --images 19200

This is the baseline of the kit's TensorFlow cells and of its tuned lane. Each epoch is a separate `fit`. The driver
would have to pause a longer `fit` between its epochs. During such a pause, the thread of `tf.data`'s autotuner sleeps
for longer and longer intervals, and the next epoch waits for it.
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
    """A network and how it is trained. optimizer, loss: arguments of `compile`. shape: of an image, (H, W, C)."""

    layers: list[Any]
    optimizer: Any
    loss: Any
    shape: tuple[int, int, int]
    batch: int


def mnist_cnn() -> Recipe:
    """Return a small CNN for MNIST."""
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
    """Return a CNN with dropout for MNIST."""
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
    """Return a CNN for CIFAR-10, with a loss from logits."""
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
    """Return a wide dense network for CIFAR-10."""
    layers = [
        L.Flatten(),
        L.Dense(3000, activation="relu"),
        L.Dense(1000, activation="relu"),
        L.Dense(10, activation="softmax"),
    ]
    return Recipe(layers, "sgd", CROSS_ENTROPY, (32, 32, 3), 32)


def fashion_mlp() -> Recipe:
    """Return a deep dense network for Fashion-MNIST."""
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
    """Compile the recipe, then fit it for one epoch per request."""
    parser = side.parser(RECIPES)
    parser.add_argument(
        "--steps-only", action="store_true", help="do not time what `fit` does before the first and after the last step"
    )
    args = parser.parse_args()
    recipe = RECIPES[args.scenario]()
    model = keras.Sequential([keras.Input(recipe.shape), *recipe.layers])
    model.compile(recipe.optimizer, recipe.loss, metrics=["accuracy"])
    images, labels = side.random_set(recipe.shape, args.images)
    loop = side.Loop(
        model.count_params(),
        len(labels),
        refresher(model),
        lambda: model.fit(images, labels, batch_size=recipe.batch, epochs=1, verbose=0),
        StepClock(model).seconds if args.steps_only else side.seconds,
    )
    side.serve({side.COMMAND: loop})


def refresher(model: Any) -> Callable[[], None]:
    """Return a function that restores the present state of the model and its optimizer."""
    model.optimizer.build(model.trainable_variables)
    fresh = [(variable, variable.numpy()) for variable in (*model.variables, *model.optimizer.variables)]

    def refresh() -> None:
        for variable, value in fresh:
            variable.assign(value)

    return refresh


class StepClock:
    """Time the steps of an epoch. This wraps the model's train function, because a callback per step would make Keras
    convert each step's metrics for it."""

    def __init__(self, model: Any) -> None:
        model.make_train_function()
        self._train = model.train_function
        model.train_function = self._timed_step
        self._times: list[float] = []  # monotonic seconds before and after each step

    def seconds(self, epoch: Callable[[], object]) -> float:
        """Return the seconds from the start of an epoch's first step to the end of its last one."""
        self._times.clear()
        epoch()
        return self._times[-1] - self._times[0]

    def _timed_step(self, iterator: Any) -> Any:
        self._times.append(time.monotonic())
        logs = self._train(iterator)
        self._times.append(time.monotonic())
        return logs


if __name__ == "__main__":
    main()
