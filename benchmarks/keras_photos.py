"""Train the networks of the study of cats and dogs with plain Keras: the baseline of the accuracies of `catdog-depth`.

    python -m benchmarks.keras_photos PHOTOS --variant conv --seed 0 --seed 1

PHOTOS has the folders `train` and `test`, each with a folder per class, as kit prepares the data set. Photos are loaded
and augmented as in the study, by Keras' ImageDataGenerator, which needs scipy in addition to TensorFlow. Each seed
prints one line of JSON with the test accuracies (0 to 1) of the best and the last epoch.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from os import devnull
from pathlib import Path
from typing import Any

from keras.src.legacy.preprocessing.image import ImageDataGenerator
from tensorflow import keras

L = keras.layers
AUGMENT = {"shear_range": 0.2, "zoom_range": 0.2, "horizontal_flip": True}
BATCH = 32
EPOCHS = 25


@dataclass(frozen=True)
class Network:
    """A variant. filters: of its convolutions; a pool follows each. size: height and width of the photos, px."""

    filters: tuple[int, ...]
    size: int = 64
    dropout: bool = False
    augment: bool = True

    def layers(self) -> Iterator[Any]:
        """Yield new layers."""
        yield keras.Input((self.size, self.size, 3))
        for filters in self.filters:
            yield L.Conv2D(filters, 3, activation="relu")
            yield L.MaxPooling2D()
        yield L.Flatten()
        if self.dropout:
            yield L.Dropout(0.5)
        yield L.Dense(128, activation="relu")
        yield L.Dense(1, activation="sigmoid")


NETWORKS = {
    "default": Network((32, 32)),
    "conv": Network((32, 32, 64)),
    "conv-dropout": Network((32, 32, 64), dropout=True),
    "no-augment": Network((32, 32, 64), dropout=True, augment=False),
    "128": Network((64, 64, 64, 64), size=128, dropout=True),
}


def main() -> None:
    """Train a network with each seed, and print the lines."""
    parser = argparse.ArgumentParser(prog="benchmarks.keras_photos", description=__doc__)
    parser.add_argument("photos", type=Path)
    parser.add_argument("--variant", choices=NETWORKS, default="default", help="default: %(default)s")
    parser.add_argument("--seed", action="append", type=int, help="repeatable; default: 0")
    parser.add_argument("--epochs", type=int, default=EPOCHS, help="default: %(default)s")
    args = parser.parse_args()
    for seed in args.seed or [0]:
        accuracies = train(NETWORKS[args.variant], args.photos, seed, args.epochs)
        line = {"variant": args.variant, "seed": seed, "best": max(accuracies), "last": accuracies[-1]}
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()


def train(network: Network, photos: Path, seed: int, epochs: int) -> list[float]:
    """Return the test accuracy after each epoch."""
    keras.utils.set_random_seed(seed)
    model = keras.Sequential(list(network.layers()))
    model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
    load = loader(network.size, seed)
    training = load(photos / "train", AUGMENT if network.augment else {})
    history = model.fit(training, validation_data=load(photos / "test", {}), epochs=epochs, verbose=0)
    return [float(value) for value in history.history["val_accuracy"]]


def loader(size: int, seed: int) -> Callable[[Path, dict[str, Any]], Any]:
    """Return a function that gives the batches of a folder. Its second argument: how photos are augmented."""

    def load(folder: Path, augment: dict[str, Any]) -> Any:
        generator = ImageDataGenerator(rescale=1 / 255, **augment)
        with open(devnull, "w") as quiet, redirect_stdout(quiet):  # it prints the number of photos
            return generator.flow_from_directory(
                folder, target_size=(size, size), batch_size=BATCH, class_mode="binary", seed=seed
            )

    return load


if __name__ == "__main__":
    main()
