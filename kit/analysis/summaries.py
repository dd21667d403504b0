"""Summarize records into cells and ratios, with intervals. No input or output.

The unit of statistics is the launch, never a window of one launch. `kit.analysis.intervals` computes the intervals.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import TYPE_CHECKING, Any, Literal

from kit.analysis.intervals import Interval, Verdict, cell_interval, ratio_interval
from kit.model.formatting import format_percent
from kit.model.record import Record
from kit.model.run import CELL_COLUMNS, MEASURED_COLUMNS, Run
from scenarios.contract.cell import Cell
from scenarios.contract.reasons import Status

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class CellSummary:
    """The results of one cell over its `ok` launches, None if no launch is ok.

    Numbers are medians over launches, except images_per_s: it is the estimate of `interval`, a geometric mean.

    launches: number of ok launches. attempts: number of all launches. interval: of the training images/s, None if there
    is only one launch. lowest, highest: images/s of the slowest and the fastest launch. projected: no whole epoch was
    timed. inference_batch: images per call in the throughput measurement.

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
    p90_ms: float | None = None
    p99_ms: float | None = None
    inference_images_per_s: float | None = None
    inference_batch: int | None = None
    cpu_cores: float | None = None
    synthetic: bool = False

    @property
    def key(self) -> str:
        """Return the key of the cell."""
        return self.cell.key


RatioKind = Literal["device", "framework", "lane"]

# Kind of ratio, fields that may differ, and the values of `kind` in numerator and denominator.
PAIRS: tuple[tuple[RatioKind, tuple[str, ...], tuple[str, str]], ...] = (
    ("device", ("device", "devices"), ("cuda", "cpu")),
    ("lane", ("lane",), ("tuned", "stock")),
)


@dataclass(frozen=True)
class Ratio:
    """The training images/s of one cell over those of another one.

    The cells have the same kind of data, and are equal except for the field that `kind` names. interval: None if either
    cell has only one launch.
    """

    kind: RatioKind
    numerator: CellSummary
    denominator: CellSummary
    ratio: float
    interval: Interval | None

    @property
    def verdict(self) -> Verdict:
        """Return the verdict on the numerator: a tie if the interval contains 1, unknown if there is no interval."""
        return self.interval.verdict if self.interval else Verdict.UNKNOWN


def speeds(records: Sequence[Record]) -> list[float]:
    """Return the training images/s of the ok launches of one cell, in the order of their numbers."""
    ok = sorted((record for record in records if record.ok), key=lambda record: record.launch)
    return [record.result.training.images_per_s for record in ok if record.result and record.result.training]


def summarize(run: Run) -> list[CellSummary]:
    """Return one summary per cell, in the order in which the cells first appear."""
    summaries = []
    for key, launches in run.frame().groupby("key", sort=False):
        own = [record for record in run.records if record.key == key]
        ok = [record for record in own if record.ok]
        summaries.append(
            CellSummary(
                cell=own[0].cell,
                launches=len(ok),
                attempts=len(own),
                synthetic=bool(launches["synthetic"].any()),
                **(_numbers(launches[launches["status"] == Status.OK], ok) if ok else {}),
            )
        )
    return summaries


def _numbers(ok: pd.DataFrame, records: Sequence[Record]) -> dict[str, Any]:
    """Return the measured fields of a summary. ok, records: the ok launches of the cell, at least one."""
    first = records[0].result
    assert first
    assert first.training
    assert first.inference
    medians = {name: float(ok[name].median()) for name in MEASURED_COLUMNS}
    numbers: dict[str, Any] = {name: None if math.isnan(value) else value for name, value in medians.items()}
    if interval := cell_interval(speeds(records)):
        numbers |= {"images_per_s": interval.estimate, "interval": interval}
    numbers |= {
        "lowest": float(ok["images_per_s"].min()),
        "highest": float(ok["images_per_s"].max()),
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


def ratios(summaries: Sequence[CellSummary], records: Sequence[Record]) -> list[Ratio]:
    """Return the ratio of every pair of cells worth comparing.

    The pairs are cuda over cpu, tuned over stock, and for cells that differ only in the framework the fastest one over
    each other one. records: those of the summaries.

    Each interval is for a single pair. The fastest framework is chosen from the same launches. So among three equal
    frameworks it is called faster than another one in more than one of forty cases.
    """
    measured = [summary for summary in summaries if summary.images_per_s]
    pairs: list[tuple[RatioKind, CellSummary, CellSummary]] = []
    for kind, fields, values in PAIRS:
        for group in _groups(measured, fields):
            pairs += [
                (kind, over, under)
                for over, under in permutations(group, 2)
                if (getattr(over.cell, kind), getattr(under.cell, kind)) == values
            ]
    for group in _groups(measured, ("framework",)):
        fastest = max(group, key=lambda s: s.images_per_s or 0.0)
        pairs += [("framework", fastest, other) for other in group if other is not fastest]
    launches = {summary.key: speeds([r for r in records if r.key == summary.key]) for summary in measured}
    return [_ratio(kind, over, under, launches) for kind, over, under in pairs]


def _groups(summaries: Sequence[CellSummary], without: Sequence[str]) -> list[list[CellSummary]]:
    """Return groups of cells that have the same kind of data and are equal except for these fields."""
    names = [name for name in CELL_COLUMNS if name not in without]
    groups: dict[tuple[object, ...], list[CellSummary]] = {}
    for summary in summaries:
        common = (summary.synthetic, *(getattr(summary.cell, name) for name in names))
        groups.setdefault(common, []).append(summary)
    return list(groups.values())


def _ratio(kind: RatioKind, over: CellSummary, under: CellSummary, launches: dict[str, list[float]]) -> Ratio:
    assert over.images_per_s
    assert under.images_per_s
    interval = ratio_interval(launches[over.key], launches[under.key])
    return Ratio(kind, over, under, over.images_per_s / under.images_per_s, interval)


def short_names(cells: Sequence[Cell]) -> list[str]:
    """Return the keys without the parts that are equal in all cells.

    Lane and precision are left out if all cells are stock and fp32, and the batch size if its scenario has only one.
    """
    lanes = any((cell.lane, cell.precision) != ("stock", "fp32") for cell in cells)
    names = []
    for cell in cells:
        parts = [cell.label, cell.framework, cell.device_label]
        if lanes:
            parts += [cell.lane, cell.precision]
        if len({other.batch for other in cells if other.label == cell.label}) > 1:
            parts.append(f"b{cell.batch}")
        names.append("/".join(parts))
    return names


def format_accuracy(summary: CellSummary, missing: str) -> str:
    """Return for example `99.12 %` after whole epochs, `93.1 % after 40,000 images`, or the text `missing`."""
    if summary.test_accuracy is not None:
        return format_percent(summary.test_accuracy, 2)
    if summary.early_accuracy is None:
        return missing
    return f"{format_percent(summary.early_accuracy, 1)} after {summary.images_seen:,} images"
