"""The nouns of the orchestrator: cell, framework, environment, limits, completion. Plain frozen data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


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
