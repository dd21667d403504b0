"""Provide what all measured processes share: command line, data, and the protocol with the driver.

This module runs inside a framework's environment, so it imports only the standard library and numpy. A process builds
its model and prints the size of its work. Then it trains one epoch for each line on its standard input, prints the
epoch's seconds, and ends when the input ends. The line is `epoch`, or the name of a loop if the process holds several.
Each answer is one line of JSON on standard output.

Each epoch starts from the same weights and a new optimizer state, so that all epochs do the same work. Random labels
cannot be learned, and a network that trains on them for several epochs degenerates: with PyTorch and fashion-mlp, a
million of Adam's means are denormal numbers from the third epoch on, and some processors compute far more slowly with
those.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np
import numpy.typing as npt

COMMAND = "epoch"
CLASSES = 10
PHOTO_BATCH = 32


def seconds(epoch: Callable[[], object]) -> float:
    """Return the duration of a call."""
    began = time.monotonic()
    epoch()
    return time.monotonic() - began


@dataclass(frozen=True)
class Loop:
    """A training loop. parameters: number of trainable values. images: images per epoch. refresh: restores the state
    before the first epoch. clock: calls `epoch` and returns the seconds that count."""

    parameters: int
    images: int
    refresh: Callable[[], None]
    epoch: Callable[[], object]
    clock: Callable[[Callable[[], object]], float] = seconds


def parser(recipes: Collection[str]) -> argparse.ArgumentParser:
    """Return the command line of all training sides. recipes: the scenarios that this side knows."""
    made = argparse.ArgumentParser()
    made.add_argument("scenario", choices=sorted(recipes))
    made.add_argument("--images", type=int, required=True, help="images per epoch")
    return made


def photo_parser() -> argparse.ArgumentParser:
    """Return the command line of the sides that load photos."""
    made = argparse.ArgumentParser()
    made.add_argument("photos", type=Path, help="folder with one folder of JPEG files per class")
    made.add_argument("--images", type=int, required=True, help="images per epoch, a multiple of the batch size")
    made.add_argument("--size", type=int, required=True, help="edge length in pixels")
    return made


def random_set(shape: tuple[int, int, int], images: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Return random images (N, H, W, C) in [0, 1) and labels (N,), the same in every process."""
    generator = np.random.default_rng(0)
    return generator.random((images, *shape), dtype=np.float32), generator.integers(0, CLASSES, images)


def serve(loops: Mapping[str, Loop]) -> NoReturn:
    """Print the size of the work, then time one epoch for each request. Refreshing is not timed. Exit with a message if
    the loops have networks or epochs of different sizes."""
    works = {(loop.parameters, loop.images) for loop in loops.values()}
    if len(works) > 1:
        sys.exit(f"The loops do different work: {works} (parameters, images).")
    parameters, images = works.pop()
    _answer({"parameters": parameters, "images": images})
    while name := sys.stdin.readline().strip():
        loop = loops[name]
        loop.refresh()
        _answer({"seconds": loop.clock(loop.epoch)})
    sys.exit()


def _answer(fields: dict[str, float]) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()
