"""Write the page that compares machines as one HTML file: every text escaped, no external resource. Its only script
sorts and filters tables."""

from __future__ import annotations

from pathlib import Path

from kit.analysis.contenders import Contender
from kit.analysis.pairing import Measure
from kit.model.formatting import shortened
from kit.report import text
from kit.report.machines.answer import answers
from kit.report.machines.differs import differing, heading
from kit.report.machines.energy import energy
from kit.report.machines.excluded import excluded
from kit.report.machines.network_choices import network_choices
from kit.report.machines.ratios import ratios
from kit.report.machines.source import MachinesInput
from kit.report.machines.speed_cost import speed_cost
from kit.report.marks import numbered_marks
from kit.report.render import Page, render_page, write_page
from kit.report.table_script import TABLES, TABLES_HASH

PAGE = Page("a comparison of machines", ": kit comparison", "Choose another file with --html.")
MAX_LABELS = 4  # in the title
MAX_TEXT = 200  # characters of a text of a run


def write_machines(target: Path, source: MachinesInput) -> None:
    """Write the page, atomically. Raise UsageError if `target` is another file, and DiskError."""
    write_page(target, render_machines(source), PAGE)


def render_machines(source: MachinesInput) -> str:
    """Return the HTML text of the page. Raise DiskError if a template cannot be read."""
    differences = differing(source)
    return render_page(
        "machines.html",
        PAGE,
        title=text.listed(source.labels, MAX_LABELS),
        machines=[
            (each.label, shortened(text.machine_title(each.run.machine), MAX_TEXT), shortened(_origin(each), MAX_TEXT))
            for each in source.contenders
        ],
        measure=source.measure.value,
        answers=answers(source),
        differing=differences,
        differing_heading=heading(differences),
        ratios=ratios(source),
        choices=network_choices(source),
        energy=energy(source) if source.measure is Measure.TRAINING else None,
        speed_cost=speed_cost(source),
        excluded=excluded(source),
        marks=numbered_marks(source.labels),
        tables=TABLES,
        tables_hash=TABLES_HASH,
    )


def _origin(contender: Contender) -> str:
    """Return the run of a machine, with its profile and day."""
    plan = contender.run.plan
    return f"run {plan.run}, {plan.profile}, {text.day(plan.created_at)}"
