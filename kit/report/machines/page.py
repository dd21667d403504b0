"""Write the page that compares machines as one HTML file: every text escaped, no external resource. Its only script
sorts and filters tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kit.analysis.contenders import Contender
from kit.analysis.pairing import Measure
from kit.model.errors import UsageError
from kit.report import text
from kit.report.machines.answer import answers
from kit.report.machines.differs import differing
from kit.report.machines.energy import energy
from kit.report.machines.excluded import excluded
from kit.report.machines.network_choices import network_choices
from kit.report.machines.ratios import ratios
from kit.report.machines.source import MachinesInput
from kit.report.machines.speed_cost import speed_cost
from kit.report.marks import numbered_marks
from kit.report.render import is_free_or_report, render_page
from kit.report.table_script import TABLES, TABLES_HASH
from kit.storage.files import disk_errors, write_atomic

REMEDY = "Choose another file with --html."
TITLE_END = ": kit comparison"  # of every such page, and of no other one
MAX_LABELS = 4  # in the title


def write_machines(target: Path, source: MachinesInput) -> None:
    """Write the page, atomically. Raise UsageError if `target` is another file, and DiskError."""
    require_free(target)
    page = render_machines(source)
    with disk_errors(target, REMEDY):
        write_atomic(target, page.encode(errors="replace"))  # records may contain lone surrogates


def require_free(target: Path) -> None:
    """Raise UsageError if writing to `target` would destroy anything but a comparison of machines."""
    if not is_free_or_report(target, [f"{TITLE_END}</title>".encode()]):
        raise UsageError(f"{target} exists and is not a comparison of machines.", REMEDY)


def render_machines(source: MachinesInput) -> str:
    """Return the HTML text of the page. Raise DiskError if a template cannot be read."""
    return render_page(
        "machines.html",
        title=_title(source.labels),
        title_end=TITLE_END,
        machines=[(each.label, text.machine_title(each.run.machine), _origin(each)) for each in source.contenders],
        measure=source.measure.value,
        answers=answers(source),
        differing=differing(source),
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


def _title(labels: Sequence[str]) -> str:
    shown = [*labels[:MAX_LABELS], *[f"{len(labels) - MAX_LABELS} more"] * (len(labels) > MAX_LABELS)]
    return text.listed(shown)
