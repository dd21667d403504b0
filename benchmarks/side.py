"""What the measured processes have in common: command line, data, and the commands that they obey.

Runs inside a framework's environment: standard library and numpy alone. A process builds its model, says that it is
ready, and then trains one epoch for each line on its standard input, answering with its seconds; it ends where that
input ends. The line is `epoch`, or the name of one of several loops that a process holds. Every answer is one line of
JSON on standard output.

Each epoch starts from fresh weights and a fresh optimizer, so that all are the same work. Nothing can be learnt from
random labels, and a net that is fed them for several epochs dies: with PyTorch and fashion-mlp, a million of Adam's
means are denormal numbers from the third epoch on, with which some processors compute far more slowly.
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
    """What a call takes."""
    began = time.monotonic()
    epoch()
    return time.monotonic() - began


@dataclass(frozen=True)
class Loop:
    """What can train an epoch. parameters: trainable numbers of the net; images: of an epoch. refresh: makes all as it
    was before the first epoch. clock: calls `epoch`, and says for how many seconds it trained."""

    parameters: int
    images: int
    refresh: Callable[[], None]
    epoch: Callable[[], object]
    clock: Callable[[Callable[[], object]], float] = seconds


def parser(recipes: Collection[str]) -> argparse.ArgumentParser:
    """The command line that all sides have. recipes: the scenarios that this side knows."""
    made = argparse.ArgumentParser()
    made.add_argument("scenario", choices=sorted(recipes))
    made.add_argument("--images", type=int, required=True, help="images of an epoch")
    return made


def photo_parser() -> argparse.ArgumentParser:
    """The command line of what loads photos."""
    made = argparse.ArgumentParser()
    made.add_argument("photos", type=Path, help="folder with a folder of JPEG files a class")
    made.add_argument("--images", type=int, required=True, help="images of an epoch, a multiple of the batch")
    made.add_argument("--size", type=int, required=True, help="pixels of an edge")
    return made


def random_set(shape: tuple[int, int, int], images: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Images (N, H, W, C) in [0, 1) and labels (N,), the same in every process: speed does not depend on what an image
    shows."""
    generator = np.random.default_rng(0)
    return generator.random((images, *shape), dtype=np.float32), generator.integers(0, CLASSES, images)


def serve(loops: Mapping[str, Loop]) -> NoReturn:
    """Say that all is ready, and time an epoch of the loop that is asked for, as often as one is; refreshing is not
    timed. Ends the process with a message where loops have nets or epochs of other sizes."""
    works = {(loop.parameters, loop.images) for loop in loops.values()}
    if len(works) > 1:
        sys.exit(f"The loops do other work: {works} (parameters, images).")
    parameters, images = works.pop()
    _answer({"parameters": parameters, "images": images})
    while asked := sys.stdin.readline().strip():
        loop = loops[asked]
        loop.refresh()
        _answer({"seconds": loop.clock(loop.epoch)})
    sys.exit()


def _answer(fields: dict[str, float]) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()
