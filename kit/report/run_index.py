"""Write the index of a folder of runs: one page with a row for each run, which links to its report."""

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

from kit.model.formatting import format_count, shortened
from kit.model.run_summary import RunSummary
from kit.report import text
from kit.report.render import Page, render_page, write_page
from kit.report.table_script import TABLES, TABLES_HASH
from kit.storage.run_folder import REPORT_FILE
from kit.storage.run_list import ListedRun, list_runs

INDEX_FILE = "index.html"
MAX_TEXT = 200  # characters of a text from a file of a run
PAGE = Page("an index of runs", ": kit index", "Move it away, or make the folder writable.")


@dataclass(frozen=True)
class Link:
    """A link to a section of a report."""

    href: str
    text: str


@dataclass(frozen=True)
class Row:
    """A run in the index.

    name: of its folder. machine: as in the title of its report. report: address of its report, or "". created_at: ISO
    8601, which sorts the rows. headline: what the run found, or why it cannot be read. remark: what the reader should
    know about this row, with `command`, or "". warnings: their number, or "". problems: what failed, or "". sections:
    of its report.
    """

    name: str
    machine: str
    report: str = ""
    created_at: str = ""
    day: str = ""
    profile: str = ""
    headline: str = ""
    detail: str = ""
    remark: str = ""
    command: str = ""
    reliability: str = ""
    warnings: str = ""
    problems: str = ""
    sections: tuple[Link, ...] = ()
    broken: bool = False


def write_index(out: Path) -> Path:
    """Write the index of the runs in a folder, atomically, and return its path.

    Raise UsageError if `out` is no folder, is a run itself, or has another file in place of the index. Raise DiskError
    if the folder cannot be read or the index cannot be written.
    """
    target, runs = out / INDEX_FILE, list_runs(out)
    write_page(target, render_index(out.absolute().name, runs), PAGE)
    return target


def render_index(folder: str, runs: Sequence[ListedRun]) -> str:
    """Return the HTML text of the index, the newest run first. folder: name of the folder."""
    rows = sorted(map(make_row, runs), key=lambda row: row.created_at, reverse=True)
    broken = sum(row.broken for row in rows)
    machines = len({run.machine.id for run in runs if run.machine})
    return render_page(
        "run_index.html",
        PAGE,
        folder=folder,
        count=f"{format_count(len(rows), 'run')} on {format_count(machines, 'machine')}",
        broken=f"{format_count(broken, 'run')} cannot be read." if broken else "",
        rows=rows,
        tables=TABLES,
        tables_hash=TABLES_HASH,
    )


def make_row(run: ListedRun) -> Row:
    """Return the row of a run."""
    name = run.path.name
    report = f"{quote(os.fsencode(name))}/{REPORT_FILE}" if run.has_report else ""
    if run.machine is None:
        return Row(
            name, "Unknown machine", report, headline="The run cannot be read", remark=shortened(run.error), broken=True
        )
    row = Row(
        name,
        _short(text.machine_title(run.machine)),
        report,
        created_at=_short(run.created_at),
        day=_short(text.day(run.created_at)),
        profile=_short(run.profile),
    )
    if not run.current:
        added = run.has_report and run.summary
        remark = "Records were added since this report:" if added else "It has no summary yet:"
        row = replace(row, remark=remark, command=f"kit report {shlex.quote(name)}")
    return _with_summary(row, run.summary) if run.summary else row


def _with_summary(row: Row, summary: RunSummary) -> Row:
    links = [Link(f"{row.report}#{quote(link.anchor)}", link.title) for link in summary.sections] if row.report else []
    return replace(
        row,
        headline=summary.headline,
        detail=summary.detail,
        reliability=summary.reliability,
        warnings=f"{summary.warnings:,}",
        problems=summary.problems,
        sections=tuple(links),
    )


def _short(of_run: str) -> str:
    return shortened(of_run, MAX_TEXT)
