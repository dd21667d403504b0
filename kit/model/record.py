"""Define the record: everything known about one launch."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, PositiveInt, model_validator

from kit.model.document import Contract, Document, Items, Part
from kit.model.machine import Machine
from scenarios.contract.cell import Cell
from scenarios.contract.ranges import MAX_TIME
from scenarios.contract.reasons import Reason, Status
from scenarios.contract.request import RECORDED, Purpose, Request
from scenarios.contract.result import Result, Tuning

MAX_SAMPLE = 1e15  # larger than any energy, power, clock or memory; sums and differences stay finite

Seconds = Annotated[float, Field(ge=0, le=MAX_TIME)]
Sample = Annotated[float, Field(ge=-MAX_SAMPLE, le=MAX_SAMPLE)]


class Image(Part):
    """The environment in which a launch ran. See `kit.model.environment.Environment`.

    digest: the id of the image, or a hash over the lock or the installed packages.
    """

    kind: Literal["image", "venv", "system"]
    reference: str
    digest: str
    size_bytes: int | None


class HostSamples(Part):
    """What the host measured about itself while a launch ran. Times use the same monotonic clock as the worker.

    at: time of each sample. series: name to one value per sample; None if it could not be read. The names are
    `cpu_busy` and `cpu_steal` (number of CPUs, all processes), `cpu_mhz` (mean over up to 16 cores, in every fourth
    sample), `cpu_energy_j` (RAPL, all packages, a counter that never falls). Each GPU of the launch has the prefix
    `gpu0_` (NVML's index, as in Machine.gpus) and `use` (0 to 1), `memory_gib`, `power_w`, `energy_j` (a counter),
    `temperature_c`, `sm_mhz`, `other_processes` (compute processes outside the launch), and the reasons for low clocks
    (0 or 1): `sw_power_cap`, `hw_slowdown`, `sw_thermal`, `hw_thermal`, `hw_power_brake`. core_busy: mean share of time
    for which each logical CPU was busy, in the order of their numbers. cost_s: CPU time of the sampling itself.
    """

    at: Items[Seconds]
    series: dict[str, Items[Sample | None]]
    core_busy: Items[Sample]
    cost_s: Seconds

    @model_validator(mode="after")
    def _one_value_per_sample(self) -> Self:
        if any(len(values) != len(self.at) for values in self.series.values()):
            raise ValueError("a series is not as long as the list of sample times")
        if sorted(self.at) != self.at:
            raise ValueError("its samples are not in the order of time")
        return self


class Record(Document):
    """Everything known about one launch. Each launch leaves exactly one record.

    request: None if the launch never started; then there is no result, no image and no data. result: None if the worker
    left none. profile: name of the profile. data_note: where the data came from, or why it is synthetic. started_at:
    UTC, ISO 8601, in whole seconds. seconds: duration of the process. log_tail: end of the log as plain text.
    """

    remedy: ClassVar[str] = "Restore the file. Or move it away and run again with --resume."

    cell: Annotated[Cell, Contract(Cell)]
    launch: PositiveInt
    purpose: Purpose
    status: Status
    reason: Annotated[Reason, Contract(Reason)] | None
    machine: Machine
    engine: str
    profile: str
    started_at: str
    warnings: Items[str]
    request: Annotated[Request, Contract(Request)] | None = None
    result: Annotated[Result, Contract(Result)] | None = None
    image: Image | None = None
    data_note: str = ""
    seconds: Seconds = 0.0
    log_tail: str = ""
    host_samples: HostSamples | None = None

    @property
    def key(self) -> str:
        """Return the key of the cell."""
        return self.cell.key

    @property
    def ok(self) -> bool:
        """Return whether the launch ended `ok`."""
        return self.status is Status.OK

    @property
    def synthetic(self) -> bool:
        """Return whether the launch used synthetic data."""
        return self.request is not None and self.request.data == "synthetic"

    @property
    def tuning(self) -> Tuning:
        """Return what a search found. Only for records of searches that ended `ok`."""
        assert self.result is not None
        assert self.result.tuning is not None
        return self.result.tuning

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        """Reports rely on this. A record that was edited by hand must not show a speed that nobody measured."""
        if self.purpose not in RECORDED:
            raise ValueError(f"launches to {self.purpose} leave no record")
        if self.request and (self.cell, self.launch, self.purpose) != (
            self.request.cell,
            self.request.launch,
            self.request.purpose,
        ):
            raise ValueError(f"it is the record of {self.key:.200}, but the request is of {self.request.cell.key:.200}")
        if self.request and self.result:
            self.result.check_against(self.request)
        if self.status is not (self.reason.code.status if self.reason else Status.OK):
            raise ValueError(f"its status {self.status} does not match its reason")
        if self.ok:
            if self.request is None or self.result is None:
                raise ValueError("it is ok, but has no request or no result")
            if self.result.status is not Status.OK or (self.result.proof and not self.result.proof.passed):
                raise ValueError("it is ok, but its result or its proof is not")
            threads = self.request.settings.get("threads", "1")
            if not threads.isdecimal() or int(threads) < 1:
                raise ValueError(f"it is ok, but its setting threads is {threads!r:.100}")
        return self
