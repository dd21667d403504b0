"""Show what differs between the machines and their software, and nothing else."""

from __future__ import annotations

from kit.analysis.contenders import Contender
from kit.analysis.differences import facts
from kit.analysis.measured_launch import measured_launches
from kit.model.formatting import short_digests, shortened
from kit.report import amounts, text
from kit.report.elements import Table
from kit.report.machines.source import MachinesInput

LAST = "environment"  # digests, which say only that something differs
MAX_FIELD, MAX_TEXT = 80, 160  # characters of a fact and of its values
MAX_NAMED = 4  # facts in the heading
FIRST = (
    "price of an hour",
    "profile",
    "machine",
    "usable CPUs",
    "GPU",
    "driver",
    "memory",
    "CPU quota",
    "virtualization",
    "system",
)


def heading(table: Table) -> str:
    """Return what differs: the first facts of the table, and the number of the others."""
    fields = [row[0] for row in table.rows]
    if not fields:
        return "Nothing that kit records"
    words = text.listed(fields, MAX_NAMED)
    return words[0].upper() + words[1:]


def differing(source: MachinesInput) -> Table:
    """Return one row for each fact that differs, with its values on each machine."""
    known = [_facts(contender) for contender in source.contenders]
    others = {field for found in known for field in found} - {LAST}
    fields = dict.fromkeys([*FIRST, *sorted(others), LAST])
    rows = []
    for field in fields:
        values = [" and ".join(sorted(found.get(field, ()))) for found in known]
        if len(set(values)) > 1:
            rows.append(
                (
                    shortened(field, MAX_FIELD),
                    *(shortened(short_digests(value) or text.MISSING, MAX_TEXT) for value in values),
                )
            )
    return Table(headers=("", *source.labels), rows=tuple(rows), caption="What differs", wrap=True).limited()


def _facts(contender: Contender) -> dict[str, set[str]]:
    """Return the values of each fact among the launches of a run."""
    found: dict[str, set[str]] = {}
    if contender.tariff:
        found["price of an hour"] = {amounts.hourly(contender.tariff)}
    for launch in measured_launches(contender.run.records):
        for field, value in facts(launch).items():
            found.setdefault(field, set()).add(value)
    if "machine" in found:  # named as at the top of the page, which has cores instead of CPUs
        machine = contender.run.machine
        found |= {"machine": {text.machine_title(machine)}, "usable CPUs": {str(machine.cpus)}}
    return found
