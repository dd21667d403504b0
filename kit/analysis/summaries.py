"""Summarize records into cells, ratios and contests of frameworks, with intervals. No input or output.

The unit of statistics is the launch, never a window of one launch. `kit.analysis.intervals` computes the intervals.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations, permutations
from typing import Any, Literal

from kit.analysis.intervals import (
    CONFIDENCE,
    Interval,
    Verdict,
    cell_interval,
    holm,
    paired_interval,
    paired_p_value,
    typical,
)
from kit.analysis.pairing import Measure, Pairs, Rates, calls_per_s, pair, rates
from kit.model.formatting import format_percent
from kit.model.record import Record
from kit.model.run import CELL_COLUMNS, MEASURED_COLUMNS, Run, measured
from scenarios.contract.cell import Cell


@dataclass(frozen=True)
class CellSummary:
    """The results of one cell over its `ok` launches, None if no launch is ok.

    Numbers are medians over launches, p99_ms only if each launch has one. epoch_s, images_per_s (training),
    inference_images_per_s and p50_ms are typical values (`typical`). interval, inference_interval, p50_interval: of the
    last three. They are None if there is only one launch. If launches are correlated (`kit.analysis.correlation`), they
    describe only the period of the run.

    launches: number of ok launches. attempts: number of all launches. lowest, highest: training images/s of the slowest
    and the fastest launch. projected: no whole epoch was timed. p50_ms, p90_ms, p99_ms: of the latency at batch size 1.
    inference_batch: images per call in the throughput measurement.

    The following come from the first ok launch. test_accuracy, test_loss: after the last whole epoch, None if there is
    none. curve: (epoch, train accuracy, test accuracy), empty if there is no whole epoch. early_accuracy, images_seen:
    test accuracy after a training within a time budget, and the number of images of that training. They show that the
    network learned, and must not be ranked. None for synthetic data, whole epochs, and a budget of steps.
    """

    cell: Cell
    launches: int
    attempts: int
    images_per_s: float | None = None
    interval: Interval | None = None
    lowest: float | None = None
    highest: float | None = None
    epoch_s: float | None = None
    projected: bool = False
    test_accuracy: float | None = None
    test_loss: float | None = None
    early_accuracy: float | None = None
    images_seen: int | None = None
    curve: tuple[tuple[int, float, float], ...] = ()
    p50_ms: float | None = None
    p50_interval: Interval | None = None
    p90_ms: float | None = None
    p99_ms: float | None = None
    inference_images_per_s: float | None = None
    inference_interval: Interval | None = None
    inference_batch: int | None = None
    cpu_cores: float | None = None
    synthetic: bool = False

    @property
    def key(self) -> str:
        """Return the key of the cell."""
        return self.cell.key

    def speed(self, measure: Measure) -> float | None:
        """Return images/s, or calls/s for the latency. None if it was not measured."""
        if measure is Measure.LATENCY:
            return None if self.p50_ms is None else calls_per_s(self.p50_ms)
        return self.images_per_s if measure is Measure.TRAINING else self.inference_images_per_s


RatioKind = Literal["device", "framework", "lane", "sweep"]

# Kind of ratio, fields that may differ, and the values of `kind` in numerator and denominator.
PAIRS: tuple[tuple[RatioKind, tuple[str, ...], tuple[str, str]], ...] = (
    ("device", ("device", "devices"), ("cuda", "cpu")),
    ("lane", ("lane",), ("tuned", "stock")),
)


@dataclass(frozen=True)
class Ratio:
    """The speed of one cell over that of another one.

    The cells have the same kind of data, and are equal except for the field that `kind` names, or for the one that a
    sweep varies. ratio: geometric mean of the ratios in the rounds in which both were measured, or the quotient of both
    speeds if there is no such round. interval: None for fewer than two such rounds. pairs: the rounds.
    """

    kind: RatioKind
    numerator: CellSummary
    denominator: CellSummary
    ratio: float
    interval: Interval | None
    pairs: Pairs

    @property
    def rounds(self) -> int:
        """Return the number of rounds in which both were measured."""
        return len(self.pairs.ratios)

    @property
    def verdict(self) -> Verdict:
        """Return the verdict on the numerator: a tie if the interval contains 1, unknown if there is no interval."""
        return self.interval.verdict if self.interval else Verdict.UNKNOWN


class ContestState(StrEnum):
    """What a contest shows.

    NAMED: the leader is the fastest. TIE: the leader and another one are equally fast (`Interval.tied`). UNDECIDED: the
    launches differ too much to tell. UNKNOWN: a cell has too few launches for a verdict.
    """

    NAMED = "named"
    TIE = "tie"
    UNDECIDED = "undecided"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Contest:
    """The frameworks that ran the same network in the same way.

    leader: the cell that is named, or else the one with the highest speed. Both can differ if launches failed while the
    machine changed its speed, because ratios come from common rounds. ratios: the leader over each other cell. rivals:
    those of the ratios that do not show the leader ahead with p < 0.05, adjusted by `holm` for all pairs of these
    cells. Several single ratios, each with its own interval, would name one of equal frameworks too often.
    """

    leader: CellSummary
    ratios: tuple[Ratio, ...]
    rivals: tuple[Ratio, ...]

    @property
    def named(self) -> bool:
        """Return whether the data support that the leader is the fastest."""
        return not self.rivals

    @property
    def unknown(self) -> bool:
        """Return whether a cell has too few launches for a verdict."""
        return any(ratio.verdict is Verdict.UNKNOWN for ratio in self.ratios)

    @property
    def ties(self) -> list[Ratio]:
        """Return the ratios over cells that may be as fast as the leader."""
        return [ratio for ratio in self.ratios if ratio.verdict is Verdict.TIE]

    @property
    def state(self) -> ContestState:
        """Return what the contest shows."""
        if self.named:
            return ContestState.NAMED
        if self.unknown:
            return ContestState.UNKNOWN
        tied = [ratio.interval is not None and ratio.interval.tied for ratio in self.ties]
        return ContestState.TIE if tied and all(tied) else ContestState.UNDECIDED

    @property
    def cells(self) -> tuple[CellSummary, ...]:
        """Return all cells, the leader first."""
        return (self.leader, *(ratio.denominator for ratio in self.ratios))

    @property
    def second(self) -> Ratio:
        """Return the ratio of the leader over the second."""
        return min(self.ratios, key=lambda ratio: ratio.ratio)


def contest_noun(networks: Sequence[str]) -> str:
    """Return what contests are about: `network`, or `comparison` if a network has several.

    networks: one for each contest.
    """
    return "network" if len(set(networks)) == len(networks) else "comparison"


def networks_of(found: Iterable[Contest]) -> list[str]:
    """Return the network of each contest."""
    return [contest.leader.cell.network for contest in found]


def too_few(cells: Iterable[CellSummary]) -> str:
    """Return why cells have no verdict, as the end of a sentence."""
    return "in one launch each" if all(cell.launches == 1 for cell in cells) else "with too few common launches"


def summarize(run: Run) -> list[CellSummary]:
    """Return one summary per cell, in the order in which the cells first appear."""
    summaries = []
    for own in run.by_cell.values():
        ok = [record for record in own if record.ok]
        summaries.append(
            CellSummary(
                cell=own[0].cell,
                launches=len(ok),
                attempts=len(own),
                synthetic=any(record.synthetic for record in own),
                **(_numbers(ok) if ok else {}),
            )
        )
    return summaries


def _numbers(records: Sequence[Record]) -> dict[str, Any]:
    """Return the measured fields of a summary. records: the ok launches of the cell, at least one."""
    first = records[0].result
    assert first
    assert first.training
    assert first.inference
    rows = [measured(record) for record in records]
    columns = {name: [row[name] for row in rows if name in row] for name in MEASURED_COLUMNS}
    numbers: dict[str, Any] = {name: statistics.median(found) if found else None for name, found in columns.items()}
    if len(columns["p99_ms"]) < len(rows):  # else it could be below the other percentiles, which come from all launches
        numbers["p99_ms"] = None
    numbers["epoch_s"] = typical(columns["epoch_s"])  # so that it fits images_per_s
    estimated = (
        ("images_per_s", "interval", rates(records, Measure.TRAINING).values()),
        ("inference_images_per_s", "inference_interval", rates(records, Measure.INFERENCE).values()),
        ("p50_ms", "p50_interval", columns["p50_ms"]),
    )
    for name, interval, found in estimated:
        if values := [*found]:
            numbers |= {name: typical(values), interval: cell_interval(values)}
    numbers |= {
        "lowest": min(columns["images_per_s"]),
        "highest": max(columns["images_per_s"]),
        "projected": first.training.projected,
        "inference_batch": first.inference.batch,
    }
    if epochs := first.training.epochs:
        numbers |= {
            "test_accuracy": epochs[-1].test_accuracy,
            "test_loss": epochs[-1].test_loss,
            "curve": tuple((e.index, e.train_accuracy, e.test_accuracy) for e in epochs),
        }
    elif not records[0].synthetic and records[0].request and records[0].request.budget.seconds:
        numbers |= {
            "early_accuracy": first.inference.test_accuracy,
            "images_seen": first.training.steps * records[0].cell.batch,
        }
    return numbers


def ratios(summaries: Sequence[CellSummary], by_round: Mapping[str, Rates], measure: Measure) -> list[Ratio]:
    """Return cuda over cpu and tuned over stock, for all pairs of cells that differ in nothing else.

    by_round: from `rates_by_round`. Each interval is for a single pair.
    """
    return [
        ratio(kind, over, under, by_round, measure)
        for kind, fields, values in PAIRS
        for group in _groups(summaries, fields, measure)
        for over, under in permutations(group, 2)
        if (getattr(over.cell, kind), getattr(under.cell, kind)) == values
    ]


def contests(summaries: Sequence[CellSummary], by_round: Mapping[str, Rates], measure: Measure) -> list[Contest]:
    """Return a contest for each group of at least two cells that differ only in the framework. Arguments: see
    `ratios`."""
    found = []
    for group in _groups(summaries, ("framework",), measure):
        if len(group) < 2:
            continue
        by_speed = sorted(group, key=lambda s: s.speed(measure) or 0.0, reverse=True)
        led = [_contest(leader, [s for s in by_speed if s is not leader], by_round, measure) for leader in by_speed]
        found.append(next((contest for contest in led if contest.named), led[0]))
    return found


def _contest(
    leader: CellSummary, others: Sequence[CellSummary], by_round: Mapping[str, Rates], measure: Measure
) -> Contest:
    ratios = [ratio("framework", leader, other, by_round, measure) for other in others]
    rest = [pair(by_round[one.key], by_round[other.key]) for one, other in combinations(others, 2)]
    of_leader = [pair(by_round[leader.key], by_round[other.key]) for other in others]
    p_values = holm([paired_p_value(pairs.ratios) for pairs in (*of_leader, *rest)])
    ahead = [r.ratio > 1 and p < 1 - CONFIDENCE for r, p in zip(ratios, p_values, strict=False)]
    return Contest(leader, tuple(ratios), tuple(r for r, wins in zip(ratios, ahead, strict=True) if not wins))


def rates_by_round(cells: Mapping[str, Sequence[Record]], measure: Measure) -> dict[str, Rates]:
    """Return the rates of each cell, by its key. cells: see `Run.by_cell`."""
    return {key: rates(own, measure) for key, own in cells.items()}


def _groups(summaries: Sequence[CellSummary], without: Sequence[str], measure: Measure) -> list[list[CellSummary]]:
    """Return groups of measured cells that have the same kind of data and are equal except for these fields."""
    names = [name for name in CELL_COLUMNS if name not in without]
    groups: dict[tuple[object, ...], list[CellSummary]] = {}
    for summary in summaries:
        if not summary.speed(measure):
            continue
        common = (summary.synthetic, *(getattr(summary.cell, name) for name in names))
        groups.setdefault(common, []).append(summary)
    return list(groups.values())


def ratio(
    kind: RatioKind, over: CellSummary, under: CellSummary, by_round: Mapping[str, Rates], measure: Measure
) -> Ratio:
    """Return the ratio of two cells whose speed was measured. by_round: from `rates_by_round`."""
    numerator, denominator = over.speed(measure), under.speed(measure)
    assert numerator
    assert denominator
    pairs = pair(by_round[over.key], by_round[under.key])
    interval = paired_interval(pairs.ratios)
    once = pairs.ratios[0] if pairs.ratios else numerator / denominator
    return Ratio(kind, over, under, interval.estimate if interval else once, interval, pairs)


def short_names(cells: Sequence[Cell]) -> list[str]:
    """Return the keys without the parts that are equal in all cells.

    Lane and precision are left out if all cells are stock and fp32, and the batch size and the loader workers if their
    network has only one number of each.
    """
    lanes = any((cell.lane, cell.precision) != ("stock", "fp32") for cell in cells)
    names = []
    for cell in cells:
        same = [other for other in cells if other.label == cell.label]
        parts = [cell.label, cell.framework, cell.device_label]
        if lanes:
            parts += [cell.lane, cell.precision]
        if len({other.batch for other in same}) > 1:
            parts.append(f"b{cell.batch}")
        if cell.workers is not None and len({other.workers for other in same}) > 1:
            parts.append(f"workers{cell.workers}")
        if cell.hidden_layers is not None:
            parts.append(f"hidden{cell.hidden_layers}")
        names.append("/".join(parts))
    return names


def format_accuracy(summary: CellSummary, missing: str) -> str:
    """Return for example `99.12%` after whole epochs, `93.1% after 40,000 images`, or the text `missing`."""
    if summary.test_accuracy is not None:
        return format_percent(summary.test_accuracy, 2)
    if summary.early_accuracy is None:
        return missing
    return f"{format_percent(summary.early_accuracy, 1)} after {summary.images_seen:,} images"
