"""Judge what a GPU gains over the CPU in all cells of a study. No input or output.

Each speedup is that of one framework: its cell on the GPU against its cell on the CPU, in the same rounds. Its interval
decides whether the GPU is faster, slower or equal; a speedup without an interval decides nothing.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from kit.analysis.diagnosis import Diagnosis
from kit.analysis.diagnosis_rules import Bottleneck
from kit.analysis.intervals import Verdict
from kit.analysis.study_values import StudyValue


@dataclass(frozen=True)
class Speedup:
    """The range of speedups, and what their intervals say.

    count: number of speedups. tied: how many have a narrow interval that contains 1. undecided: how many have a wide
    one that contains 1. slower: how many have one below 1. single: whether one has no interval. limit: what limits more
    than half of the cells on the GPU, or "".
    """

    low: float
    high: float
    count: int
    tied: int
    undecided: int
    slower: int
    single: bool
    limit: str


def judge_speedups(speedups: Sequence[StudyValue], diagnoses: Sequence[Diagnosis]) -> Speedup:
    """Return the judgment of at least one speedup. diagnoses: those of the cells on the GPU."""
    values = [speedup.value for speedup in speedups]
    intervals = [speedup.interval for speedup in speedups if speedup.interval]
    limits = Counter(d.label for d in diagnoses if d.bottleneck is not Bottleneck.UNCLEAR)
    return Speedup(
        low=min(values),
        high=max(values),
        count=len(values),
        tied=sum(each.tied for each in intervals),
        undecided=sum(each.verdict is Verdict.TIE and not each.tied for each in intervals),
        slower=sum(each.verdict is Verdict.SLOWER for each in intervals),
        single=len(intervals) < len(speedups),
        limit=next((label for label, count in limits.most_common(1) if 2 * count > len(diagnoses)), ""),
    )
