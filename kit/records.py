"""The files of a run as types: record, plan, machine. Versioned JSON; older versions are upgraded, newer refused.

A record holds the worker's own request and result unchanged, and beside them what the orchestrator knows: status,
reason, environment, machine, the log's tail. Records and machine name no host, user, home folder, serial or UUID
unless the run was made with `--identify`; the plan repeats what was typed, as the path given to `--env`.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections import Counter
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from kit.errors import UsageError
from kit.plausible import MOST_WHOLE, impossible
from scenarios import allocators
from scenarios.contract import Code, Reason, Request, Result, Status, Tuning

SCHEMA = 4
TUNE_S = 60.0  # of the search for one tuned cell's settings, where nobody said


def _to_version_2(document: dict[str, Any]) -> dict[str, Any]:
    """What version 1 did not ask for is unknown: denormals, nodes, busy threads (0), when training ran (0 to 0)."""
    result = document.get("result") or {}
    if evidence := result.get("evidence"):
        evidence["placement"] = {"denormals": "unknown", "nodes": {}, **evidence["placement"]}
    if telemetry := result.get("telemetry"):
        result["telemetry"] = {"from_at": 0.0, "to_at": 0.0, "busy_threads": 0, **telemetry}
    return document


def _to_version_3(document: dict[str, Any]) -> dict[str, Any]:
    """Why a GPU lowered its clocks became series; shares of whole launches do not tell of training. The last caches
    together were guessed from CPU 0's and the sockets."""
    if context := document.get("context"):
        context.pop("throttled", None)
    for machine in (document, document.get("machine") or {}):
        if "caches" in machine:
            sizes = [size for size in (machine["sockets"], *machine["caches"].values()) if type(size) is int]
            machine["last_cache_bytes"] = sizes[0] * max(sizes[1:], default=0) if sizes else 0
    return document


def _to_version_4(document: dict[str, Any]) -> dict[str, Any]:
    """Version 4 knows tuned launches; nothing of version 3 changed."""
    return document


# Step N turns a document of version N into one of version N + 1. Version 1 is the first.
UPGRADES: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {
    1: _to_version_2,
    2: _to_version_3,
    3: _to_version_4,
}


class Document(BaseModel):
    """A versioned JSON file."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")

    schema_: int = SCHEMA
    noun: ClassVar[str] = ""
    remedy: ClassVar[str] = "Restore the file, or move it away and run again with --resume."

    def to_json(self) -> str:
        """JSON text with the version under `schema`."""
        fields = self.model_dump(mode="json")
        return json.dumps({"schema": fields.pop("schema_"), **fields}, indent=1, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes, source: str) -> Self:
        """Read any version up to ours. Raises UsageError naming `source` where it is newer or not such a file."""
        try:
            version, data = _version(_parse(text))
            if version > SCHEMA:
                raise UsageError(
                    f"{source} was written by a newer kit (schema {version}, this one reads up to {SCHEMA}).",
                    "Update kit, or read it with the version that wrote it.",
                )
            for step in range(version, SCHEMA):
                data = UPGRADES[step](data)
            return cls.model_validate_json(json.dumps({"schema_": SCHEMA, **data}), strict=True)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise UsageError(
                f"{source} is not a valid {cls.noun or cls.__name__.lower()}: {_what_is_wrong(error)}.",
                cls.remedy,
            ) from error


def _parse(text: str | bytes) -> Any:
    """What JSON text holds. Raises ValueError, RecursionError; for numbers, too, that kit never writes and arithmetic
    fails of: NaN, infinity, and whole numbers above MOST_WHOLE; and for a name that an object has twice."""
    return json.loads(
        text, parse_constant=_finite, parse_float=_finite, parse_int=_whole, object_pairs_hook=_without_twins
    )


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twin = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise ValueError(f"{twin!r:.100} is there twice in one object")
    return found


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"it holds the number {text:.20}")
    return number


def _whole(text: str) -> int:
    if abs(number := int(text)) > MOST_WHOLE:
        raise ValueError(f"it holds the number {text:.20}")
    return number


def _version(document: Any) -> tuple[int, dict[str, Any]]:
    """The version of a document, and all else in it. Raises ValueError."""
    version = document.pop("schema", None) if isinstance(document, dict) else None
    if type(version) is not int or version < 1:
        raise ValueError(f"its schema is {version!r}, which is no version")
    return version, document


def _what_is_wrong(error: Exception) -> str:
    """In one line; of many faults the first."""
    if not isinstance(error, ValidationError):
        return " ".join(str(error).split())
    first = error.errors(include_url=False)[0]
    message = first["msg"].removeprefix("Value error, ")
    return f"{'.'.join(map(str, first['loc']))}: {message}".removeprefix(": ")


def _startable(settings: dict[str, str]) -> dict[str, str]:
    """Raise ValueError where a launch cannot even be started with these settings; the rest is the framework's."""
    if (allocator := settings.get(allocators.AXIS, allocators.STOCK)) not in allocators.VARIABLES:
        known = ", ".join(allocators.VARIABLES)
        raise ValueError(f"it has the allocator {allocator!r}; known are: {known}")
    return settings


