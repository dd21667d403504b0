"""Find the epoch at which overfitting begins. No input or output.

A network overfits from the epoch on after which its validation loss rises while it still trains. So the beginning is
the epoch of the lowest validation loss (L. Prechelt, Early Stopping - But When?, 1998, measures overfitting by the loss
relative to this minimum), but only if the loss rises in a trend after it. A loss that merely fluctuates around a flat
minimum also has a lowest value.

The trend is tested with Mann's test for the epochs after the lowest one: Kendall's rank correlation of loss and epoch,
one-sided, 5% (H. B. Mann, Nonparametric Tests Against Trend, Econometrica 13, 1945). The lowest epoch itself does not
count, because it was chosen for its low value. Four epochs that all rise are the fewest that can show a trend. The test
takes the epochs as independent. Neighbors share their weights, so it finds a trend too often rather than too rarely.
"""

from collections.abc import Sequence
from dataclasses import dataclass

LEVEL = 0.05
MIN_EPOCHS = 4  # after the lowest one; 1 / 4! is the smallest p value


@dataclass(frozen=True)
class Overfitting:
    """What the validation losses of a training show.

    lowest: number of the epoch with the lowest loss, from 1. begun: whether the loss rises in a trend after it, or None
    if too few epochs follow to say so.
    """

    lowest: int
    begun: bool | None


def find_overfitting(losses: Sequence[float]) -> Overfitting:
    """Return whether overfitting begins after the epoch with the lowest loss.

    losses: validation loss after each epoch, in nats, of at least one epoch.
    """
    lowest = min(range(len(losses)), key=losses.__getitem__)
    after = losses[lowest + 1 :]
    if len(after) < MIN_EPOCHS:
        return Overfitting(lowest + 1, begun=None)
    from scipy.stats import kendalltau  # takes long to import

    trend = kendalltau(range(len(after)), after, alternative="greater")
    return Overfitting(lowest + 1, begun=bool(trend.pvalue < LEVEL))
