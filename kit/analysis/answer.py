"""Define what a run answers: four questions, each in one sentence, and how reliable the answers are. Only types."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """How well a question is answered.

    MEASURED: the data support the answer. TIE: they show no difference. SINGLE: one launch per cell, so the answer is a
    first look and names no winner. NOT_MEASURED: the run did not measure it. FAILED: it tried to, and no launch is ok.
    """

    MEASURED = "measured"
    TIE = "tie"
    SINGLE = "single"
    NOT_MEASURED = "not_measured"
    FAILED = "failed"


@dataclass(frozen=True)
class Answer:
    """The answer to one question.

    question: for example `Which framework?`. headline: one sentence without a period, with its number and its
    uncertainty. details: more sentences, each with a period.
    """

    question: str
    state: State
    headline: str
    details: tuple[str, ...] = ()


@dataclass(frozen=True)
class Answers:
    """The answers of a run. speed: How fast is it? framework: Which framework? gpu: Is the GPU worth it? limit: What
    limits it?"""

    speed: Answer
    framework: Answer
    gpu: Answer
    limit: Answer

    @property
    def all(self) -> tuple[Answer, ...]:
        """Return the answers in the order in which they are shown."""
        return (self.speed, self.framework, self.gpu, self.limit)


class Level(StrEnum):
    """How much a run proves, in ascending order. The value is shown.

    WORKS: the cells run. FIRST_LOOK: rough speeds. COMPARISON: at least five launches of each cell, so frameworks and
    machines can be compared. PUBLICATION: a comparison with narrow intervals, real data and a steady machine.
    """

    WORKS = "Works"
    FIRST_LOOK = "First look"
    COMPARISON = "Comparison"
    PUBLICATION = "Publication"


@dataclass(frozen=True)
class Fact:
    """A fact about the reliability of a run. good: whether it supports the answers."""

    good: bool
    text: str


@dataclass(frozen=True)
class NextLevel:
    """What leads to the next level.

    command: for a shell. note: what it adds and its time, without a period. fetch: the command to run before it, or "".
    lacks: what the run lacks for this level, after `this run lacks`, or "". caveat: why the command may not be enough,
    as a sentence for the report, or "".
    """

    level: Level
    command: str
    note: str
    fetch: str = ""
    lacks: str = ""
    caveat: str = ""


@dataclass(frozen=True)
class Reliability:
    """How reliable a run is.

    level: None if no launch is ok. next: None at the highest level. meaning: what a reader may quote, one sentence.
    """

    level: Level | None
    facts: tuple[Fact, ...]
    next: NextLevel | None
    meaning: str = ""
