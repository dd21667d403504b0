"""The files of a run as types: record, plan, machine. Versioned JSON; older versions are upgraded, newer refused.

A record holds the worker's own request and result unchanged, and beside them what the orchestrator knows: status,
reason, environment, machine, the log's tail. Records and machine name no host, user, home folder, serial or UUID
unless the run was made with `--identify`; the plan repeats what was typed, as the path given to `--env`.
"""

from __future__ import annotations

import dataclasses
from typing import Literal, Self

from pydantic import model_validator

from kit.model.document import Document, Part
from kit.model.machine import Machine
from kit.model.plan import check_settings
from kit.model.plausible import impossible
from scenarios.contract.reasons import Code, Reason, Status
from scenarios.contract.request import Request
from scenarios.contract.result import Result, Tuning


class Image(Part):
    """What a launch ran in: see model.Environment. digest: the image's id, or the hash of the lock or packages."""

    kind: Literal["image", "venv", "system"]
    reference: str
    digest: str
    size_bytes: int | None


class HostSamples(Part):
    """What the host saw of itself while a launch ran. Times are readings of the monotonic clock, which the worker's
    windows share.

    at: when each sample was taken. series: name to one value a sample, None where it could not be read:
    `cpu_busy` and `cpu_steal` (CPUs; all processes), `cpu_mhz` (mean over up to 16 cores, every fourth sample),
    `cpu_energy_j` (RAPL, all packages, a counter that never falls); for each GPU of the launch, `gpu0_` (NVML's index,
    as in Machine.gpus) and then `use` (0 to 1), `memory_gib`, `power_w`, `energy_j` (a counter), `temperature_c`,
    `sm_mhz`, `other_processes` (that compute and are not of this launch), and, 0 or 1, why its clocks are low:
    `sw_power_cap`, `hw_slowdown`, `sw_thermal`, `hw_thermal`, `hw_power_brake`.
    core_busy: mean share of time for which each logical CPU was busy, in the order of their numbers. cost_s: CPU time
    that sampling itself took.
    """

    at: list[float]
    series: dict[str, list[float | None]]
    core_busy: list[float]
    cost_s: float

    @model_validator(mode="after")
    def _one_value_a_sample(self) -> Self:
        if any(len(values) != len(self.at) for values in self.series.values()):
            raise ValueError("a series is not as long as the list of its samples' times")
        if sorted(self.at) != self.at:
            raise ValueError("its samples are not in the order of time")
        return self


class Record(Document):
    """All that is known of one launch. result is None where the worker left none. profile: its name. data: what the
    launch was given, and why (`data_note`). started_at: UTC, ISO 8601, to the second. seconds: of the process.
    host_samples: None where the launch never ran."""

    key: str
    launch: int
    status: Status
    reason: Reason | None
    request: Request
    result: Result | None
    machine: Machine
    image: Image | None
    engine: str
    profile: str
    data_note: str
    started_at: str
    seconds: float
    warnings: list[str]
    log_tail: str
    host_samples: HostSamples | None = None

    @model_validator(mode="after")
    def _ok_has_all_parts(self) -> Self:
        """Reports lean on it, so that a record edited by hand must not lack them, nor hold a speed of no machine."""
        if self.status is not Status.OK:
            return self
        absent = self.result.missing(self.request.purpose) if self.result else ["a result"]
        if absent or self.result is None:
            raise ValueError(f"it is ok, but lacks {', '.join(absent)}")
        if self.result.status is not Status.OK or (self.result.proof and not self.result.proof.passed):
            raise ValueError("it is ok, but its result or its proof is not")
        if min(self.launch, self.request.batch, self.request.devices, self.request.working_threads) < 1:
            raise ValueError("it is ok, but of no launch, batch, device or thread")
        if self.result.tuning:
            check_settings(self.result.tuning.settings)
        if wrong := impossible(dataclasses.asdict(self.result)):
            raise ValueError(f"it is ok, but tells of {', '.join(wrong)}")
        return self


def reason(code: Code, message: str, remedy: str) -> Reason:
    """Short for `Reason`, in one line of text each."""
    return Reason(code, " ".join(message.split()), " ".join(remedy.split()))


def tuning_of(record: Record) -> Tuning:
    """What a search found. For records of searches that ended ok."""
    assert record.status is Status.OK
    assert record.result is not None
    assert record.result.tuning is not None
    return record.result.tuning
