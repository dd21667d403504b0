"""Show progress while kit works, and tables at the end.

Output is rich on a terminal and plain elsewhere. Progress goes to stderr, so stdout has only results.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, NamedTuple, TextIO

from kit.model.formatting import format_bytes, format_duration, printable
from kit.model.progress import Progress, Silent, Task

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID


QUIET_SECONDS = 10.0  # minimum time between two plain lines of a running step


def show_progress(*, quiet: bool = False) -> AbstractContextManager[Progress]:
    """Show progress on stderr: bars on a terminal, lines elsewhere, nothing if `quiet`."""
    if quiet:
        return nullcontext(Silent())
    return _rich_progress(sys.stderr) if sys.stderr.isatty() else nullcontext(PlainProgress(sys.stderr))


def amount(done: float, total: float | None, unit: str) -> str:
    """Return how far a step is, for example `1.5 MiB of 9.4 MiB` or `3 of 18 launches`; "" if nothing is counted."""
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
        parts = [part for part in (amount(self.done, self.total, self.unit), self.text) if part]
        if parts and now - self.spoke_at >= QUIET_SECONDS:
            self.spoke_at = now
            self.parent.line(f"{self.label}: {', '.join(parts)}")


class PlainProgress:
    """Write a line when a step begins, a line when it ends, and at most one line per ten seconds in between."""

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
            _write_line(self.stream, printable(text))


def _write_line(stream: TextIO, text: str) -> None:
    try:
        stream.write(text + "\n")
        stream.flush()
    except BrokenPipeError:
        # The reader has closed the pipe, for example `head -1`. This must not stop a run of hours. Discard all further
        # output, including what the stream still buffers (docs.python.org, signal: Note on SIGPIPE).
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
    """Show one live row per running step, and leave a line when it ends."""

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
        self.bars.console.print(printable(text), markup=False, highlight=False)


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
    """A column of a table. number: align to the right."""

    title: str
    number: bool = False


def print_text(text: str) -> None:
    """Print lines on stdout. A closed pipe is ignored, so the command keeps its exit code."""
    _write_line(sys.stdout, printable(text))


def wrap(text: str, stream: TextIO) -> str:
    """Return the text with its lines broken between words if the stream is a terminal."""
    if not stream.isatty():
        return text
    width = shutil.get_terminal_size().columns
    lines = (textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False) for line in text.split("\n"))
    return "\n".join(lines)


def print_notes(lines: Iterable[str]) -> None:
    """Print lines on stdout. On a terminal, wrap them between words."""
    print_text(wrap("\n".join(lines), sys.stdout))


def print_table(columns: Sequence[Column], rows: Sequence[Sequence[str]], notes: Sequence[str] = ()) -> None:
    """Print a table on stdout, with notes below it.

    On a terminal, omit empty columns and fit the table to the width of the terminal. Elsewhere, print the full width.
    """
    # A line break in a cell would look like a row.
    rows = [[" ".join(printable(cell).splitlines()) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _print_rich(columns, rows)
    else:
        _write_line(sys.stdout, "\n".join(plain_table(columns, rows)))
    if notes:
        print_notes(["", *notes])


def print_json(value: object) -> None:
    """Print JSON on stdout."""
    print_text(json.dumps(value, indent=1, allow_nan=False))


def show(
    as_json: bool, value: object, columns: Sequence[Column], rows: Sequence[Sequence[str]], notes: Sequence[str] = ()
) -> None:
    """Print the value as JSON, or a table with notes below it."""
    if as_json:
        print_json(value)
    else:
        print_table(columns, rows, notes)


def plain_table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table: a header, then one line per row, with two spaces between columns."""
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
    shown = [index for index in range(len(columns)) if any(row[index] for row in rows)]
    for column in (columns[index] for index in shown):
        table.add_column(column.title, justify="right" if column.number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(row[index]) for index in shown))
    Console(highlight=False).print(table)
