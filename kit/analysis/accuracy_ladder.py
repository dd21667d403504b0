"""Compare the order of variants by their accuracies with the published order. No input or output.

A study that changes one thing after the other claims an order: each step makes the network better or worse. It is
compared pair by pair, as in Kendall's rank correlation (M. G. Kendall, A New Measure of Rank Correlation, Biometrika
30, 1938).

Accuracies depend on chance. So a pair counts only if its difference is larger than that of trainings of the same
variant: each framework with each seed is a training, and the ratio of the accuracies of two variants is tested over the
trainings that both have (`paired_p_value`), adjusted for the number of pairs (`holm`). Launches of a framework with the
same seed draw the same numbers, so their mean is one training. Frameworks start from the same weights, but draw order,
augmentation and dropout themselves. So with one seed, the part of chance that comes from the initial weights is not
seen. One training of each variant shows nothing of chance, so it decides no pair.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from kit.analysis.intervals import CONFIDENCE, holm, paired_p_value

Trainings = dict[tuple[str, int], list[float]]  # accuracies of the launches, by framework and seed


@dataclass(frozen=True)
class Ladder:
    """What accuracies say about the order of variants.

    seeds: number of different seeds. pairs: number of pairs of variants whose published accuracies differ. decided:
    those of them whose measured accuracies differ by more than chance. agreeing: those of the decided ones that have
    the published order.
    """

    seeds: int
    pairs: int
    decided: int
    agreeing: int


def make_ladder(measured: Sequence[Trainings], published: Sequence[float | None]) -> Ladder:
    """Return the ladder of at least one variant.

    measured: of each variant, which has at least one training. published: None where the study has no accuracy.
    """
    variants = [{key: statistics.fmean(own) for key, own in trainings.items()} for trainings in measured]
    rises, p_values = [], []
    for (one, first), (other, second) in combinations(zip(variants, published, strict=True), 2):
        if first is None or second is None or first == second:
            continue
        common = [key for key in one if key in other and one[key] > 0 and other[key] > 0]
        ratios = [other[key] / one[key] for key in common]
        p_values.append(paired_p_value(ratios))
        rises.append((statistics.fmean(ratios) > 1) == (second > first) if ratios else False)
    decided = [p < 1 - CONFIDENCE for p in holm(p_values)]
    return Ladder(
        seeds=len({seed for own in variants for _, seed in own}),
        pairs=len(rises),
        decided=sum(decided),
        agreeing=sum(sure and rise for sure, rise in zip(decided, rises, strict=True)),
    )
