"""Name what limits a cell, in the words that are the same in answers, charts, tables and on the terminal."""

from collections import Counter
from collections.abc import Sequence

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


def count_limits(limits: Sequence[tuple[str, str]]) -> str:
    """Return in how many cells each label applies, as text, the most frequent first. `no clear cause` is last.

    A label that applies to one network of several names it. limits: label and network of each cell.
    """
    cells = Counter(label for label, _ in limits)
    unclear = LABELS[Bottleneck.UNCLEAR]
    (first, count), *others = sorted(cells.most_common(), key=lambda counted: counted[0] == unclear)
    several = f" in {count} of {len(limits)} cells" if len(limits) > 1 else ""
    parts = [f"{first}{several}{_only_network(first, limits)}"]
    parts += [f"{label} in {n}{_only_network(label, limits)}" for label, n in others]
    return ", ".join(parts)


def _only_network(label: str, limits: Sequence[tuple[str, str]]) -> str:
    """Return the network of a label in parentheses, or "" if the label, or the run, has several or only one."""
    own = {network for found, network in limits if found == label}
    single = len(own) == 1 and len({network for _, network in limits}) > 1
    return f" ({own.pop()})" if single else ""
