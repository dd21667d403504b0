"""What training costs on this machine, if its prices are given."""

from __future__ import annotations

from dataclasses import dataclass

from kit.analysis.costs import Times, times_of
from kit.analysis.pairing import Measure
from kit.analysis.summaries import CellSummary
from kit.model.formatting import format_count, format_range
from kit.model.tariff import Tariff
from kit.report import amounts, text
from kit.report.elements import Table
from kit.report.section import ReportInput, Section


@dataclass(frozen=True)
class CostsData:
    """The heading, the prices as a sentence, and the costs of each cell."""

    heading: str
    prices: str
    table: Table


def _data(source: ReportInput) -> CostsData | None:
    tariff = source.tariff
    if tariff is None:
        return None
    found = [
        (cell, times, tariff.per_hour[cell.cell.device])
        for cells in source.rows.values()
        for cell in cells
        if cell.cell.device in tariff.per_hour
        and (times := times_of(cell, Measure.TRAINING, source.analysis.scenarios))
    ]
    unit = f", {tariff.currency}" if tariff.currency else ""
    return CostsData(
        heading=_heading(tariff, found),
        prices=_prices(tariff),
        table=Table(
            headers=("Cell", f"A million images{unit}", f"An epoch{unit}", f"A trained model{unit}", "Epochs"),
            rows=tuple(_row(source, *each) for each in found),
            caption="Cost of training",
            numeric=(1, 2, 3, 4),
        ).limited(),
    )


def _heading(tariff: Tariff, found: list[tuple[CellSummary, Times, float]]) -> str:
    """Return the lowest cost of a trained model, over the networks."""
    lowest: dict[str, float] = {}
    for cell, times, per_hour in found:
        if times.model:
            name, cost = cell.cell.network, times.model.cost(per_hour).value
            lowest[name] = min(cost, lowest.get(name, cost))
    if not found:
        return "No cell with a price was measured"
    if not lowest:
        why = "the networks are unknown to this kit, or have changed since the run"
        return f"The cost of a trained model is unknown: {why}"
    extent = format_range(*(text.number(end) for end in (min(lowest.values()), max(lowest.values()))))
    unit, networks = amounts.unit(tariff.currency), format_count(len(lowest), "network")
    return f"A trained model costs {extent}{unit} with the cheapest framework and device ({networks})"


def _prices(tariff: Tariff) -> str:
    """Return the price of an hour, with its date and source."""
    origin = amounts.origin(tariff)
    return f"Price of an hour: {amounts.hourly(tariff)}{f' ({origin})' if origin else ''}."


def _row(source: ReportInput, cell: CellSummary, times: Times, per_hour: float) -> tuple[str, ...]:
    costs = [amounts.amount(time and time.cost(per_hour)) for time in (times.million, times.epoch, times.model)]
    return (source.name(cell.key), *costs, text.MISSING if times.epochs is None else str(times.epochs))


SECTION = Section(45, "costs", "Costs", _data, "costs.html", question="What does training cost here?")
