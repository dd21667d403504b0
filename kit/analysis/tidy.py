"""Make tidy tables of a run for other programs: one row per launch or per cell. No input or output.

Here is the only definition of the columns. `docs/exports.md` is generated from it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from kit.analysis.intervals import Interval
from kit.analysis.summaries import CellSummary, summarize
from kit.model.formatting import printable
from kit.model.run import Run, measured
from scenarios.contract.cell import Cell
from scenarios.contract.reasons import Status

if TYPE_CHECKING:
    import pandas as pd

    from kit.model.record import Record

Value = str | int | float | bool | None


class Kind(StrEnum):
    """The kind of the values of a column. All kinds except TEXT may be missing."""

    TEXT = "text"
    WHOLE = "whole number"
    NUMBER = "number"
    FLAG = "true or false"


# The types of pandas that have missing values.
DTYPES: Mapping[Kind, str] = {
    Kind.TEXT: "string",
    Kind.WHOLE: "Int64",
    Kind.NUMBER: "Float64",
    Kind.FLAG: "boolean",
}


@dataclass(frozen=True)
class Column:
    """A column of a tidy table.

    unit: "" if it has none. text: what a value means, without a period. title: header in a table for people, "" if only
    programs get the column.
    """

    name: str
    kind: Kind
    text: str
    unit: str = ""
    title: str = ""


OF_RUN = (
    Column("run", Kind.TEXT, "id of the run"),
    Column("machine", Kind.TEXT, "CPU model, number of usable CPUs, and GPUs"),
    Column("profile", Kind.TEXT, "profile of the run"),
)
OF_CELL = (
    Column("cell", Kind.TEXT, "key of the cell", title="Cell"),
    Column("scenario", Kind.TEXT, "name of the scenario"),
    Column("variant", Kind.TEXT, "name of the variant, empty for the default one"),
    Column("framework", Kind.TEXT, "name of the framework"),
    Column("device", Kind.TEXT, "`cpu` or `cuda`"),
    Column("devices", Kind.WHOLE, "number of devices"),
    Column("lane", Kind.TEXT, "`stock` or `tuned`"),
    Column("precision", Kind.TEXT, "`fp32`, `tf32` or `bf16`"),
    Column("batch", Kind.WHOLE, "batch size in training", "images"),
    Column("workers", Kind.WHOLE, "requested loader workers, missing for the framework's own number"),
    Column("hidden_layers", Kind.WHOLE, "requested hidden layers, missing for the scenario's own number"),
)
SYNTHETIC = Column("synthetic", Kind.FLAG, "whether the data was synthetic", title="Synthetic data")
LAUNCHES = (
    *OF_RUN,
    *OF_CELL,
    Column("launch", Kind.WHOLE, "number of the launch, which is its round, from 1", title="Launch"),
    Column("status", Kind.TEXT, "`ok`, or how the launch ended otherwise", title="Status"),
    Column("reason", Kind.TEXT, "why the launch is not `ok`, empty if it is"),
    Column("started_at", Kind.TEXT, "when the launch started, UTC, ISO 8601"),
    Column("duration_s", Kind.NUMBER, "duration of the process", "s"),
    SYNTHETIC,
    Column("images_per_s", Kind.NUMBER, "training speed in the steady state", "images/s", "Training, images/s"),
    Column("epoch_s", Kind.NUMBER, "time of one training epoch of the published data set", "s", "Epoch, s"),
    Column("inference_images_per_s", Kind.NUMBER, "inference at a large batch size", "images/s", "Inference, images/s"),
    Column("p50_ms", Kind.NUMBER, "median latency of a call with one image", "ms", "Latency, ms"),
    Column("p90_ms", Kind.NUMBER, "90th percentile of this latency", "ms"),
    Column("p99_ms", Kind.NUMBER, "99th percentile of this latency, missing for too few calls", "ms"),
    Column("cpu_cores", Kind.NUMBER, "mean number of busy CPU cores in training", "cores"),
)
CELLS = (
    *OF_RUN,
    *OF_CELL,
    Column("launches", Kind.WHOLE, "number of launches", title="Launches"),
    Column("launches_ok", Kind.WHOLE, "number of launches that are `ok`", title="ok"),
    Column("status", Kind.TEXT, "`ok` if a launch is, or how the last one ended", title="Status"),
    SYNTHETIC,
    Column("images_per_s", Kind.NUMBER, "training speed in the steady state", "images/s", "Training, images/s"),
    Column("images_per_s_low", Kind.NUMBER, "low end of its 95% interval", "images/s", "low"),
    Column("images_per_s_high", Kind.NUMBER, "high end of its 95% interval", "images/s", "high"),
    Column("epoch_s", Kind.NUMBER, "time of one training epoch of the published data set", "s", "Epoch, s"),
    Column("epoch_projected", Kind.FLAG, "whether this time is computed from the speed, not measured"),
    Column("test_accuracy", Kind.NUMBER, "test accuracy after the last whole epoch, 0 to 1", title="Accuracy"),
    Column("inference_images_per_s", Kind.NUMBER, "inference at a large batch size", "images/s", "Inference, images/s"),
    Column("inference_images_per_s_low", Kind.NUMBER, "low end of its 95% interval", "images/s"),
    Column("inference_images_per_s_high", Kind.NUMBER, "high end of its 95% interval", "images/s"),
    Column("inference_batch", Kind.WHOLE, "this batch size", "images"),
    Column("p50_ms", Kind.NUMBER, "median latency of a call with one image", "ms", "Latency, ms"),
    Column("p50_ms_low", Kind.NUMBER, "low end of its 95% interval", "ms"),
    Column("p50_ms_high", Kind.NUMBER, "high end of its 95% interval", "ms"),
    Column("p90_ms", Kind.NUMBER, "90th percentile of this latency", "ms"),
    Column("p99_ms", Kind.NUMBER, "99th percentile of this latency, missing for too few calls", "ms"),
    Column("cpu_cores", Kind.NUMBER, "mean number of busy CPU cores in training", "cores"),
)


@dataclass(frozen=True)
class TidyTable:
    """Rows with one value per column. A missing value is None. No number is infinite or NaN."""

    columns: tuple[Column, ...]
    rows: list[tuple[Value, ...]]

    def frame(self) -> pd.DataFrame:
        """Return the table for pandas, with types that have missing values."""
        import pandas as pd  # takes half a second

        frame = pd.DataFrame(self.rows, columns=[column.name for column in self.columns], dtype=object)
        return frame.astype({column.name: DTYPES[column.kind] for column in self.columns})


def launch_table(run: Run) -> TidyTable:
    """Return one row per record of a cell. Measured values are missing unless the launch is `ok`."""
    rows = (
        {
            "launch": record.launch,
            "status": str(record.status),
            "reason": record.reason.message if record.reason else "",
            "started_at": record.started_at,
            "duration_s": record.seconds,
            "synthetic": record.synthetic,
            **_of_cell(record.cell),
            **measured(record),
        }
        for record in run.records
    )
    return _table(LAUNCHES, run, rows)


def cell_table(run: Run) -> TidyTable:
    """Return one row per cell. Numbers are medians over its launches that are `ok`, and missing if there is none."""
    return _table(CELLS, run, (_of_summary(each, run.by_cell[each.key]) for each in summarize(run)))


def _of_summary(summary: CellSummary, records: Sequence[Record]) -> dict[str, Value]:
    """Return the values of a row. records: of the cell, at least one."""
    return {
        **{name: value for name, value in vars(summary).items() if isinstance(value, int | float)},
        **_of_cell(summary.cell),
        "launches": summary.attempts,
        "launches_ok": summary.launches,
        "status": str(Status.OK if summary.launches else records[-1].status),
        "epoch_projected": summary.projected if summary.epoch_s else None,
        **_ends("images_per_s", summary.interval),
        **_ends("inference_images_per_s", summary.inference_interval),
        **_ends("p50_ms", summary.p50_interval),
    }


def _of_cell(cell: Cell) -> dict[str, Value]:
    return {"cell": cell.key, **asdict(cell)}


def _ends(name: str, interval: Interval | None) -> dict[str, Value]:
    return {f"{name}_low": interval.low, f"{name}_high": interval.high} if interval else {}


def _table(columns: Sequence[Column], run: Run, rows: Iterable[Mapping[str, Value]]) -> TidyTable:
    common = {"run": run.plan.run, "machine": run.machine.description, "profile": run.plan.profile}
    return TidyTable(
        tuple(columns), [tuple(_value({**common, **row}.get(column.name)) for column in columns) for row in rows]
    )


def _value(value: Value) -> Value:
    """Return a value for every format. A text may come from the record of a stranger, and control a terminal."""
    if isinstance(value, str):
        return printable(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value
