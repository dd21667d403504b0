"""Pair the launches of two cells by the rounds of a run. No input or output.

In each round of a run, the cells of a block run directly one after the other. The number of a launch is its round.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from kit.model.record import Record

Rates = Mapping[int, float]  # images/s by round, finite and above 0


class Measure(StrEnum):
    """The speed that is compared. INFERENCE: throughput, that is, at a large batch size."""

    TRAINING = "training"
    INFERENCE = "inference"


@dataclass(frozen=True)
class Pairs:
    """Two cells, round by round.

    ratios: images/s of one over those of the other, in the order of the rounds. dropped: number of rounds in which only
    one of both has a rate, because a launch failed, is missing or has no valid rate.
    """

    ratios: tuple[float, ...]
    dropped: int


def rates(records: Sequence[Record], measure: Measure) -> Rates:
    """Return the images/s of the ok launches of one cell, by round in ascending order."""
    found: dict[int, float] = {}
    for record in sorted(records, key=lambda record: record.launch):
        if record.ok and record.result:
            part = record.result.training if measure is Measure.TRAINING else record.result.inference
            if part and 0 < part.images_per_s < math.inf:
                found[record.launch] = part.images_per_s
    return found


def pair(numerator: Rates, denominator: Rates) -> Pairs:
    """Return the ratios of the rounds in which both cells have a rate."""
    common = sorted(numerator.keys() & denominator.keys())
    ratios = tuple(numerator[number] / denominator[number] for number in common)
    return Pairs(ratios, len(numerator.keys() | denominator.keys()) - len(common))
