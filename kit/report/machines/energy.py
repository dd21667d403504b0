"""Show how many images each machine trains per joule."""

from __future__ import annotations

from dataclasses import dataclass

from kit.analysis.contenders import Energy, energy_of
from kit.model.formatting import shortened
from kit.report import text
from kit.report.elements import Table
from kit.report.machines.source import MachinesInput

MAX_PARTS = 100  # characters
NONE = "Not measured: no sensor for energy or power could be read on any machine"


@dataclass(frozen=True)
class EnergyData:
    """The heading and the table, which has no rows if nothing was measured."""

    heading: str
    table: Table


def energy(source: MachinesInput) -> EnergyData:
    """Return the images per joule of each cell, if at least one machine measured them."""
    found = [
        {summary.key: energy_of(contender.run.by_cell[summary.key]) for summary in contender.cells}
        for contender in source.contenders
    ]
    keys = [key for key in source.names if any(of_machine.get(key) for of_machine in found)]
    table = Table(
        headers=("Cell", *source.labels),
        rows=tuple((source.names[key], *(_words(of_machine.get(key)) for of_machine in found)) for key in keys),
        caption="Images per joule in training",
        numeric=tuple(range(1, 1 + len(source.labels))),
    ).limited()
    without = [label for label, of_machine in zip(source.labels, found, strict=True) if not any(of_machine.values())]
    heading = NONE if not keys else "Images per joule of each cell: more is better"
    if keys and without:
        heading += f" (not measured on {text.listed(without)})"
    return EnergyData(heading, table)


def _words(of: Energy | None) -> str:
    """Return the images per joule, with the parts whose energy it covers."""
    if of is None:
        return "not measured"
    return f"{text.number(of.images)} ({shortened(' + '.join(part.upper() for part in of.parts), MAX_PARTS)})"
