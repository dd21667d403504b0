"""From records to what may be said about cells: estimates with intervals, and ratios. Pure: no input, no output.

The unit of statistics is the launch, never a window of one launch; intervals are those of `kit.intervals`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

from kit.analysis.intervals import Interval, cell_interval, ratio_interval
from kit.model.record import Record
from scenarios.contract.reasons import Status

CELL = ["scenario", "variant", "framework", "device", "devices", "lane", "precision", "batch"]
MEASURED = ["images_per_s", "epoch_s", "inference_images_per_s", "p50_ms", "p90_ms", "p99_ms", "cpu_cores"]


@dataclass(frozen=True)
class CellSummary:
    """What the `ok` launches of one cell say. Numbers are medians over launches, except for images_per_s, the estimate
    of `interval` (a geometric mean); None where no launch is ok.

    launches: ok launches. interval: of training images/s, None where there is one launch only. lowest, highest:
    images/s of the slowest and fastest launch. projected: no whole epoch was timed. Of the first ok launch, None or
    empty unless it trained whole epochs: test_accuracy, test_loss, after the last one; curve: (epoch, train accuracy,
    test accuracy). inference_batch: images a call in the throughput figure.
    """

    key: str
    scenario: str
    variant: str
    framework: str
    device: str
    devices: int
    lane: str
    precision: str
    batch: int
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
    curve: tuple[tuple[int, float, float], ...] = ()
    p50_ms: float | None = None
    p90_ms: float | None = None
    p99_ms: float | None = None
    inference_images_per_s: float | None = None
    inference_batch: int | None = None
    cpu_cores: float | None = None
    synthetic: bool = False

    @property
    def label(self) -> str:
        """`scenario` or `scenario+variant`."""
        return f"{self.scenario}+{self.variant}" if self.variant else self.scenario


RatioKind = Literal["device", "framework", "lane"]
Verdict = Literal["faster", "slower", "tie", "unknown"]


@dataclass(frozen=True)
class Ratio:
    """Training images/s of one cell over those of another that is equal in all but what `kind` names, and was measured
    on the same kind of data. interval: None where either cell has one launch only."""

    kind: RatioKind
    numerator: CellSummary
    denominator: CellSummary
    ratio: float
    interval: Interval | None

    @property
    def verdict(self) -> Verdict:
        """Of the numerator: a tie where the interval includes 1, unknown where there is none."""
        return self.interval.verdict if self.interval else "unknown"


def frame(records: Sequence[Record]) -> pd.DataFrame:
    """One row a launch: the cell's fields, status, data kind and, where it is ok, the measured numbers."""
    rows = []
    for record in records:
        request, result = record.request, record.result
        row: dict[str, object] = {name: getattr(request, name) for name in CELL}
        row |= {"key": record.key, "launch": record.launch, "status": str(record.status), "data": request.data}
        if record.status is Status.OK and result and result.training and result.inference and result.telemetry:
            training, inference = result.training, result.inference
            row |= {
                "images_per_s": training.images_per_s,
                "epoch_s": training.epoch_s,
                "inference_images_per_s": inference.images_per_s,
                "p50_ms": inference.p50_ms,
                "p90_ms": inference.p90_ms,
                "p99_ms": inference.p99_ms,
                "cpu_cores": result.telemetry.cpu_cores,
            }
        rows.append(row)
    return pd.DataFrame(rows, columns=["key", "launch", *CELL, "status", "data", *MEASURED])


def speeds(records: Sequence[Record]) -> list[float]:
    """Training images/s of the ok launches of one cell, in the order of their numbers."""
    ok = sorted((record for record in records if record.status is Status.OK), key=lambda record: record.launch)
    return [record.result.training.images_per_s for record in ok if record.result and record.result.training]


def summarise(records: Sequence[Record]) -> list[CellSummary]:
    """One summary a cell, in the order in which cells first appear."""
    summaries = []
    for key, launches in frame(records).groupby("key", sort=False):
        ok = launches[launches["status"] == Status.OK]
        cell = {name: launches.iloc[0][name] for name in CELL}
        ok_records = [r for r in records if r.key == key and r.status is Status.OK]
        summaries.append(
            CellSummary(
                key=str(key),
                scenario=str(cell["scenario"]),
                variant=str(cell["variant"]),
                framework=str(cell["framework"]),
                device=str(cell["device"]),
                devices=int(cell["devices"]),
                lane=str(cell["lane"]),
                precision=str(cell["precision"]),
                batch=int(cell["batch"]),
                launches=len(ok),
                attempts=len(launches),
                synthetic=bool((launches["data"] == "synthetic").any()),
                **(_numbers(ok, ok_records) if ok_records else {}),
            )
        )
    return summaries


