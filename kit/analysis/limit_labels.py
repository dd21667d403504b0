"""Name what limits a cell, in the words that are the same in answers, charts, tables and on the terminal."""

from collections import Counter
from collections.abc import Sequence

from kit.analysis.diagnosis_rules import (
    FIXED_SHARE,
    INPUT_SHARE,
    KERNELS_SHARE,
    MIN_ROOF_SHARE,
    ROOF_SHARE,
    THREADS_SHARE,
    THROTTLED_SHARE,
    WEIGHTS_SHARE,
    Bottleneck,
)
from kit.analysis.step_breakdown import Step
from kit.model.formatting import format_percent as percent

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
# Label and condition of the rules in `diagnosis_rules.RULES`, for readers. The first one that applies decides. A launch
# on the wrong device has no step.
LIMIT_RULES = (
    (
        LABELS[Bottleneck.THROTTLED],
        (
            f"a CPU quota withheld more than {percent(THROTTLED_SHARE)} of the CPU time, or the clocks of the GPU were "
            f"lowered for more than {percent(THROTTLED_SHARE)} of the time."
        ),
    ),
    (LABELS[Bottleneck.STARVED_OF_THREADS], "on the CPU, other programs use the CPUs that the cell needs."),
    (LABELS[Bottleneck.INPUT_BOUND], f"it is more than {percent(INPUT_SHARE)} of the step."),
    (
        LABELS[Bottleneck.MEMORY_BOUND],
        (
            f"more than {percent(FIXED_SHARE)} of the rest is the same at each batch size, and one pass over the "
            f"weights takes at least {percent(WEIGHTS_SHARE, 1)} of this fixed time. A step makes several passes."
        ),
    ),
    (LABELS[Bottleneck.LAUNCH_BOUND], f"more than {percent(FIXED_SHARE)} of the rest is the same at each batch size."),
    (LABELS[Bottleneck.STARVED_OF_THREADS], f"on the CPU, less than {percent(THREADS_SHARE)} of the threads are busy."),
    (LABELS[Bottleneck.UNCLEAR], f"the part that grows is less than {percent(KERNELS_SHARE)} of the step."),
    (LABELS[Bottleneck.UNCLEAR], f"the rest reaches less than {percent(MIN_ROOF_SHARE)} of every measured ceiling."),
    (LABELS[Bottleneck.MEMORY_BOUND], "the rest is nearer to the ceiling of memory than to that of arithmetic."),
    (NEAR_CEILING, f"the rest reaches {percent(ROOF_SHARE)} or more of the ceiling of arithmetic."),
    (LABELS[Bottleneck.COMPUTE_BOUND], "in all other cells."),
)


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
