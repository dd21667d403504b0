"""Define what an engine gets for one launch, and what it reports."""

from dataclasses import dataclass
from pathlib import Path

SIGKILLED = 137  # exit code of a process that SIGKILL ended: 128 + 9, as in a shell


@dataclass(frozen=True)
class Limits:
    """What a launch may use. cpus: numbers of logical CPUs. gpus: indices or UUIDs; empty for CPU cells."""

    timeout_s: float
    memory_bytes: int
    cpus: tuple[int, ...]
    shm_bytes: int = 2 << 30
    pids: int = 4096
    gpus: tuple[str, ...] = ()


@dataclass(frozen=True)
class LaunchFolder:
    """The folders of one launch on the host.

    scratch: the worker finds request.json there and leaves result.json. data: folder with the prepared data sets,
    mounted read-only; None if the worker generates its data. log: file for the worker's output.
    """

    scratch: Path
    data: Path | None
    log: Path


@dataclass(frozen=True)
class Completion:
    """How the worker's process ended, as the engine saw it.

    exit_code: as in a shell (128 + signal if killed); None if the process never started or was lost. out_of_memory:
    the engine has evidence that the launch hit its memory limit. not_started: the engine's message if it refused to
    start the launch. warnings: for example limits that could not be set.
    """

    exit_code: int | None
    seconds: float
    timed_out: bool = False
    out_of_memory: bool = False
    not_started: str | None = None
    warnings: tuple[str, ...] = ()
