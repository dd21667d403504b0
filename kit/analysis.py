"""From records to what may be said about cells: estimates over launches, speedups. Pure: no input, no output.

The unit of statistics is the launch, never a window of one launch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from kit.records import Record
from scenarios.contract import Status

CELL = ["scenario", "variant", "framework", "device", "devices", "lane", "precision", "batch"]
MEASURED = ["images_per_s", "epoch_s", "inference_images_per_s", "p50_ms", "p90_ms", "p99_ms", "cpu_cores"]


@dataclass(frozen=True)
class CellSummary:
    """What the `ok` launches of one cell say. Numbers are medians over launches; None where no launch is ok.

    launches: ok launches. lowest, highest: images/s of the slowest and fastest launch. projected: no whole epoch
    was timed. test_accuracy, test_loss: after the last epoch, None unless whole epochs were trained. curve: (epoch,
    train accuracy, test accuracy) of the first ok launch. inference_batch: images a call in the throughput figure.
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


@dataclass(frozen=True)
class Speedup:
    """Training images/s of a cuda cell over those of the cpu cell that is equal in all else. launches: the smaller
    number of ok launches; with one there is no interval and the ratio is no more than a first look."""

    cpu: CellSummary
    cuda: CellSummary
    ratio: float
    launches: int


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


def summarise(records: Sequence[Record]) -> list[CellSummary]:
    """One summary a cell, in the order in which cells first appear."""
    summaries = []
    for key, launches in frame(records).groupby("key", sort=False):
        ok = launches[launches["status"] == Status.OK]
        cell = {name: launches.iloc[0][name] for name in CELL}
        whole = next((r for r in records if r.key == key and r.status is Status.OK), None)
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
                **(_numbers(ok, whole) if whole else {}),
            )
        )
    return summaries


def _numbers(ok: pd.DataFrame, first: Record) -> dict[str, Any]:
    """The measured fields of a summary with at least one ok launch."""
    assert first.result
    assert first.result.training
    assert first.result.inference
    numbers: dict[str, Any] = {name: float(ok[name].median()) for name in MEASURED}
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


def speedups(summaries: Sequence[CellSummary]) -> list[Speedup]:
    """CPU against CUDA for every pair of cells that both were measured, on the same kind of data."""
    found = []
    for cuda in summaries:
        if cuda.device != "cuda" or cuda.images_per_s is None:
            continue
        for cpu in summaries:
            same = all(
                getattr(cpu, name) == getattr(cuda, name)
                for name in ("scenario", "variant", "framework", "lane", "precision", "batch", "synthetic")
            )
            if same and cpu.device == "cpu" and cpu.images_per_s:
                ratio = cuda.images_per_s / cpu.images_per_s
                found.append(Speedup(cpu, cuda, ratio, min(cpu.launches, cuda.launches)))
    return found
