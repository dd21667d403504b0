"""Write the page of `kit compare --html`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kit.cli.side_by_side import letters
from kit.model.errors import UsageError, unknown

if TYPE_CHECKING:
    from kit.analysis.comparison import Comparison
    from kit.analysis.pairing import Measure
    from kit.model.run import Run

MAX_LABEL = 40  # characters


def labels_of(texts: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the label of each run: the one that was given, or else its letter.

    texts: `LABEL=RUN` each. names: the runs as they were named on the command line. Raise UsageError if a run is not
    compared, or if a label cannot be used.
    """
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise UsageError(f"The run {twice[0]!r:.100} is named twice.", "Name each run once.")
    given: dict[str, str] = {}
    for text in texts:
        label, equals, run = text.partition("=")
        label = label.strip()
        if not equals or not 0 < len(label) <= MAX_LABEL or "/" in label or not label.isprintable():
            raise UsageError(
                f"{text!r:.100} does not name a run.",
                f"Write NAME=RUN, with a name of at most {MAX_LABEL} characters and without a slash.",
            )
        if run not in names:
            raise unknown("run", run, names)
        if run in given:
            raise UsageError(f"The run {run!r:.100} has two names.", "Give each run one --label.")
        given[run] = label
    labels = [given.get(name, letter) for name, letter in zip(names, letters(len(names)), strict=True)]
    if twice := [label for label, count in Counter(labels).items() if count > 1]:
        raise UsageError(f"Two runs have the name {twice[0]!r}.", "Give each run its own --label.")
    return labels


def write_page(
    target: Path,
    runs: Sequence[Run],
    labels: Sequence[str],
    measure: Measure,
    prices: Sequence[str],
    price_file: Path | None,
) -> list[Sequence[Comparison]]:
    """Write the page that compares these runs, and return the comparisons of the others with the first one.

    labels: of the runs, all different. prices: see `machine_prices`. Raise UsageError if a price is not valid or if
    `target` is another file. Raise DiskError if the page cannot be written.
    """
    from kit.analysis.contenders import Contender
    from kit.planning import catalog
    from kit.planning.prices import machine_prices
    from kit.report.machines.page import write_machines
    from kit.report.machines.source import MachinesInput

    tariffs = machine_prices(prices, price_file, labels)
    scenarios = catalog.scenarios()
    titles = {name: framework.title for name, framework in catalog.frameworks().items()}
    contenders = [Contender(label, run, tariffs.get(label), scenarios) for label, run in zip(labels, runs, strict=True)]
    source = MachinesInput(contenders, measure, titles)
    write_machines(target, source)
    return [versus.comparisons for versus in source.versus]
