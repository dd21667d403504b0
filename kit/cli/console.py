"""What a person sees: progress while the kit works, tables at the end. Rich on a terminal, plain lines where there is
none. Progress goes to stderr, so that stdout holds nothing but results."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, NamedTuple, TextIO

from kit.model.progress import Progress, Silent, Task
from kit.model.units import format_bytes, format_duration

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID
from kit.model.text import harmless

QUIET_SECONDS = 10.0  # a running step says no more than one plain line in this time


def show_progress(*, quiet: bool = False) -> AbstractContextManager[Progress]:
    """Progress on stderr: bars on a terminal, lines elsewhere, nothing where `quiet`."""
    if quiet:
        return nullcontext(Silent())
    return _rich_progress(sys.stderr) if sys.stderr.isatty() else nullcontext(PlainProgress(sys.stderr))


def amount(done: float, total: float | None, unit: str) -> str:
    """How far a step is, as `1.5 of 9.4 MiB` or `3 of 18 launches`; empty where there is nothing to count."""
    if unit == "B":
        return format_bytes(done) if total is None else f"{format_bytes(done)} of {format_bytes(total)}"
    if total is None:
        return ""
    return f"{done:.0f} of {total:.0f} {unit}".rstrip()


def _ending(label: str, text: str, seconds: float) -> str:
    return f"{label}: {text}, {format_duration(seconds)}"


class _PlainTask:
    def __init__(self, parent: PlainProgress, label: str, total: float | None, unit: str) -> None:
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
        told = [part for part in (amount(self.done, self.total, self.unit), self.text) if part]
        if told and now - self.spoke_at >= QUIET_SECONDS:
            self.spoke_at = now
            self.parent.line(f"{self.label}: {', '.join(told)}")


class PlainProgress:
    """A line when a step begins and one when it ends; in between one each ten seconds at most."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self.stream = stream
        self.clock = clock
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
            self.line(_ending(label, outcome, self.clock() - began))

    def line(self, text: str) -> None:
        with self._lock:
            _write_line(self.stream, harmless(text))


def _write_line(stream: TextIO, text: str) -> None:
    try:
        stream.write(text + "\n")
        stream.flush()
    except BrokenPipeError:
        # Who read it has gone, as `head -1` does: that must not stop a run of hours. What is still to come, and what
        # the stream holds back until the process ends, goes nowhere (docs.python.org, signal: Note on SIGPIPE).
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


class _RichTask:
    def __init__(self, bars: Bars, identity: TaskID) -> None:
        self.bars, self.identity = bars, identity

    def advance(self, amount: float) -> None:
        self.bars.advance(self.identity, amount)

    def describe(self, text: str) -> None:
        self.bars.update(self.identity, text=text)


class RichProgress:
    """One live row a running step; a line stays when it ends."""

    def __init__(self, bars: Bars) -> None:
        self.bars = bars

    @contextmanager
    def task(self, label: str, total: float | None = None, unit: str = "") -> Iterator[Task]:
        began = time.monotonic()
        identity = self.bars.add_task(label, total=total, unit=unit, text="")
        outcome = "stopped"
        try:
            yield _RichTask(self.bars, identity)
            outcome = "done"
        finally:
            self.bars.remove_task(identity)
            self.line(_ending(label, outcome, time.monotonic() - began))

    def line(self, text: str) -> None:
        self.bars.console.print(harmless(text), markup=False, highlight=False)


@contextmanager
def _rich_progress(stream: TextIO) -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, ProgressColumn, SpinnerColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars
    from rich.progress import Task as Bar
    from rich.table import Column as TableColumn
    from rich.text import Text

    class Label(ProgressColumn):
        def render(self, task: Bar) -> Text:
            return Text.assemble(task.description, " ", (task.fields["text"], "dim"))

    class Amount(ProgressColumn):
        def render(self, task: Bar) -> Text:
            return Text(amount(task.completed, task.total, task.fields["unit"]))

    columns = (
        SpinnerColumn(),
        Label(table_column=TableColumn(ratio=1, no_wrap=True, overflow="ellipsis")),
        BarColumn(bar_width=12),
        Amount(table_column=TableColumn(no_wrap=True)),
        TimeElapsedColumn(),
    )
    with Bars(*columns, console=Console(file=stream), transient=True, expand=True) as bars:
        yield RichProgress(bars)


class Column(NamedTuple):
    """A table's column. number: set to the right."""

    title: str
    number: bool = False


def print_text(text: str) -> None:
    """Print lines on stdout, or nowhere once its reader has gone: the exit code must still be the command's own."""
    _write_line(sys.stdout, harmless(text))


def print_notes(lines: Iterable[str]) -> None:
    """Print sentences on stdout; on a terminal, they are broken between words."""
    wrapped = list(lines)
    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns
        wrapped = [textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False) for line in wrapped]
    print_text("\n".join(wrapped))


def print_table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    """Print a table on stdout: fitted to the width of a terminal, aligned at full width elsewhere."""
    rows = [[" ".join(harmless(cell).splitlines()) for cell in row] for row in rows]  # a line of its own would be a row
    if sys.stdout.isatty():
        _print_rich(columns, rows)
    else:
        _write_line(sys.stdout, "\n".join(plain_table(columns, rows)))


def plain_table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table: a header, then a line a row, columns two spaces apart."""
    titles = [column.title for column in columns]
    widths = [max(map(len, cells)) for cells in zip(titles, *rows, strict=True)]
    lines = []
    for row in (titles, *rows):
        cells = (
            cell.rjust(width) if column.number else cell.ljust(width)
            for cell, width, column in zip(row, widths, columns, strict=True)
        )
        lines.append("  ".join(cells).rstrip())
    return lines


def _print_rich(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for column in columns:
        table.add_column(column.title, justify="right" if column.number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    Console(highlight=False).print(table)
