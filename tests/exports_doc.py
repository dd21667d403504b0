"""Generate docs/exports.md from the columns: `python -m tests.exports_doc`. A test keeps the page current."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kit.analysis.tidy import CELLS, LAUNCHES, Column
from kit.report.exports import MAX_COMMENT_BYTES

PAGE = Path(__file__).parents[1] / "docs" / "exports.md"
HEAD = f"""# Tables for other programs

This page is generated from the columns with `make docs`. Do not edit it by hand.

`kit export RUN --to csv` writes one row per cell, and with `--rows launches` one row per launch. The columns are the
same in `csv`, `json` and `parquet`, so tables of several runs can be appended to each other. `markdown` shows the main
columns, for people.

- A missing value is empty in CSV, and null in JSON and Parquet.
- CSV is UTF-8 with a header. Each text is quoted. A text that a spreadsheet would compute begins with an apostrophe.
- JSON is a list with one object per row.
- Parquet needs the package pyarrow, which `make setup` installs. In another environment: `pip install pyarrow`.
- Markdown has at most {MAX_COMMENT_BYTES:,} bytes, so it fits a comment on a pull request. It says how many rows were
  left out.
"""


def make_page() -> str:
    """Return the text of the page."""
    parts = [HEAD, _section("cells", CELLS), _section("launches", LAUNCHES)]
    return "\n".join(parts)


def _section(rows: str, columns: Sequence[Column]) -> str:
    lines = [f"## Columns of `--rows {rows}`", "", "| Column | Kind | Unit | Content |", "|---|---|---|---|"]
    lines += [f"| `{column.name}` | {column.kind} | {column.unit} | {column.text} |" for column in columns]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    PAGE.write_text(make_page(), encoding="utf-8")
