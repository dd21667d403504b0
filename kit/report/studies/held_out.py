"""Show what the trained networks predict for some images of the test set, on which they were not trained."""

from __future__ import annotations

from kit.model.formatting import format_percent
from kit.report import text
from kit.report.elements import Table
from kit.report.studies.part_source import PartSource
from scenarios.contract.cell import Cell
from scenarios.contract.predictions import HeldOutPrediction
from scenarios.spec import DATASETS

WRONG = " (wrong)"


def held_out_tables(part: PartSource) -> tuple[Table, ...]:
    """Return a table for each place that has predictions: a row for each image, a column for each series.

    It shows the most likely class, with its probability.
    """
    return tuple(table for place in part.places if (table := _table(part, place)))


def _table(part: PartSource, place: Cell) -> Table | None:
    scenario = part.source.analysis.scenarios.get(place.scenario, {}).get(place.variant)
    if scenario is None:
        return None
    classes = DATASETS[scenario.dataset].classes
    columns: dict[str, dict[int, HeldOutPrediction]] = {}
    labels: dict[int, int] = {}
    for one in part.series:
        summary = part.summary(place, one)
        for found in part.values.held_out(summary) if summary else ():
            if len(found.probabilities) == len(classes):  # else it is not a prediction for this data set
                columns.setdefault(one.title, {})[found.image] = found
                labels.setdefault(found.image, found.label)
    if not labels:
        return None
    rows = [
        (str(image), classes[label], *(_answer(own.get(image), classes) for own in columns.values()))
        for image, label in sorted(labels.items())
    ]
    correct = (f"{sum(map(_is_correct, own.values()))} of {len(own)}" for own in columns.values())
    return Table(
        headers=("Index in the test set", "Label", *columns),
        rows=(*rows, ("Correct", "", *correct)),
        caption=part.label(place),
    )


def _answer(found: HeldOutPrediction | None, classes: tuple[str, ...]) -> str:
    if found is None:
        return text.MISSING
    share = max(found.probabilities)
    name = classes[found.probabilities.index(share)]
    return f"{name}, {format_percent(share, 1)}{'' if _is_correct(found) else WRONG}"


def _is_correct(found: HeldOutPrediction) -> bool:
    return found.probabilities.index(max(found.probabilities)) == found.label
