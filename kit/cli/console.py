"""Show progress while kit works, and tables at the end.

Output is rich on a terminal and plain elsewhere. Progress goes to stderr, so stdout has only results.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import NamedTuple, TextIO

from kit.host.program import in_messages
from kit.model.formatting import printable
from kit.model.progress import PlainProgress, Progress, Silent

DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")  # A browser can start if one of these variables is set.


def show_progress(*, quiet: bool = False) -> AbstractContextManager[Progress]:
    """Show progress on stderr: live rows on a terminal, lines elsewhere, nothing if `quiet`."""
    if quiet:
        return nullcontext(Silent())
    if sys.stderr.isatty():
        from kit.cli.live import LiveProgress

        return LiveProgress(sys.stderr)
    return nullcontext(PlainProgress(partial(_write_line, sys.stderr)))


def _write_line(stream: TextIO, text: str) -> None:
    stream.write(text + "\n")
    stream.flush()


class Column(NamedTuple):
    """A column of a table. number: align to the right."""

    title: str
    number: bool = False


def print_text(text: str) -> None:
    """Print lines on stdout."""
    _write_line(sys.stdout, printable(text))


def terminal_width() -> int:
    """Return the number of columns of the terminal on stdout. A file or a pipe has no limit."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize


def wrap(text: str, stream: TextIO) -> str:
    """Return the text with its lines broken between words if the stream is a terminal."""
    if not stream.isatty():
        return text
    width = shutil.get_terminal_size().columns
    lines = (textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False) for line in text.split("\n"))
    return "\n".join(lines)


def print_notes(lines: Iterable[str]) -> None:
    """Print lines on stdout. On a terminal, wrap them between words. Name kit as a shell finds it."""
    print_text(wrap(in_messages("\n".join(lines)), sys.stdout))


def print_remark(text: str) -> None:
    """Print a remark on stderr, where it is no part of the results. On a terminal, wrap it between words."""
    _write_line(sys.stderr, wrap(in_messages(printable(text)), sys.stderr))


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


def open_page(path: Path) -> None:
    """Open a page in the browser of the user. If this is not possible, say on stderr where the page is.

    Without a display, a browser of the terminal could start, and would keep the command from ending. So a browser is
    only started on a display, or if the variable BROWSER names one.
    """
    import webbrowser

    if any(os.environ.get(name) for name in DISPLAYS) and webbrowser.open(path.resolve().as_uri()):
        return
    print_remark(f"No browser can be started here. The page is {path}")


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
        table.add_column(Text(column.title), justify="right" if column.number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(row[index]) for index in shown))
    Console(highlight=False).print(table)
