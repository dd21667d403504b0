"""Define a run as it was read from its folder, and its launches as one table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field, fields
from functools import cached_property
from typing import TYPE_CHECKING

from kit.model.machine import Machine
from kit.model.plan import Plan, PlannedLaunch
from kit.model.record import Record
from scenarios.contract.cell import Cell
from scenarios.contract.result import MIN_P99_SAMPLES

if TYPE_CHECKING:
    import pandas as pd

CELL_COLUMNS = [each.name for each in fields(Cell)]
MEASURED_COLUMNS = ["images_per_s", "epoch_s", "inference_images_per_s", "p50_ms", "p90_ms", "p99_ms", "cpu_cores"]
COLUMNS = ["key", *CELL_COLUMNS, "launch", "status", "synthetic", *MEASURED_COLUMNS]


@dataclass(frozen=True)
class UnusableFile:
    """A file in the folder of records that is damaged, misplaced, or written by a newer kit.

    file: its path in the run's folder. error, remedy: one or two sentences each. launch: the planned launch to which
    its name belongs, or None.
    """

    file: str
    error: str
    remedy: str
    launch: PlannedLaunch | None = None


@dataclass(frozen=True)
class Run:
    """A run as it was read from its folder.

    records: of the cells, sorted by key and launch. probes: records of the probes of the machine's ceilings. tunings:
    records of the searches for settings. unusable: files that could not be read as records. pictures: JPEG files by
    their SHA-256, those of records that are there and unchanged.
    """

    plan: Plan
    machine: Machine
    records: Sequence[Record]
    probes: Sequence[Record] = ()
    tunings: Sequence[Record] = ()
    unusable: Sequence[UnusableFile] = ()
    pictures: Mapping[str, bytes] = field(default_factory=dict)

    @cached_property
    def not_run(self) -> list[str]:
        """Return the planned launches without a record as `key #launch`, in the order of the plan."""
        done = {(record.key, record.launch) for record in self.records}
        done |= {(found.launch.key, found.launch.launch) for found in self.unusable if found.launch}
        return [f"{p.key} #{p.launch}" for p in self.plan.launches if (p.key, p.launch) not in done]

    @cached_property
    def by_cell(self) -> dict[str, list[Record]]:
        """Return the records of each cell, by its key, in the order in which the cells first appear."""
        found: dict[str, list[Record]] = {}
        for record in self.records:
            found.setdefault(record.key, []).append(record)
        return found

    def frame(self) -> pd.DataFrame:
        """Return a tidy table with one row per record of a cell.

        | Column | Content |
        |---|---|
        | key | key of the cell |
        | scenario, variant, framework, device, devices, lane, precision, batch | fields of the cell |
        | launch | number of the launch, from 1 |
        | status | how the launch ended, see `scenarios.contract.reasons.Status` |
        | synthetic | whether the launch used synthetic data |
        | images_per_s | training speed, images/s; this and the following columns are NaN unless the launch is `ok` |
        | epoch_s | time of one training epoch, s |
        | inference_images_per_s | inference speed at a large batch size, images/s |
        | p50_ms, p90_ms, p99_ms | percentiles of the latency at batch size 1, ms; p99_ms is NaN for too few calls |
        | cpu_cores | mean number of busy CPU cores while training |
        """
        import pandas as pd  # takes half a second, which `kit --help` and `kit plan` do not need

        rows: list[dict[str, object]] = []
        for record in self.records:
            row = {"key": record.key, **dict(zip(CELL_COLUMNS, astuple(record.cell), strict=True))}
            row |= {"launch": record.launch, "status": str(record.status), "synthetic": record.synthetic}
            row |= measured(record)
            rows.append(row)
        return pd.DataFrame(rows, columns=COLUMNS)


def measured(record: Record) -> dict[str, float]:
    """Return the measured columns of a record that have a value, none unless the launch is `ok`. See `Run.frame`."""
    result = record.result
    if not (record.ok and result and result.training and result.inference and result.telemetry):
        return {}
    training, inference = result.training, result.inference
    found = {
        "images_per_s": training.images_per_s,
        "epoch_s": training.epoch_s,
        "inference_images_per_s": inference.images_per_s,
        "p50_ms": inference.p50_ms,
        "p90_ms": inference.p90_ms,
        "cpu_cores": result.telemetry.cpu_cores,
    }
    if inference.p99_ms is not None and len(inference.latency_ms) >= MIN_P99_SAMPLES:
        found["p99_ms"] = inference.p99_ms
    return found
