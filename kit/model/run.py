"""Define a run as it was read from its folder, and the numbers that each of its launches measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property

from kit.model.machine import Machine
from kit.model.plan import Plan, PlannedLaunch
from kit.model.record import Record
from scenarios.contract.cell import Cell
from scenarios.contract.result import MIN_P99_SAMPLES

CELL_COLUMNS = [each.name for each in fields(Cell)]
MEASURED_COLUMNS = ["images_per_s", "epoch_s", "inference_images_per_s", "p50_ms", "p90_ms", "p99_ms", "cpu_cores"]


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
    def not_run(self) -> list[PlannedLaunch]:
        """Return the planned launches without a record, in the order of the plan."""
        done = {(record.key, record.launch) for record in self.records}
        done |= {(found.launch.key, found.launch.launch) for found in self.unusable if found.launch}
        return [planned for planned in self.plan.launches if (planned.key, planned.launch) not in done]

    @cached_property
    def by_cell(self) -> dict[str, list[Record]]:
        """Return the records of each cell, by its key, in the order in which the cells first appear."""
        found: dict[str, list[Record]] = {}
        for record in self.records:
            found.setdefault(record.key, []).append(record)
        return found


def measured(record: Record) -> dict[str, float]:
    """Return the measured columns of a record that have a value, none unless the launch is `ok`.

    `LAUNCHES` in `kit.analysis.tidy` says what they are.
    """
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
