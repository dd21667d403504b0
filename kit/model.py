"""The nouns of the orchestrator: cell, framework, environment, limits, completion. Plain frozen data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal

from scenarios.spec import Scenario

Device = Literal["cpu", "cuda"]
Place = tuple[str, Device]  # a framework's name on a device: what has an environment
Scenarios = Mapping[str, Mapping[str, Scenario]]  # by name, then variant


@dataclass(frozen=True, order=True)
class Cell:
    """One thing to measure. batch: the global batch."""

    scenario: str
    variant: str
    framework: str
    device: Device
    devices: int
    lane: str
    precision: str
    batch: int

    @classmethod
    def of(cls, source: object) -> Cell:
        """The cell that a request or a planned launch is for: both have all of these fields."""
        return cls(**{field.name: getattr(source, field.name) for field in fields(cls)})

    @property
    def key(self) -> str:
        """`scenario[+variant]/framework/device[xN]/lane/precision/bB`."""
        label = f"{self.scenario}+{self.variant}" if self.variant else self.scenario
        device = self.device if self.devices == 1 else f"{self.device}x{self.devices}"
        return f"{label}/{self.framework}/{device}/{self.lane}/{self.precision}/b{self.batch}"


@dataclass(frozen=True)
class Framework:
    """What `docker/<framework>/framework.toml` says. modules: what its adapter imports, beside `common.in`.

    cuda_*: None where the framework has no cuda image. least_driver: NVIDIA driver major version. least_capability:
    compute capability, as (7, 5).
    """

    name: str
    title: str
    devices: tuple[Device, ...]
    modules: tuple[str, ...]
    cuda_major: int | None
    least_driver: int | None
    least_capability: tuple[int, int] | None
    folder: Path


@dataclass(frozen=True)
class Environment:
    """Something that can run a worker. kind image: `reference` is its tag and `digest` its id; venv and system:
    `reference` is the interpreter, `digest` the lock's hash (system: a hash over its packages)."""

    framework: str
    device: Device
    kind: Literal["image", "venv", "system"]
    reference: str
    digest: str
    size_bytes: int | None = None


@dataclass(frozen=True)
class Limits:
    """What a launch may use. cpus: logical CPU numbers. gpus: indices or UUIDs, empty for CPU cells."""

    timeout_s: float
    memory_bytes: int
    cpus: tuple[int, ...]
    shm_bytes: int = 2 << 30
    pids: int = 4096
    gpus: tuple[str, ...] = ()


@dataclass(frozen=True)
class LaunchFolder:
    """The folder of one launch on the host: the worker finds request.json there and leaves result.json.

    data: folder with the prepared data sets, mounted read-only; None where the launch makes its own.
    log: file that takes the worker's stdout and stderr.
    """

    scratch: Path
    data: Path | None
    log: Path


@dataclass(frozen=True)
class Completion:
    """How the worker's process ended, as the engine saw it. exit_code: as a shell has it (killed: 128 + signal), None
    where the process was never started or lost.

    not_started: the engine's own words where it refused. out_of_memory: the engine has evidence that the memory
    limit was hit. warnings: limits that could not be set, and the like.
    """

    exit_code: int | None
    seconds: float
    timed_out: bool = False
    out_of_memory: bool = False
    not_started: str | None = None
    warnings: tuple[str, ...] = ()
