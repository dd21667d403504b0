"""Find the curves of a run whose cells differ only in one number, and where they flatten. No input or output.

A sweep measures the same cell at several values of a field: the batch size, the number of loader workers, or the number
of hidden layers. Its cells run in the same rounds, so the step from one value to the next larger one has a ratio of
training speeds in each round.

A step is flat if it gains less than GAIN. The flattening point is the smallest value from which on all further steps
are flat. A step leads to the next value that was measured, so the point depends on the values. Each value should be
about twice the one before.

The point has an interval with a confidence of at least 95%:

- Its end. From the last step backward, each step is tested for a gain of at least GAIN. The first one for which this is
  not rejected ends the search. Such a sequence needs no correction for the number of tests (J. C. Hsu, R. L. Berger,
  Stepwise Confidence Intervals Without Multiplicity Adjustment for Dose-Response and Toxicity Studies, J. Am. Stat.
  Assoc. 94, 1999).
- Its start is the value after the last step that certainly gains GAIN or more. Any step could be this one by chance, so
  its p values are adjusted (`holm`).

Each side has a level of 2.5%. The tests are those of `kit.analysis.intervals.paired_interval`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from operator import mul
from typing import Any

from kit.analysis.intervals import CONFIDENCE, holm, paired_p_value
from kit.analysis.pairing import Measure, Rates
from kit.analysis.summaries import CellSummary, Ratio, ratio
from kit.model.formatting import format_count
from kit.model.swept import SWEPT, SweptField
from scenarios.catalog import Scenarios, scenario_of
from scenarios.contract.cell import Cell
from scenarios.spec import hidden_layers

GAIN = 0.05  # launches of a cell differ by as much (`kit.analysis.answers.CLOSE`)


def value_of(cell: Cell, field: SweptField, scenarios: Scenarios) -> int | None:
    """Return a cell's value of a field. None if the framework chooses it, or if the scenario is unknown."""
    if field != "hidden_layers" or cell.hidden_layers is not None:
        value: int | None = getattr(cell, field)
        return value
    scenario = scenario_of(cell, scenarios)
    return hidden_layers(scenario) if scenario else None


def varied_fields(cells: Iterable[Cell], scenarios: Scenarios) -> dict[str, tuple[SweptField, ...]]:
    """Return the fields that differ among the cells of each scenario with its variant, by its label."""
    found: dict[str, dict[SweptField, set[int | None]]] = {}
    for cell in cells:
        fields = found.setdefault(cell.label, {field: set() for field in SWEPT})
        for field in SWEPT:
            fields[field].add(value_of(cell, field, scenarios))
    return {label: tuple(f for f in SWEPT if len(fields[f]) > 1) for label, fields in found.items()}


def value_words(field: SweptField, value: int | None) -> str:
    """Return a value in words, for example `batch 32`, `2 workers` or `1 hidden layer`."""
    if field == "batch":
        return f"batch {value}"
    noun = _noun(field)
    return f"default {noun}s" if value is None else format_count(value, noun)


def extent_words(field: SweptField, low: int, high: int) -> str:
    """Return a range of values in words, for example `batch 32 to 128` or `2 to 4 workers`."""
    if low == high:
        return value_words(field, low)
    return f"batch {low} to {high}" if field == "batch" else f"{low} to {high} {_noun(field)}s"


def _noun(field: SweptField) -> str:
    return "worker" if field == "workers" else "hidden layer"


def values_of(cell: Cell, scenarios: Scenarios) -> tuple[int, int, int]:
    """Return the key that sorts the cells of a sweep: its values in the order of SWEPT. 0 stands for unknown."""
    depth, batch, workers = (value_of(cell, field, scenarios) or 0 for field in SWEPT)
    return depth, batch, workers


def in_order(cells: Iterable[Cell], scenarios: Scenarios) -> list[Cell]:
    """Return the cells without duplicates, those of a sweep next to each other in the order of their values."""
    groups: dict[Cell, dict[Cell, None]] = {}
    for cell in cells:
        groups.setdefault(replace(cell, batch=1, workers=None, hidden_layers=None), {})[cell] = None
    return [cell for own in groups.values() for cell in sorted(own, key=lambda cell: values_of(cell, scenarios))]


