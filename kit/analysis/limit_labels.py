"""Name what limits a cell, in the words that are the same in answers, charts, tables and on the terminal."""

from collections import Counter
from collections.abc import Iterable

from kit.analysis.diagnosis_rules import ROOF_SHARE, Bottleneck
from kit.analysis.step_breakdown import Step

LABELS = {
    Bottleneck.WRONG_DEVICE: "wrong device",
    Bottleneck.THROTTLED: "throttling",
    Bottleneck.INPUT_BOUND: "waiting for data",
    Bottleneck.LAUNCH_BOUND: "fixed cost per step",
    Bottleneck.STARVED_OF_THREADS: "too little CPU time",
    Bottleneck.COMPUTE_BOUND: "slow kernels",
    Bottleneck.MEMORY_BOUND: "memory bandwidth",
    Bottleneck.UNCLEAR: "no clear cause",
}
NEAR_CEILING = "arithmetic"


def limit_label(bottleneck: Bottleneck, step: Step) -> str:
    """Return the label of what limits a cell.

    Cells that compute are limited by slow kernels, or by arithmetic alone if they reach a large part of the ceiling.
    """
    if bottleneck is Bottleneck.COMPUTE_BOUND and (step.compute_share or 0.0) >= ROOF_SHARE:
        return NEAR_CEILING
    return LABELS[bottleneck]


def counted_labels(labels: Iterable[str]) -> list[tuple[str, int]]:
    """Return each label with how often it occurs, the most frequent first. `no clear cause` is last."""
    unclear = LABELS[Bottleneck.UNCLEAR]
    return sorted(Counter(labels).most_common(), key=lambda counted: counted[0] == unclear)
