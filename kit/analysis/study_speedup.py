"""Judge what a GPU gains over the CPU in all cells of a study. No input or output.

Each speedup is that of one framework: its cell on the GPU against its cell on the CPU, in the same rounds. Its interval
decides whether the GPU is faster, slower or equal; a speedup without an interval decides nothing.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from kit.analysis.diagnosis import Diagnosis
from kit.analysis.diagnosis_rules import Bottleneck
from kit.analysis.intervals import Interval, Verdict
from kit.analysis.study_values import StudyValue


@dataclass(frozen=True)
class Speedup:
    """The range of speedups.

    tied: all intervals contain 1 and are narrow. slower: number of those whose interval is below 1. single: whether one
    has no interval. limit: what limits more than half of the cells on the GPU, or "".
    """

    low: float
    high: float
    tied: bool
    slower: int
    single: bool
    limit: str


def judge_speedups(speedups: Sequence[StudyValue], diagnoses: Sequence[Diagnosis]) -> Speedup:
    """Return the judgment of at least one speedup. diagnoses: those of the cells on the GPU."""
    values = [speedup.value for speedup in speedups]
    intervals = [Interval(s.value, s.low, s.high) for s in speedups if s.low is not None and s.high is not None]
    ties = [each for each in intervals if each.tied]
    limits = Counter(d.label for d in diagnoses if d.bottleneck is not Bottleneck.UNCLEAR)
    return Speedup(
        low=min(values),
        high=max(values),
        tied=len(ties) == len(speedups),
        slower=sum(each.verdict is Verdict.SLOWER for each in intervals),
        single=len(intervals) < len(speedups),
        limit=next((label for label, count in limits.most_common(1) if 2 * count > len(diagnoses)), ""),
    )
