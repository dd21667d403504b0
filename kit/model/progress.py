"""Define how commands report progress, and turn it into plain lines. `kit.cli.console` shows it on a terminal.

A command has phases, for example the images and the measurements of a run. A phase has steps that take long, for
example downloads. A terminal shows one line per phase, and live rows only while it runs. Elsewhere, there are lines.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple, Protocol

from kit.model.formatting import format_bytes, format_duration, printable

QUIET_SECONDS = 10.0  # minimum time between two plain lines of a running step


class Outcome(NamedTuple):
    """How a phase ended, in a few words. good: False if something is missing or failed."""

    text: str
    good: bool = True


STOPPED = Outcome("stopped", good=False)


class Phase(Protocol):
    """One running phase."""

    def expect(self, amount: float) -> None:
        """Add to the total amount."""

    def advance(self, amount: float) -> None:
        """Add to the finished amount."""

    def now(self, text: str, left_s: float | None = None) -> None:
        """Say what runs now. left_s: estimated seconds until the phase ends, None if unknown."""

    def result(self, text: str) -> None:
        """Show the newest figure on a terminal until the next one comes."""

    def end(self, outcome: Outcome) -> None:
        """Set the outcome, which stays."""


class Task(Protocol):
    """One running step of a phase."""

    def advance(self, amount: float) -> None:
        """Add to the finished amount, in the unit of the step."""


class Progress(Protocol):
    """A receiver of progress. Its methods are safe to call from several threads."""

    def phase(self, name: str, total: float = 0) -> AbstractContextManager[Phase]:
        """Show a phase, whose name has at most ten characters. Only one runs at a time."""

    def task(self, label: str, total: float | None = None, unit: str = "") -> AbstractContextManager[Task]:
        """Show a step with a label. total: None if unknown. unit: "B" is shown as KiB or MiB."""

    def line(self, text: str) -> None:
        """Show a line that stays."""

    def log(self, text: str) -> None:
        """Write a line that a terminal does not show."""


class _Silent:
    """A phase and a task that show nothing."""

    def expect(self, amount: float) -> None:
        pass

    def advance(self, amount: float) -> None:
        pass

    def now(self, text: str, left_s: float | None = None) -> None:
        pass

    def result(self, text: str) -> None:
        pass

    def end(self, outcome: Outcome) -> None:
        pass


class Silent:
    """Show nothing, for tests and for `--json`."""

    @contextmanager
    def phase(self, name: str, total: float = 0) -> Iterator[Phase]:
        yield _Silent()

    @contextmanager
    def task(self, label: str, total: float | None = None, unit: str = "") -> Iterator[Task]:
        yield _Silent()

    def line(self, text: str) -> None:
        pass

    def log(self, text: str) -> None:
        pass


class _PlainPhase(_Silent):
    def __init__(self) -> None:
        self.outcome = STOPPED

    def end(self, outcome: Outcome) -> None:
        self.outcome = outcome


class _PlainTask:
    def __init__(self, parent: "PlainProgress", label: str, total: float | None, unit: str) -> None:
        self.parent, self.label, self.total, self.unit = parent, label, total, unit
        self.done = 0.0
        self.spoke_at = parent.clock()

    def advance(self, amount: float) -> None:
        self.done += amount
        now = self.parent.clock()
        text = format_amount(self.done, self.total, self.unit)
        if text and now - self.spoke_at >= QUIET_SECONDS:
            self.spoke_at = now
            self.parent.line(f"{self.label}: {text}")


class PlainProgress:
    """Write a line when a phase or a step begins, a line when it ends, and at most one line per ten seconds of a step.

    write_line: gets each line, without its line break.
    """

    def __init__(self, write_line: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._write_line = write_line
        self._lock = threading.Lock()

    @contextmanager
    def phase(self, name: str, total: float = 0) -> Iterator[Phase]:
        began, phase = self.clock(), _PlainPhase()
        self.line(f"{name} ...")
        try:
            yield phase
        finally:
            self._end(name, phase.outcome, began)

    @contextmanager
    def task(self, label: str, total: float | None = None, unit: str = "") -> Iterator[Task]:
        began = self.clock()
        self.line(f"{label} ...")
        outcome = STOPPED
        try:
            yield _PlainTask(self, label, total, unit)
            outcome = Outcome("done")
        finally:
            self._end(label, outcome, began)

    def line(self, text: str) -> None:
        with self._lock:
            self._write_line(printable(text))

    def log(self, text: str) -> None:
        self.line(text)

    def _end(self, name: str, outcome: Outcome, began: float) -> None:
        mark = "" if outcome.good else "! "
        self.line(f"{name}: {mark}{outcome.text}, {format_duration(self.clock() - began)}")


class _TeePhase:
    def __init__(self, phases: tuple[Phase, Phase]) -> None:
        self.phases = phases

    def expect(self, amount: float) -> None:
        for phase in self.phases:
            phase.expect(amount)

    def advance(self, amount: float) -> None:
        for phase in self.phases:
            phase.advance(amount)

    def now(self, text: str, left_s: float | None = None) -> None:
        for phase in self.phases:
            phase.now(text, left_s)

    def result(self, text: str) -> None:
        for phase in self.phases:
            phase.result(text)

    def end(self, outcome: Outcome) -> None:
        for phase in self.phases:
            phase.end(outcome)


class _TeeTask:
    def __init__(self, tasks: tuple[Task, Task]) -> None:
        self.tasks = tasks

    def advance(self, amount: float) -> None:
        for task in self.tasks:
            task.advance(amount)


class Tee:
    """Pass all progress to two receivers."""

    def __init__(self, first: Progress, second: Progress) -> None:
        self.first, self.second = first, second

    @contextmanager
    def phase(self, name: str, total: float = 0) -> Iterator[Phase]:
        with self.first.phase(name, total) as first, self.second.phase(name, total) as second:
            yield _TeePhase((first, second))

    @contextmanager
    def task(self, label: str, total: float | None = None, unit: str = "") -> Iterator[Task]:
        with self.first.task(label, total, unit) as first, self.second.task(label, total, unit) as second:
            yield _TeeTask((first, second))

    def line(self, text: str) -> None:
        self.first.line(text)
        self.second.line(text)

    def log(self, text: str) -> None:
        self.first.log(text)
        self.second.log(text)


def format_amount(done: float, total: float | None, unit: str) -> str:
    """Return how far a step is, for example `1.5 MiB of 9.4 MiB` or `3 of 18`; "" if nothing is counted."""
    if unit == "B":
        return format_bytes(done) if total is None else f"{format_bytes(done)} of {format_bytes(total)}"
    if not total:
        return ""
    return f"{done:.0f} of {total:.0f} {unit}".rstrip()
