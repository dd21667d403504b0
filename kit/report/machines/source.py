"""Define the input from which every part of the page is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from kit.analysis.comparison import ABSENT, Comparison, cell_names
from kit.analysis.contenders import Choice, Contender, Value, Versus, choices, values, versus
from kit.analysis.costs import Estimate
from kit.analysis.intervals import Verdict
from kit.analysis.pairing import Measure
from kit.report import amounts
from kit.report.rows import configuration_words
from scenarios.catalog import scenario_of
from scenarios.contract.cell import Cell

WORDS = {str(Verdict.UNKNOWN): "no interval", str(Verdict.REFUSED): "not comparable"}
VERBS = {Measure.TRAINING: "trains", Measure.INFERENCE: "predicts"}


def verdict_words(found: Comparison) -> str:
    """Return the verdict on a cell in words."""
    return WORDS.get(found.words, found.words)


@dataclass(frozen=True)
class MachinesInput:
    """The input of the page.

    contenders: at least two; the first one is the base. measure: training or inference. titles: name of a framework to
    its display name.
    """

    contenders: Sequence[Contender]
    measure: Measure
    titles: Mapping[str, str]

    @property
    def base(self) -> Contender:
        """Return the base of all ratios."""
        return self.contenders[0]

    @property
    def labels(self) -> list[str]:
        """Return the names of the machines."""
        return [contender.label for contender in self.contenders]

    @cached_property
    def versus(self) -> list[Versus]:
        """Return each other machine compared with the base."""
        return versus(self.contenders, self.measure)

    @cached_property
    def choices(self) -> list[Choice]:
        """Return the choice for each network."""
        return choices(self.contenders, self.measure)

    @cached_property
    def values(self) -> list[Value]:
        """Return how much work each other machine does for the same money as the base."""
        return values(self.contenders, self.choices)

    @property
    def priced(self) -> list[Contender]:
        """Return the machines that have a price."""
        return [contender for contender in self.contenders if contender.tariff]

    @property
    def currency(self) -> str:
        """Return the currency of the prices, or ""."""
        return next((contender.tariff.currency for contender in self.contenders if contender.tariff), "")

    @cached_property
    def names(self) -> dict[str, str]:
        """Return the short name of each cell, by key, in the order of rows."""
        return cell_names([contender.run for contender in self.contenders], self.base.catalog)

    def network(self, cell: Cell) -> str:
        """Return the title of a cell's network, or its id if the catalog lacks it."""
        scenario = scenario_of(cell, self.base.catalog)
        return scenario.title if scenario else cell.network

    def way(self, cell: Cell) -> str:
        """Return the framework and the device of a cell, for example `PyTorch, GPU`."""
        return f"{self.titles.get(cell.framework, cell.framework)}, {configuration_words(cell)}"

    def lack(self, contender: Contender, cell: Cell, failures: Sequence[str]) -> str:
        """Return why a machine has no speed of a cell. failures: see `CellResult`."""
        if cell.device == "cuda" and not contender.run.machine.gpus:
            return "no GPU"
        return "not in this run" if ABSENT in failures else str(Verdict.MISSING)

    def money(self, cost: Estimate | None) -> str:
        """Return a cost with its currency and its interval, for example `0.0123 EUR (0.0119 to 0.0128)`."""
        return amounts.amount(cost, self.currency)