@dataclass(frozen=True)
class Flattening:
    """The value from which on all further steps gain less than GAIN.

    value: the estimate; the largest measured value means that the curve is not flat up to there. earliest, latest: the
    smallest and the largest value that the launches cannot exclude, None if a step has fewer than two rounds.
    """

    value: int
    earliest: int | None
    latest: int | None


@dataclass(frozen=True)
class Curve:
    """Cells that differ only in one field.

    values: of the field, ascending, at least two. cells: their summaries, with a training speed. steps: the speed at
    each value but the first over that at the value before. whole: the speed at the last value over that at the first.
    """

    field: SweptField
    values: tuple[int, ...]
    cells: tuple[CellSummary, ...]
    steps: tuple[Ratio, ...]
    whole: Ratio

    @property
    def single(self) -> bool:
        """Return whether a step has too few common rounds for an interval."""
        return any(step.interval is None for step in self.steps)

    @property
    def undecided(self) -> bool:
        """Return whether the launches exclude no value as the one where the curve flattens."""
        found = self.flattening
        return (found.earliest, found.latest) == (self.values[0], self.values[-1])

    @property
    def flattens(self) -> bool:
        """Return whether the curve flattens before its last value."""
        return self.flattening.value < self.values[-1]

    @property
    def falls(self) -> bool:
        """Return whether the curve flattens near its fastest value, and its last value is slower by GAIN or more."""
        speeds = [*accumulate((step.ratio for step in self.steps), mul, initial=1.0)]  # relative to the first value
        near = speeds[self.values.index(self.flattening.value)]
        return near >= (1 - GAIN) * max(speeds) and speeds[-1] <= (1 - GAIN) * near

    @property
    def flattening(self) -> Flattening:
        """Return where the curve flattens."""
        estimate = _after_last(self.values, [step.ratio >= 1 + GAIN for step in self.steps])
        if self.single:
            return Flattening(estimate, None, None)
        steep = holm([_p_of_no_gain(step) for step in self.steps])
        level = (1 - CONFIDENCE) / 2
        earliest = _after_last(self.values, [p < level for p in steep])
        latest = _after_last(self.values, [not (s.interval and s.interval.high < 1 + GAIN) for s in self.steps])
        return Flattening(estimate, min(earliest, estimate), max(latest, estimate))


def _after_last(values: Sequence[int], steep: Sequence[bool]) -> int:
    """Return the value after the last step that counts as steep, the first value if there is none."""
    return values[max((place for place, is_steep in enumerate(steep, start=1) if is_steep), default=0)]


def _p_of_no_gain(step: Ratio) -> float:
    """Return the one-sided p value of the hypothesis that a step gains less than GAIN."""
    p = paired_p_value([each / (1 + GAIN) for each in step.pairs.ratios]) / 2
    return p if step.ratio >= 1 + GAIN else 1 - p


def curves(
    summaries: Sequence[CellSummary], by_round: Mapping[str, Rates], scenarios: Scenarios, field: SweptField
) -> list[Curve]:
    """Return the curves over a field: groups of at least two cells that have a training speed, the same kind of data,
    and differ only in this field. by_round: the rates of training, from `rates_by_round`.
    """
    groups: dict[tuple[Cell, bool], dict[int, CellSummary]] = {}
    for summary in summaries:
        value = value_of(summary.cell, field, scenarios)
        if summary.images_per_s and value is not None:
            same: dict[str, Any] = {field: 1}
            groups.setdefault((replace(summary.cell, **same), summary.synthetic), {})[value] = summary

    def gain(one: CellSummary, other: CellSummary) -> Ratio:
        return ratio("sweep", other, one, by_round, Measure.TRAINING)

    found = []
    for group in groups.values():
        if len(group) < 2:
            continue
        values, cells = zip(*sorted(group.items()), strict=True)
        steps = tuple(gain(one, other) for one, other in pairwise(cells))
        found.append(Curve(field, values, cells, steps, gain(cells[0], cells[-1])))
    return found
