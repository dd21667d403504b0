"""Compare the timed loop, `train_epoch`, with the reference."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from scenarios.adapter import Model, TrainSet
from scenarios.contract.cell import Precision
from scenarios.contract.result import Check
from scenarios.proof.case import Case
from scenarios.proof.distances import WRONG, compared, judged, relative, rounding, sample
from scenarios.proof.reference import Floats, Trajectory

LOSS_TOLERANCE = {"fp32": 1e-4, "tf32": 2e-3, "bf16": 3e-2}  # relative
# Relative L2 distance, and the distance of the norms. The errors are at most 0.05 in fp32 and 0.7 in bf16, because Adam
# makes a full step in the wrong direction if a small gradient is rounded to the other side of zero. This changes no
# norm: these differ by at most 0.1. A step that is missing changes the norm by a third.
CHANGES_TOLERANCE = {"fp32": 2e-1, "tf32": 2e-1, "bf16": 8e-1}
SIZE_TOLERANCE = {"fp32": 2e-2, "tf32": 5e-2, "bf16": 1.5e-1}
UNLIMITED = 1 << 30


@dataclass
class Steps:
    """A `Meter` that records the number of images of each step and never ends a window."""

    images: list[int] = field(default_factory=list)

    def begin(self) -> None:
        """Do nothing."""

    def due(self) -> int:
        """Return more steps than any epoch has."""
        return UNLIMITED

    def step(self, images: int) -> bool:
        """Record the step."""
        self.images.append(images)
        return False

    def mark(self) -> bool:
        """Continue."""
        return True


def checks(own: Model, case: Case, train: TrainSet, expected: Trajectory, precision: Precision) -> Iterator[Check]:
    """Yield the checks of an epoch over full batches and a short last one.

    All images are the same, so the unknown order does not matter: each batch has the gradient of this image. The loss
    shows whether each step began at the right weights. The changes of the weights include the last step.

    own: has the scenario's optimizer. train: holds the repeated image. expected: from one image, at the same steps.
    """
    own.load(case.gentle_weights)
    steps = Steps()
    sums = own.train_epoch(train, 0, steps)
    after = own.weights()
    counted = (steps.images, sums.images) == (case.batches, sum(case.batches))
    loss = relative(np.array(sums.loss), np.array(expected.losses @ case.batches))
    yield judged("loop: loss of each image once", loss if counted else WRONG, LOSS_TOLERANCE[precision])
    changes, units = dict[str, Floats](), dict[str, float]()
    for name, weights in case.gentle_weights.items():
        before, now = sample(weights), sample(after[name])
        changes[name], units[name] = now.astype(np.float64) - before, rounding(before)
    yield from compared(
        "loop: weights", changes, expected.changes, units, CHANGES_TOLERANCE[precision], SIZE_TOLERANCE[precision]
    )
