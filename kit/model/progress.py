"""Define how long steps report progress, and turn it into plain lines. `kit.cli.console` shows it."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from kit.model.formatting import format_bytes, format_duration, printable

QUIET_SECONDS = 10.0  # minimum time between two plain lines of a running step


class Task(Protocol):
    """One running step."""

    def advance(self, amount: float) -> None:
        """Add to the finished amount, in the unit of the task."""

    def describe(self, text: str) -> None:
        """Replace the short text after the label."""


class Progress(Protocol):
    """A receiver of progress. Its methods are safe to call from several threads."""

    def task(self, label: str, total: float | None = None, unit: str = "") -> AbstractContextManager[Task]:
        """Show a step with a label. total: None if unknown. unit: "B" is shown as KiB or MiB."""

    def line(self, text: str) -> None:
        """Show a line that stays."""


class _SilentTask:
    def advance(self, amount: float) -> None:
        pass

    def describe(self, text: str) -> None:
        pass


class Silent:
    """Show nothing, for tests and for `--json`."""

    @contextmanager
    def task(self, label: str, total: float | None = None, unit: str = "") -> Iterator[Task]:
        yield _SilentTask()

    def line(self, text: str) -> None:
        pass


class _PlainTask:
    def __init__(self, parent: "PlainProgress", label: str, total: float | None, unit: str) -> None:
        self.parent, self.label, self.total, self.unit = parent, label, total, unit
        self.done = 0.0
        self.text = ""
        self.spoke_at = parent.clock()

    def advance(self, amount: float) -> None:
        self.done += amount
        self._speak()

    def describe(self, text: str) -> None:
        self.text = text
        self._speak()

    def _speak(self) -> None:
        now = self.parent.clock()
        parts = [part for part in (format_amount(self.done, self.total, self.unit), self.text) if part]
        if parts and now - self.spoke_at >= QUIET_SECONDS:
            self.spoke_at = now
            self.parent.line(f"{self.label}: {', '.join(parts)}")


class PlainProgress:
    """Write a line when a step begins, a line when it ends, and at most one line per ten seconds in between.

    write_line: gets each line, without its line break.
    """

    def __init__(self, write_line: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._write_line = write_line
        self._lock = threading.Lock()

    @contextmanager
    def task(self, label: str, total: float | None = None, unit: str = "") -> Iterator[Task]:
        began = self.clock()
        self.line(f"{label} ...")
        outcome = "stopped"
        try:
            yield _PlainTask(self, label, total, unit)
            outcome = "done"
        finally:
            self.line(format_ending(label, outcome, self.clock() - began))

    def line(self, text: str) -> None:
        with self._lock:
            self._write_line(printable(text))


class _TeeTask:
    def __init__(self, tasks: tuple[Task, Task]) -> None:
        self.tasks = tasks

    def advance(self, amount: float) -> None:
        for task in self.tasks:
            task.advance(amount)

    def describe(self, text: str) -> None:
        for task in self.tasks:
            task.describe(text)


class Tee:
    """Pass all progress to two receivers."""

    def __init__(self, first: Progress, second: Progress) -> None:
        self.first, self.second = first, second

    @contextmanager
    def task(self, label: str, total: float | None = None, unit: str = "") -> Iterator[Task]:
        with self.first.task(label, total, unit) as first, self.second.task(label, total, unit) as second:
            yield _TeeTask((first, second))

    def line(self, text: str) -> None:
        self.first.line(text)
        self.second.line(text)


def format_amount(done: float, total: float | None, unit: str) -> str:
    """Return how far a step is, for example `1.5 MiB of 9.4 MiB` or `3 of 18 launches`; "" if nothing is counted."""
    if unit == "B":
        return format_bytes(done) if total is None else f"{format_bytes(done)} of {format_bytes(total)}"
    if total is None:
        return ""
    return f"{done:.0f} of {total:.0f} {unit}".rstrip()


def format_ending(label: str, text: str, seconds: float) -> str:
    """Return the line about a step that ended, for example `Downloading mnist: done, 30 s`."""
    return f"{label}: {text}, {format_duration(seconds)}"
