"""Render a report as one HTML file: no script, no external resource, every text escaped."""

import os
from dataclasses import dataclass
from pathlib import Path

import jinja2

from kit import assets
from kit.analysis.run_analysis import RunAnalysis
from kit.model.errors import DiskError, UsageError
from kit.model.formatting import printable, shortened
from kit.model.tariff import Tariff
from kit.planning import catalog, studies
from kit.report import sections
from kit.report.text import unbroken
from kit.report.view import View, make_view
from kit.storage.files import disk_errors, write_atomic

DOCTYPE = b"<!doctype html>"  # the start of every report
HEAD_BYTES = 4096  # contains the title


@dataclass(frozen=True)
class Page:
    """A kind of page. what: for example `a report`. title_end: the end of the title of every such page, and of no other
    one. remedy: what to do if it cannot be written."""

    what: str
    title_end: str
    remedy: str


PAGE = Page("a report", ": kit report", "Move it away, or write the report elsewhere: `kit report RUN --out FILE`.")
TEMPLATES = Path(__file__).with_name("templates")


def write_report(target: Path, analysis: RunAnalysis, tariff: Tariff | None = None) -> View:
    """Write the report of a run to `target`, atomically, and return its content.

    tariff: the prices of the machine. Raise UsageError if `target` exists and is not a report. Raise DiskError if it
    cannot be written.
    """
    require_free(target, PAGE)
    titles = {name: framework.title for name, framework in catalog.frameworks().items()}
    known, faults = studies.load_valid()
    # A report names no folder of this machine.
    texts = {name: fault.message.replace(f"{assets.ROOT}{os.sep}", "") for name, fault in faults.items()}
    view = make_view(analysis, titles, known, texts, tariff)
    write_page(target, render(view), PAGE)
    return view


def write_page(target: Path, html: str, page: Page) -> None:
    """Write a page, atomically. Raise UsageError if `target` is another file, and DiskError if it cannot be written."""
    require_free(target, page)
    with disk_errors(target, page.remedy):
        write_atomic(target, html.encode(errors="replace"))  # texts of strangers may contain lone surrogates


def require_free(target: Path, page: Page) -> None:
    """Raise UsageError if writing to `target` would destroy anything but such a page, and DiskError if `target` cannot
    be read."""
    if not os.path.lexists(target):
        return
    head = b"?"
    with disk_errors(target, page.remedy):
        if target.is_file() and not target.is_symlink():  # writing would replace a link, such as /dev/stdout
            with open(target, "rb") as file:
                head = file.read(HEAD_BYTES)
    if head and not (head.startswith(DOCTYPE) and f"{page.title_end}</title>".encode() in head):
        raise UsageError(f"{target} exists and is not {page.what}.", page.remedy)


def render(view: View) -> str:
    """Return the HTML text of a report. Raise DiskError if a template cannot be read."""
    return render_page("report.html", PAGE, marks=view.marks, view=view)


def render_page(template: str, page: Page, **values: object) -> str:
    """Return the HTML text of such a page. values: global names of the template and of what it includes.

    Raise DiskError if a template cannot be read.
    """
    environment = page_environment()
    environment.globals.update(values, title_end=page.title_end)
    try:
        return environment.get_template(template).render()
    except jinja2.TemplateNotFound as error:
        remedy = "Check the permissions of kit's installed files."
        raise DiskError(f"The report's template {error.name} cannot be read.", remedy) from error


def page_environment() -> jinja2.Environment:
    """Return the environment of all pages. Every text is escaped, and cut to `shortened`'s length if it is longer.

    Texts of kit itself may be Markup, which passes unchanged.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([TEMPLATES, *sections.__path__]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: printable(shortened(value)) if type(value) is str else value,
    )
    environment.filters["shortened"] = shortened
    environment.filters["unbroken"] = unbroken
    return environment
