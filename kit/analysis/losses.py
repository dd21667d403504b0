"""Test whether cells became slower: all together, and each relative to all. No input or output.

First the geometric mean over all cells is tested. Then each cell is tested against the mean of the others, or against
no change if the others are faster. Both tests are one-sided with the level LEVEL, so at most twice LEVEL of unchanged
runs raise an alarm.

Few launches say little about how much a cell varies. So its variance is combined with those of the other cells, with a
weight that depends on how equal they are (G. K. Smyth, Linear Models and Empirical Bayes Methods for Assessing
Differential Expression in Microarray Experiments, Stat. Appl. Genet. Mol. Biol. 3, 2004, section 6.2).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, variance

from scipy.optimize import brentq
from scipy.special import digamma, polygamma, stdtr, stdtrit

from kit.analysis.intervals import holm

LEVEL = 0.025
POWER = 0.8  # of the loss that a test would have revealed
MIN_VARIANCE = 1e-10  # of logarithms: 0.001%. Equal values would have none.
MANY = 1e6  # degrees of freedom that are as good as infinitely many


@dataclass(frozen=True)
class Change:
    """The change of one cell: a mean of logarithms of ratios, new over base.

    variance: of one value. weight: by which the variance is divided for the squared error of the mean. freedom:
    degrees of freedom of the variance.
    """

    mean: float
    variance: float
    weight: float
    freedom: float


@dataclass(frozen=True)
class Loss:
    """The outcome of a test.

    p_value: adjusted for the other tests of its kind. revealed: the minimum detectable effect, that is, the smallest
    loss of speed that the data would have revealed with the probability POWER, as a share.
    """

    p_value: float
    revealed: float

    @property
    def significant(self) -> bool:
        """Return whether the loss is more than noise."""
        return self.p_value < LEVEL


def change_of_pairs(ratios: Sequence[float]) -> Change:
    """Return the change of a cell from its ratio in each round, at least two."""
    logarithms = [math.log(ratio) for ratio in ratios]
    return Change(fmean(logarithms), variance(logarithms), len(ratios), len(ratios) - 1)


def change_of_launches(new: Sequence[float], base: Sequence[float]) -> Change:
    """Return the change of a cell from launches that are not paired, at least two on each side. It pools the variance
    of both sides, like Student's test for two samples."""
    sides = [[math.log(value) for value in values] for values in (new, base)]
    freedom = len(new) + len(base) - 2
    pooled = sum(variance(side) * (len(side) - 1) for side in sides) / freedom
    return Change(fmean(sides[0]) - fmean(sides[1]), pooled, 1 / (1 / len(new) + 1 / len(base)), freedom)


def loss_of_all(changes: Sequence[Change]) -> Loss:
    """Test the mean over all cells, at least one. Its degrees of freedom are Satterthwaite's."""
    errors = [max(change.variance, MIN_VARIANCE) / change.weight for change in changes]
    freedom = sum(errors) ** 2 / sum(e**2 / change.freedom for e, change in zip(errors, changes, strict=True))
    error = math.sqrt(sum(errors)) / len(changes)
    return _test(fmean(change.mean for change in changes), error, freedom, LEVEL)


def losses_of_each(changes: Sequence[Change]) -> list[Loss]:
    """Test each cell, relative to the mean of the others if these are slower. The p values are adjusted by `holm`."""
    found = []
    moderated = _moderated(changes)
    errors = [of_one / change.weight for change, (of_one, _) in zip(changes, moderated, strict=True)]
    for change, own, (_, freedom) in zip(changes, errors, moderated, strict=True):
        others = max(1, len(changes) - 1)
        common = min(0.0, (math.fsum(c.mean for c in changes) - change.mean) / others)
        error = math.sqrt(own + (math.fsum(errors) - own) / others**2)
        found.append(_test(change.mean - common, error, freedom, LEVEL / len(changes)))
    adjusted = holm([loss.p_value for loss in found])
    return [Loss(p_value, loss.revealed) for p_value, loss in zip(adjusted, found, strict=True)]


def _test(mean: float, error: float, freedom: float, level: float) -> Loss:
    revealed = -math.expm1(-(stdtrit(freedom, 1 - level) + stdtrit(freedom, POWER)) * error)
    return Loss(float(stdtr(freedom, mean / error)), float(revealed))


def _moderated(changes: Sequence[Change]) -> list[tuple[float, float]]:
    """Return the combined variance of each cell, and its degrees of freedom."""
    variances = [max(change.variance, MIN_VARIANCE) for change in changes]
    if len(changes) < 2:
        return [(variances[0], changes[0].freedom)]
    halves = [change.freedom / 2 for change in changes]
    logs = [math.log(v) - float(digamma(h)) + math.log(h) for v, h in zip(variances, halves, strict=True)]
    beyond_chance = variance(logs) - fmean(float(polygamma(1, h)) for h in halves)
    prior = _inverse_trigamma(beyond_chance) * 2
    common = math.exp(fmean(logs) + float(digamma(prior / 2)) - math.log(prior / 2))
    return [
        ((prior * common + change.freedom * own) / (prior + change.freedom), prior + change.freedom)
        for own, change in zip(variances, changes, strict=True)
    ]


def _inverse_trigamma(value: float) -> float:
    """Return x with trigamma(x) = value, at most MANY."""
    if value <= 1 / MANY:
        return MANY
    return float(brentq(lambda x: float(polygamma(1, x)) - value, 1e-9, 2 * MANY))