Settings = Annotated[dict[str, str], AfterValidator(_startable)]


class Part(BaseModel):
    """A part of a document."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Gpu(Part):
    """One NVIDIA GPU. uuid only with --identify. power limits in watts."""

    index: int
    name: str
    memory_bytes: int
    compute_capability: tuple[int, int]
    power_limit_w: float | None
    default_power_limit_w: float | None
    uuid: str | None = None


class Machine(Document):
    """The machine that measured. cpus: logical CPUs that may be used (affinity and quota); quota_cpus: the cgroup's
    quota in CPUs, None where there is none. caches: of CPU 0, level name to bytes; last_cache_bytes: of the last level,
    of all CPUs that may be used together, 0 where the system does not tell. id: a hash that is equal for equal hardware
    and software, so that runs of one machine can be told from runs of another; not a serial."""

    id: str
    cpu_model: str
    architecture: str
    sockets: int
    physical_cores: int
    logical_cpus: int
    cpus: int
    quota_cpus: float | None
    caches: dict[str, int]
    last_cache_bytes: int
    cpu_flags: list[str]
    memory_bytes: int
    memory_limit_bytes: int | None
    gpus: list[Gpu]
    driver: str | None
    cuda_driver: str | None
    os: str
    kernel: str
    container_runtime: dict[str, str]
    virtualization: str | None
    python: str
    kit: str
    hostname: str | None = None
    user: str | None = None


class Image(Part):
    """What a launch ran in: see model.Environment. digest: the image's id, or the hash of the lock or packages."""

    kind: Literal["image", "venv", "system"]
    reference: str
    digest: str
    size_bytes: int | None


class Context(Part):
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
    context: None where the launch never ran."""

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
    context: Context | None = None

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
            _startable(self.result.tuning.settings)
        if wrong := impossible(dataclasses.asdict(self.result)):
            raise ValueError(f"it is ok, but tells of {', '.join(wrong)}")
        return self


class PlannedLaunch(Part):
    """One launch to be. named: asked for by name, not only swept up by --all or a default."""

    key: str
    launch: int
    scenario: str
    variant: str
    framework: str
    device: Literal["cpu", "cuda"]
    devices: int
    lane: Literal["stock", "tuned"]
    precision: Literal["fp32", "tf32", "bf16"]
    batch: int
    named: bool


class Plan(Document):
    """What a run set out to do, in order; written before the first launch, so that --resume knows what is missing.
    budget_s: seconds of launches in all, the planned ones included, after which a profile that goes on until intervals
    are narrow makes no more of them; None: no limit. tune_s: of the search for a tuned cell's settings. pinned:
    settings by cell for which nothing is searched."""

    run: str
    created_at: str
    profile: str
    engine: str
    environment: str
    seed: int
    data: Literal["auto", "real", "synthetic"]
    epochs: int | None
    timeout_s: float
    memory_bytes: int | None
    threads: int | None
    gpus: str | None
    identify: bool
    launches: list[PlannedLaunch]
    budget_s: float | None = None
    tune_s: float = TUNE_S
    pinned: dict[str, Settings] = {}


class Pins(Document):
    """Settings by cell, to be measured with: what `kit settings` writes, and `kit run --settings` reads."""

    noun: ClassVar[str] = "file of settings"
    remedy: ClassVar[str] = "Name a file that `kit settings` wrote."

    cells: dict[str, Settings] = Field(min_length=1)


def reason(code: Code, message: str, remedy: str) -> Reason:
    """Short for `Reason`, in one line of text each."""
    return Reason(code, " ".join(message.split()), " ".join(remedy.split()))


def tuning_of(record: Record) -> Tuning:
    """What a search found. For records of searches that ended ok."""
    assert record.status is Status.OK
    assert record.result is not None
    assert record.result.tuning is not None
    return record.result.tuning
