"""Show progress while kit works, and tables at the end.

Output is rich on a terminal and plain elsewhere. Progress goes to stderr, so stdout has only results.
"""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TextIO

from kit.model.formatting import printable
from kit.model.progress import PlainProgress, Progress, Silent, Task, format_amount, format_ending

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID


def show_progress(*, quiet: bool = False) -> AbstractContextManager[Progress]:
    """Show progress on stderr: bars on a terminal, lines elsewhere, nothing if `quiet`."""
    if quiet:
        return nullcontext(Silent())
    if sys.stderr.isatty():
        return _rich_progress(sys.stderr)
    return nullcontext(PlainProgress(partial(_write_line, sys.stderr)))


def _write_line(stream: TextIO, text: str) -> None:
    stream.write(text + "\n")
    stream.flush()


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
            self.line(format_ending(label, outcome, time.monotonic() - began))

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
            return Text(format_amount(task.completed, task.total, task.fields["unit"]))

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
    """Print lines on stdout."""
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