def _numbers(ok: pd.DataFrame, records: Sequence[Record]) -> dict[str, Any]:
    """The measured fields of a summary with at least one ok launch. ok, records: of these launches."""
    first = records[0]
    assert first.result
    assert first.result.training
    assert first.result.inference
    numbers: dict[str, Any] = {name: float(ok[name].median()) for name in MEASURED}
    if interval := cell_interval(speeds(records)):
        numbers |= {"images_per_s": interval.estimate, "interval": interval}
    numbers |= {"lowest": float(ok["images_per_s"].min()), "highest": float(ok["images_per_s"].max())}
    numbers |= {
        "projected": first.result.training.projected,
        "inference_batch": first.result.inference.batch,
    }
    if epochs := first.result.training.epochs:
        numbers |= {
            "test_accuracy": epochs[-1].test_accuracy,
            "test_loss": epochs[-1].test_loss,
            "curve": tuple((e.index, e.train_accuracy, e.test_accuracy) for e in epochs),
        }
    return numbers


def ratios(summaries: Sequence[CellSummary], records: Sequence[Record]) -> list[Ratio]:
    """Every pair of cells worth comparing: cuda over cpu, tuned over stock, and in each group of cells that differ in
    the framework alone the fastest over each of the others. records: those that were summarised.

    Each interval is that of one pair. Which framework is the fastest is seen from the same launches, so among three
    that are equal it is called faster than some other more often than in one case of forty.
    """
    measured = [summary for summary in summaries if summary.images_per_s]
    pairs: list[tuple[RatioKind, CellSummary, CellSummary]] = []
    for group in _groups(measured, without=("device", "devices")):
        pairs += [("device", cuda, cpu) for cuda, cpu in _across(group, lambda s: s.device, "cuda", "cpu")]
    for group in _groups(measured, without=("lane",)):
        pairs += [("lane", tuned, stock) for tuned, stock in _across(group, lambda s: s.lane, "tuned", "stock")]
    for group in _groups(measured, without=("framework",)):
        fastest = max(group, key=lambda s: s.images_per_s or 0.0)
        pairs += [("framework", fastest, other) for other in group if other is not fastest]
    launches: dict[str, list[Record]] = {}
    for record in records:
        launches.setdefault(record.key, []).append(record)
    return [_ratio(kind, over, under, launches) for kind, over, under in pairs]


def _groups(summaries: Sequence[CellSummary], without: Sequence[str]) -> list[list[CellSummary]]:
    """Cells that are equal in everything but these fields, and in the kind of data."""
    names = [name for name in (*CELL, "synthetic") if name not in without]
    groups: dict[tuple[object, ...], list[CellSummary]] = {}
    for summary in summaries:
        groups.setdefault(tuple(getattr(summary, name) for name in names), []).append(summary)
    return list(groups.values())


def _across(
    group: Sequence[CellSummary], value_of: Callable[[CellSummary], str], over: str, under: str
) -> Iterator[tuple[CellSummary, CellSummary]]:
    """All pairs of a cell that has the one value and a cell that has the other."""
    for numerator in group:
        for denominator in group:
            if value_of(numerator) == over and value_of(denominator) == under:
                yield numerator, denominator


def _ratio(kind: RatioKind, over: CellSummary, under: CellSummary, launches: dict[str, list[Record]]) -> Ratio:
    assert over.images_per_s
    assert under.images_per_s
    interval = ratio_interval(speeds(launches[over.key]), speeds(launches[under.key]))
    return Ratio(kind, over, under, over.images_per_s / under.images_per_s, interval)


def short_names(summaries: Sequence[CellSummary]) -> list[str]:
    """Keys without the parts that say nothing here: lane and precision where all cells have the usual ones, the batch
    size where a scenario has only one."""

    def varies(value: Callable[[CellSummary], object], within: Sequence[CellSummary]) -> bool:
        return len({value(summary) for summary in within}) > 1

    lanes = any((s.lane, s.precision) != ("stock", "fp32") for s in summaries)
    names = []
    for summary in summaries:
        device = summary.device if summary.devices == 1 else f"{summary.device}x{summary.devices}"
        parts = [summary.label, summary.framework, device]
        if lanes:
            parts += [summary.lane, summary.precision]
        if varies(lambda s: s.batch, [s for s in summaries if s.label == summary.label]):
            parts.append(f"b{summary.batch}")
        names.append("/".join(parts))
    return names
