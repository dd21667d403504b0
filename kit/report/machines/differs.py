"""Show what differs between the machines and their software, and nothing else."""

from __future__ import annotations

from kit.analysis.contenders import Contender
from kit.analysis.differences import facts
from kit.analysis.measured_launch import measured_launches
from kit.model.formatting import short_digests, shortened
from kit.model.record import Record
from kit.report import text
from kit.report.elements import Table
from kit.report.machines.source import MachinesInput

LAST = "environment"  # digests, which say only that something differs
MAX_TEXT = 160  # characters of a value
FIRST = ("profile", "machine", "GPU", "driver", "memory", "CPU quota", "virtualization", "system")


def differing(source: MachinesInput) -> Table:
    """Return one row for each fact that differs, with its values on each machine."""
    known = [_facts(contender) for contender in source.contenders]
    others = {field for found in known for field in found} - {LAST}
    fields = dict.fromkeys([*FIRST, *sorted(others), LAST])
    rows = []
    for field in fields:
        values = [" and ".join(sorted(found.get(field, ()))) for found in known]
        if len(set(values)) > 1:
            rows.append((field, *(shortened(short_digests(value) or text.MISSING, MAX_TEXT) for value in values)))
    return Table(headers=("", *source.labels), rows=tuple(rows), caption="What differs", wrap=True).limited()


def _facts(contender: Contender) -> dict[str, set[str]]:
    """Return the values of each fact among the launches of a run."""
    found: dict[str, set[str]] = {}
    for launch in measured_launches(_one_per_cell(contender)):
        for field, value in facts(launch).items():
            found.setdefault(field, set()).add(value)
    return found


def _one_per_cell(contender: Contender) -> list[Record]:
    """Return the first ok launch of each cell. Launches of a cell of one run differ only if something went wrong."""
    return [next(r for r in contender.run.by_cell[s.key] if r.ok) for s in contender.cells]
