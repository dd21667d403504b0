"""Define what a worker leaves after whole epochs: its progress and its trained weights."""

import re
from dataclasses import dataclass
from typing import Literal

from scenarios.contract.ranges import Positive, PositiveTime, Share

# The name of a file, without a folder.
PLAIN_NAME = re.compile(r"[\w+-][\w.+-]{0,249}", re.ASCII)


@dataclass(frozen=True)
class EpochProgress:
    """What is known after an epoch. The worker writes it to PROGRESS_FILE by rename.

    epoch: number of the epoch, from 1. epochs: number of all epochs. test_accuracy: after this epoch. epoch_s: mean
    time of an epoch of this process, with its evaluation and the files that are written after it.
    """

    epoch: Positive
    epochs: Positive
    test_accuracy: Share
    epoch_s: PositiveTime


@dataclass(frozen=True, slots=True)
class KeptWeights:
    """A file of trained weights, see `scenarios.weights_file`.

    kind: `last` has the weights after the last epoch. `best` has those of the epoch with the highest test accuracy, the
    first of equals; there is none if that is the last epoch. file: its name in the folder `weights` of the run. epoch:
    from 1. test_accuracy: after this epoch. digest: `scenarios.weights.digest` of the weights.
    """

    kind: Literal["last", "best"]
    file: str
    epoch: Positive
    test_accuracy: Share
    digest: str

    def check(self) -> None:
        """Raise ValueError if the name could lead to another folder."""
        if not PLAIN_NAME.fullmatch(self.file):
            raise ValueError(f"{self.file!r:.100} is not the name of a file of weights")
