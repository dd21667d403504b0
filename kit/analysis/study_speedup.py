"""Judge what a GPU gains over the CPU in all cells of a study. No input or output.

Each speedup is that of one framework: its cell on the GPU against its cell on the CPU, in the same rounds. Its interval
decides whether the GPU is faster, slower or equal; a speedup without an interval decides nothing.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from kit.analysis.diagnosis import Diagnosis
from kit.analysis.diagnosis_rules import Bottleneck
from kit.analysis.study_values import StudyValue


@dataclass(frozen=True)
class Speedup:
    """The range of speedups. tied: all intervals contain 1. slower: number of those below 1. limit: what limits most of
    the cells on the GPU whose limit is known, or ""."""

    low: float
    high: float
    tied: bool
    slower: int
    limit: str


def judge_speedups(speedups: Sequence[StudyValue], diagnoses: Sequence[Diagnosis]) -> Speedup:
    """Return the judgment of at least one speedup. diagnoses: those of the cells on the GPU."""
    values = [speedup.value for speedup in speedups]
    ties = [s.low is not None and s.high is not None and s.low <= 1 <= s.high for s in speedups]
    limits = Counter(d.label for d in diagnoses if d.bottleneck is not Bottleneck.UNCLEAR)
    return Speedup(
        low=min(values),
        high=max(values),
        tied=all(ties),
        slower=sum(value < 1 and not tie for value, tie in zip(values, ties, strict=True)),
        limit=limits.most_common(1)[0][0] if limits else "",
    )
