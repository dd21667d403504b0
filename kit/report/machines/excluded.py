"""List what was not compared, and why."""

from __future__ import annotations

from collections.abc import Iterable

from kit.analysis.comparison import ABSENT, CellStatus, Comparison
from kit.analysis.contenders import Versus
from kit.analysis.differences import Severity
from kit.analysis.intervals import Verdict
from kit.model.formatting import format_few, shortened
from kit.report.elements import Table
from kit.report.machines.source import MachinesInput

MAX_TEXT = 400  # characters of a reason


def excluded(source: MachinesInput) -> Table:
    """Return a row for each reason, with the machines and cells that it concerns."""
    found: dict[tuple[str, str], dict[str, None]] = {}
    for versus in source.versus:
        for each in versus.comparisons:
            for where, why in _reasons(source, each, versus):
                found.setdefault((where, why), {})[source.names.get(each.key, each.key)] = None
    rows = tuple(
        (where, shortened(format_few(list(cells), "cell"), MAX_TEXT), shortened(why, MAX_TEXT))
        for (where, why), cells in found.items()
    )
    return Table(("Machine", "Cells", "Why"), rows, "What was not compared", wrap=True).limited()


def _reasons(source: MachinesInput, each: Comparison, versus: Versus) -> Iterable[tuple[str, str]]:
    """Yield where and why a cell was not compared. Nothing if it was."""
    base, other = versus.base, versus.other
    if each.verdict is Verdict.REFUSED:
        for difference in each.differences:
            if difference.severity is Severity.REFUSED:
                values = difference.values(base.label, other.label)
                yield f"{base.label} and {other.label}", f"{difference.field}: {values}. {difference.why}"
    elif each.verdict is Verdict.MISSING:
        for contender, cell in ((base, each.base), (other, each.new)):
            if cell.status is CellStatus.NOT_OK:
                for failure in cell.failures:
                    yield contender.label, source.lack(contender, each.cell, [ABSENT]) if failure == ABSENT else failure
