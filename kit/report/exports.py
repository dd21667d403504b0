"""Write tidy tables in the formats of other programs: CSV, JSON, Markdown and Parquet.

Texts of a table may come from a stranger. In a CSV file no text is a formula, and in Markdown none is markup, a link or
a mention of somebody.
"""

import csv
import io
import json
import os
import re
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path

from kit.analysis.tidy import Column, Kind, TidyTable, Value
from kit.model.errors import UsageError
from kit.model.formatting import format_count, format_number, printable, shortened
from kit.model.run import Run
from kit.report import text
from kit.storage.files import disk_errors, write_atomic

FORMULA = ("=", "+", "-", "@", "\t", "\n", "＝", "＋", "－", "＠")  # how formulas begin in spreadsheets
MAX_COMMENT_BYTES = 65_000  # a comment on GitHub has at most 65,536 characters
MAX_CELL = 200  # characters of a text in Markdown
# Characters of ASCII that have a meaning in Markdown, or are part of a link or a mention.
SPECIAL = re.compile(r"[^A-Za-z0-9 /+,()%=\-\x80-\U0010ffff.]|\.(?=\S)")
DIGITS = 4  # significant, in Markdown
REMEDY = "Choose another file with --out."


def to_csv(table: TidyTable) -> str:
    """Return the table as CSV with a header. Each text is quoted, and a missing value is empty.

    A text that a spreadsheet would compute gets an apostrophe in front of it.
    """
    rows = [tuple(_guarded(value) for value in row) for row in table.rows]
    frame = TidyTable(table.columns, rows).frame()
    written: str = frame.to_csv(index=False, na_rep="", quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    return written


def to_json(table: TidyTable) -> str:
    """Return the table as a JSON list with one object per row. A missing value is null."""
    names = [column.name for column in table.columns]
    rows = [dict(zip(names, row, strict=True)) for row in table.rows]
    return json.dumps(rows, indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def to_parquet(table: TidyTable) -> bytes:
    """Return the table as a Parquet file. Raise UsageError if pyarrow, an optional package, is missing."""
    if find_spec("pyarrow") is None:
        raise UsageError(
            "Parquet needs the package pyarrow, which is not installed.",
            "Install it in kit's environment with `pip install pyarrow`, or use --to csv.",
        )
    buffer = io.BytesIO()
    table.frame().to_parquet(buffer, engine="pyarrow", index=False)
    return buffer.getvalue()


def to_markdown(table: TidyTable, run: Run) -> str:
    """Return the main columns as a table that fits a comment on a pull request. It says how many rows were cut."""
    shown = [index for index, column in enumerate(table.columns) if column.title and _is_used(table, index)]
    columns = [table.columns[index] for index in shown]
    plan = run.plan
    head = [
        f"### {_escape(text.machine_title(run.machine))}",
        "",
        (
            f"Run {_escape(plan.run)}, {_escape(plan.profile)} profile, {_escape(text.day(plan.created_at))}, "
            f"kit {_escape(run.machine.kit)}."
        ),
        "",
        f"| {' | '.join(column.title for column in columns)} |",
        f"|{'|'.join('---' if column.kind in {Kind.TEXT, Kind.FLAG} else '---:' for column in columns)}|",
    ]
    rows = [
        f"| {' | '.join(_cell(column, row[index]) for column, index in zip(columns, shown, strict=True))} |"
        for row in table.rows
    ]
    return _fitted(head, rows)


def _fitted(head: list[str], rows: list[str]) -> str:
    """Return head and rows, without the last rows if all of them are too long."""
    used, kept = len("\n".join(head).encode()) + 200, 0  # bytes; 200 for the last line
    while kept < len(rows) and (used := used + len(rows[kept].encode()) + 1) <= MAX_COMMENT_BYTES:
        kept += 1
    cut = len(rows) - kept
    last = ["", f"{format_count(cut, 'more row')} left out, because a comment has a limit."] if cut else []
    return "\n".join([*head, *rows[:kept], *last, ""])


def _is_used(table: TidyTable, index: int) -> bool:
    """Return whether a column says anything. A flag that is never set says nothing."""
    return any(row[index] is not None and row[index] != "" and row[index] is not False for row in table.rows)


def _cell(column: Column, value: Value) -> str:
    if value is None or value is False:
        return ""
    if value is True:
        return "yes"
    if isinstance(value, str):
        return _escape(value)
    return format_number(value, DIGITS) if column.kind is Kind.NUMBER else str(value)


def _escape(value: str) -> str:
    """Return a text as code, in which nothing has a meaning. Sites that show Markdown make no links there."""
    if not value:
        return ""
    line = " ".join(printable(shortened(value, MAX_CELL)).split())
    return f"<code>{SPECIAL.sub(lambda found: f'&#{ord(found[0])};', line)}</code>"


def _guarded(value: Value) -> Value:
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


TEXTS: Mapping[str, Callable[[TidyTable, Run], str]] = {
    "csv": lambda table, run: to_csv(table),
    "json": lambda table, run: to_json(table),
    "markdown": to_markdown,
}


def write_export(target: Path, content: str | bytes) -> None:
    """Write a table to a new file, atomically. Raise UsageError if it exists, and DiskError if it cannot be written."""
    if os.path.lexists(target):
        raise UsageError(f"{target} exists.", REMEDY)
    with disk_errors(target, REMEDY):
        write_atomic(target, content, overwrite=False)
