"""View -> one HTML file: no script, no outside resource, every text escaped."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import jinja2
from markupsafe import Markup

from kit.analysis.run_analysis import RunAnalysis
from kit.model.errors import DiskError, UsageError
from kit.model.text import harmless
from kit.planning import catalog
from kit.report import charts
from kit.report.parts import Section, Timeline, View
from kit.report.view import make_view

DOCTYPE = b"<!doctype html>"  # how every report begins


def write_report(target: Path, analysis: RunAnalysis) -> Path:
    """Write the report of a run to `target`, atomically, and return it. Raises UsageError where something else is
    there, DiskError where it cannot be written."""
    if not _is_report(target):
        raise UsageError(f"{target} is there already, and no report.", "Name another file with --out.")
    titles = {name: framework.title for name, framework in catalog.frameworks().items()}
    html = render(make_view(analysis, titles))
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        temporary.write_text(html, encoding="utf-8", errors="replace")  # records may hold halves of characters
        temporary.replace(target)
    except OSError as error:
        raise DiskError(
            f"The report {target} cannot be written: {error.strerror}.", "Free disk space or choose another --out."
        ) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
    return target


def _is_report(target: Path) -> bool:
    """Whether nothing is lost by writing there: nothing is there, or a report is."""
    if not os.path.lexists(target):
        return True
    if not target.is_file():
        return False
    with open(target, "rb") as file:
        return file.read(len(DOCTYPE)) in {b"", DOCTYPE}


def render(view: View) -> str:
    """The HTML text of a view."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("kit.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: harmless(value) if type(value) is str else value,  # but not what is markup already
    )
    return environment.get_template("report.html").render(view=view, drawings=_drawings, drawn=_drawn)


def _drawings(section: Section) -> list[Markup]:
    """The section's charts as SVG. Safe as markup: the SVG writer escapes every text in it."""
    drawn = [charts.bars(title, bars) for title, bars in section.bars.items()]
    if section.curve:
        drawn.append(charts.curve(section.curve))
    return [Markup(svg) for svg in drawn]  # noqa: S704


def _drawn(timeline: Timeline) -> Markup:
    return Markup(charts.timeline(timeline))  # noqa: S704 - as above
