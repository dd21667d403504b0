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
    """The speed that is compared.

    INFERENCE: throughput, that is, at a large batch size. LATENCY: the inverse of the median latency at batch size 1,
    in calls per second, so that higher is better in all of them.
    """

    TRAINING = "training"
    INFERENCE = "inference"
    LATENCY = "latency"


@dataclass(frozen=True)
class Pairs:
    """Two cells, round by round.

    ratios: images/s of one over those of the other, in the order of the rounds. dropped: number of rounds in which only
    one of both has a rate, because a launch failed, is missing or has no valid rate.
    """

    ratios: tuple[float, ...]
    dropped: int


def rates(records: Sequence[Record], measure: Measure) -> Rates:
    """Return the images/s (latency: calls/s) of the ok launches of one cell, by round in ascending order."""
    found: dict[int, float] = {}
    for record in sorted(records, key=lambda record: record.launch):
        rate = _rate(record, measure) if record.ok else None
        if rate and 0 < rate < math.inf:
            found[record.launch] = rate
    return found


def _rate(record: Record, measure: Measure) -> float | None:
    training = record.result.training if record.result else None
    inference = record.result.inference if record.result else None
    if measure is Measure.TRAINING:
        return training.images_per_s if training else None
    if measure is Measure.INFERENCE:
        return inference.images_per_s if inference else None
    return 1000 / inference.p50_ms if inference and inference.p50_ms > 0 else None


def pair(numerator: Rates, denominator: Rates) -> Pairs:
    """Return the ratios of the rounds in which both cells have a rate."""
    common = sorted(numerator.keys() & denominator.keys())
    ratios = tuple(numerator[number] / denominator[number] for number in common)
    return Pairs(ratios, len(numerator.keys() | denominator.keys()) - len(common))
