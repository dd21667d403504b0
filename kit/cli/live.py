"""Show progress on a terminal: one line for each finished phase, and live rows for the running one."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self, TextIO

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from kit.model.formatting import format_about, format_duration, printable
from kit.model.progress import STOPPED, Outcome, Phase, Task, format_amount

WIDTH = 80  # lines about phases are not longer, even on a wider terminal
INDENT = 11  # the longest name of a phase, and a space
MIN_BAR = 10
REFRESH_PER_S = 2  # each refresh takes CPU time from what is measured
SHOWN_S = 1.0  # a shorter phase ends without its time


class _LivePhase:
    def __init__(self, name: str, total: float) -> None:
        self.name, self.total = name, total
        self.done = 0.0
        self.text = self.newest = ""
        self.ends_at: float | None = None
        self.began = time.monotonic()
        self.outcome = STOPPED

    def expect(self, amount: float) -> None:
        self.total += amount

    def advance(self, amount: float) -> None:
        self.done += amount

    def now(self, text: str, left_s: float | None = None) -> None:
        self.text = printable(text)
        self.ends_at = None if left_s is None else time.monotonic() + left_s

    def result(self, text: str) -> None:
        self.newest = printable(text)

    def end(self, outcome: Outcome) -> None:
        self.outcome = outcome

    @property
    def caption(self) -> str:
        """How far the phase is, and how long it will take."""
        now = time.monotonic()
        amount = format_amount(self.done, self.total, "")
        if self.ends_at is None:
            return ", ".join(filter(None, (amount, format_duration(now - self.began))))
        left = f"{format_about(max(self.ends_at - now, 0))} left"
        return ", ".join(filter(None, (amount, left)))


class _LiveTask:
    def __init__(self, label: str, total: float | None, unit: str) -> None:
        self.label, self.total, self.unit = printable(label), total, unit
        self.done = 0.0

    def advance(self, amount: float) -> None:
        self.done += amount

    @property
    def text(self) -> str:
        """The label and how far the step is."""
        return " ".join(filter(None, (self.label, format_amount(self.done, self.total, self.unit))))


class LiveProgress:
    """A receiver of progress (`kit.model.progress.Progress`). Use it as a context manager."""

    def __init__(self, stream: TextIO) -> None:
        self._console = Console(file=stream, highlight=False)
        self._live = Live(self, console=self._console, transient=True, refresh_per_second=REFRESH_PER_S)
        self._phase: _LivePhase | None = None
        self._had_phase = False
        self._tasks: list[_LiveTask] = []
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self._live.start(refresh=True)
        return self

    def __exit__(self, *error: object) -> None:
        self._live.stop()
        self._console.print()  # what follows on stdout has a distance

    @contextmanager
    def phase(self, name: str, total: float = 0) -> Iterator[Phase]:
        if not self._had_phase:
            self._console.print()
        self._had_phase = True
        self._phase = phase = _LivePhase(name, total)
        try:
            yield phase
        finally:
            self._phase = None
            seconds = time.monotonic() - phase.began
            took = format_duration(seconds) if seconds >= SHOWN_S else ""
            width = min(self._console.width, WIDTH)
            self._console.print(phase_line(name, phase.outcome, took, width))

    @contextmanager
    def task(self, label: str, total: float | None = None, unit: str = "") -> Iterator[Task]:
        task = _LiveTask(label, total, unit)
        with self._lock:
            self._tasks.append(task)
        try:
            yield task
        finally:
            with self._lock:
                self._tasks.remove(task)

    def line(self, text: str) -> None:
        self._console.print(printable(text), markup=False)

    def log(self, text: str) -> None:
        pass

    def refresh(self) -> None:
        """Draw the live rows now."""
        self._live.refresh()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw the bar of the running phase, what runs now, and the newest figure."""
        width = min(options.max_width, WIDTH)
        phase = self._phase
        with self._lock:
            texts = [task.text for task in self._tasks[-1:]]
        if phase is not None:
            yield _bar(phase, width)
            texts = (texts or [phase.text]) + [phase.newest]
        for text in filter(None, texts):
            row = Text(" " * INDENT + text, style="dim", no_wrap=True, overflow="ellipsis")
            row.truncate(width, overflow="ellipsis")
            yield row


def _bar(phase: _LivePhase, width: int) -> Table:
    row = Table.grid()
    caption = f"  {phase.caption}"
    room = width - INDENT - len(caption)
    cells = [Text(f"{phase.name:<{INDENT}}")]
    if phase.total and room >= MIN_BAR:
        cells.append(ProgressBar(phase.total, phase.done, width=room))  # type: ignore[arg-type]
    row.add_row(*cells, Text(caption, no_wrap=True, overflow="ellipsis"))
    return row


def phase_line(name: str, outcome: Outcome, took: str, width: int) -> Text:
    """Return the line about a phase that ended: its name, a mark, the outcome, and its time at the right end.

    A long outcome continues on indented lines. width: characters.
    """
    mark = ("\N{CHECK MARK}", "green") if outcome.good else ("!", "yellow")
    indent = " " * (INDENT + 2)
    rows = Text(printable(outcome.text)).wrap(Console(width=width), max(width - len(indent) - len(took) - 2, MIN_BAR))
    lines = [row.plain.rstrip() for row in rows] or [""]
    first = lines[0].ljust(width - len(indent) - len(took)) if took else lines[0]
    text = Text.assemble(f"{name:<{INDENT}}", mark, " ", first, (took, "dim"))
    for line in lines[1:]:
        text.append(f"\n{indent}{line}")
    return text
