"""Compare the accuracies of variants with published ones. No input or output.

A study that changes one thing after the other claims an order: each step makes the network better or worse. Accuracies
depend on data, seed and framework, so the order is what can be repeated. It is compared pair by pair, as in Kendall's
rank correlation (M. G. Kendall, A New Measure of Rank Correlation, Biometrika 30, 1938).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations


@dataclass(frozen=True)
class Ladder:
    """Accuracies of variants. lowest, highest: index of the variant. pairs: of variants with published accuracies that
    differ. agreeing: those of them whose measured accuracies have the same order."""

    lowest: int
    highest: int
    pairs: int
    agreeing: int


def make_ladder(measured: Sequence[float], published: Sequence[float | None]) -> Ladder:
    """Return the ladder of at least one variant. published: None where the study has no accuracy."""
    order = range(len(measured))
    pairs = agreeing = 0
    for one, other in combinations(order, 2):
        first, second = published[one], published[other]
        if first is not None and second is not None and first != second:
            pairs += 1
            agreeing += (measured[one] - measured[other]) * (first - second) > 0
    return Ladder(min(order, key=measured.__getitem__), max(order, key=measured.__getitem__), pairs, agreeing)
