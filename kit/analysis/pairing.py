"""Pair the launches of two cells by the rounds of a run. No input or output.

In each round of a run, the cells of a block run directly one after the other. The number of a launch is its round.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from kit.model.record import Record
from scenarios.contract.result import Result

Rates = Mapping[int, float]  # images/s or calls/s by round, finite and above 0


class Measure(StrEnum):
    """The speed that is compared. INFERENCE: throughput, that is, at a large batch size. LATENCY: calls/s at batch size
    1, from the median time of a call, so that more is better, as for images/s."""

    TRAINING = "training"
    INFERENCE = "inference"
    LATENCY = "latency"


COMPARED = (Measure.TRAINING, Measure.INFERENCE)  # what `kit compare` and `kit gate` judge


@dataclass(frozen=True)
class Pairs:
    """Two cells, round by round.

    ratios: images/s of one over those of the other, in the order of the rounds. dropped: number of rounds in which only
    one of both has a rate, because a launch failed or is missing.
    """

    ratios: tuple[float, ...]
    dropped: int


def rates(records: Sequence[Record], measure: Measure) -> Rates:
    """Return the images/s (latency: calls/s) of the ok launches of one cell, by round in ascending order."""
    found: dict[int, float] = {}
    for record in sorted(records, key=lambda record: record.launch):
        rate = _rate(record.result, measure) if record.ok and record.result else None
        if rate is not None:
            found[record.launch] = rate
    return found


def _rate(result: Result, measure: Measure) -> float | None:
    if measure is Measure.LATENCY:
        return calls_per_s(result.inference.p50_ms) if result.inference else None
    part = result.training if measure is Measure.TRAINING else result.inference
    return part.images_per_s if part else None


def calls_per_s(latency_ms: float) -> float:
    """Return calls per second."""
    return 1000 / latency_ms


def pair(numerator: Rates, denominator: Rates) -> Pairs:
    """Return the ratios of the rounds in which both cells have a rate."""
    common = sorted(numerator.keys() & denominator.keys())
    ratios = tuple(numerator[number] / denominator[number] for number in common)
    return Pairs(ratios, len(numerator.keys() | denominator.keys()) - len(common))
