"""Define what a worker reports while it trains whole epochs."""

from dataclasses import dataclass

from scenarios.contract.ranges import Positive, PositiveTime, Share


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
