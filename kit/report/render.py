"""Render a report as one HTML file: no script, no external resource, every text escaped."""

import os
from collections.abc import Collection
from pathlib import Path

import jinja2

from kit import assets
from kit.analysis.run_analysis import RunAnalysis
from kit.model.errors import DiskError, UsageError
from kit.model.formatting import printable
from kit.model.tariff import Tariff
from kit.planning import catalog, studies
from kit.report import sections
from kit.report.text import unbroken
from kit.report.view import View, make_view
from kit.storage.files import disk_errors, write_atomic

DOCTYPE = b"<!doctype html>"  # the start of every report
MARKS = (b'<meta name="generator" content="kit">', b": kit report</title>")  # the second one in older reports
HEAD_BYTES = 4096  # contains one of the marks
TEMPLATES = Path(__file__).with_name("templates")


def write_report(target: Path, analysis: RunAnalysis, tariff: Tariff | None = None) -> View:
    """Write the report of a run to `target`, atomically, and return its content.

    tariff: the prices of the machine. Raise UsageError if `target` exists and is not a report. Raise DiskError if it
    cannot be written.
    """
    if not is_free_or_report(target):
        raise UsageError(f"{target} exists and is not a report.", "Choose another file with --out.")
    titles = {name: framework.title for name, framework in catalog.frameworks().items()}
    known, faults = studies.load_valid()
    # A report names no folder of this machine.
    texts = {name: fault.message.replace(f"{assets.ROOT}{os.sep}", "") for name, fault in faults.items()}
    view = make_view(analysis, titles, known, texts, tariff)
    html = render(view)
    with disk_errors(target, "Choose another file with `kit report --out`."):
        write_atomic(target, html.encode(errors="replace"))  # records may contain lone surrogates
    return view


def is_free_or_report(target: Path, marks: Collection[bytes] = MARKS) -> bool:
    """Return whether writing to `target` destroys nothing but a page of kit.

    marks: the head of the page has one of them.
    """
    if not os.path.lexists(target):
        return True
    if not target.is_file():
        return False
    with open(target, "rb") as file:
        head = file.read(HEAD_BYTES)
    return not head or (head.startswith(DOCTYPE) and any(mark in head for mark in marks))


def render(view: View) -> str:
    """Return the HTML text of a report. Raise DiskError if a template cannot be read."""
    return render_page("report.html", marks=view.marks, view=view)


def render_page(template: str, **values: object) -> str:
    """Return the HTML text of a page. values: global names of the template and of what it includes.

    Raise DiskError if a template cannot be read.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([TEMPLATES, *sections.__path__]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: printable(value) if type(value) is str else value,  # Markup passes unchanged
    )
    environment.filters["unbroken"] = unbroken
    environment.globals.update(values)
    try:
        return environment.get_template(template).render()
    except jinja2.TemplateNotFound as error:
        remedy = "Check the permissions of kit's installed files."
        raise DiskError(f"The report's template {error.name} cannot be read.", remedy) from error
