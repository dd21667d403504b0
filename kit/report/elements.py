"""Define the elements of a report that templates can show. No markup, no logic."""

from __future__ import annotations

from dataclasses import dataclass, replace

MAX_ROWS = 600  # of a table with one row for each cell: its page stays small, and a browser shows it at once


@dataclass(frozen=True)
class Table:
    """Rows of texts below headers.

    numeric: columns with numbers. wrap: whether the first and the last column break long words. omitted: number of rows
    that are not shown. summary: what it says, if it is folded.
    """

    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""
    numeric: tuple[int, ...] = ()
    wrap: bool = False
    omitted: int = 0
    summary: str = ""

    def limited(self) -> Table:
        """Return the table with its first MAX_ROWS rows."""
        return replace(self, rows=self.rows[:MAX_ROWS], omitted=max(0, len(self.rows) - MAX_ROWS))
