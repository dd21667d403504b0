"""Run launches that measure nothing, because they only use trained weights. They leave no record.

They take the machine's lock, because they would disturb a run that measures.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Literal

from kit.engines.base import Engine
from kit.engines.processes import abandoned, identity
from kit.execution import phases
from kit.execution.classify import Execution, classify
from kit.execution.interrupts import interrupts
from kit.execution.launch import log_tail, result_file
from kit.host import machine, machine_lock
from kit.host.limits import usable_memory
from kit.host.paths import cache_folder
from kit.host.privacy import redact
from kit.model.environment import Environment
from kit.model.errors import DataError, DiskError, EngineError, ImageError, KitError, UsageError
from kit.model.launch import SIGKILLED, Completion, LaunchFolder, Limits
from kit.model.progress import Progress
from kit.planning import catalog
from kit.storage.files import disk_errors
from kit.storage.trained_weights import TrainedWeights
from scenarios.contract.codec import write
from scenarios.contract.reasons import Code, Reason
from scenarios.contract.request import MAX_WEIGHTS_BYTES, REQUEST_FILE, WEIGHTS_FILE, Request
from scenarios.contract.result import Result

Command = Literal["predict", "weights"]  # the kit command that holds the machine's lock

TIMEOUT_S = 1800.0
PICTURE_S = 5.0  # more time for each picture: a huge one takes one or two seconds
WORK = "work-"  # prefix of temporary folders; the identity of the process follows
# In place of remedies that name options of `kit run`.
REMEDIES = {
    Code.DEADLINE: "Close other programs, or use a faster machine. The log shows how far the launch got.",
    Code.MEMORY_LIMIT: "Close other programs, or use a machine with more memory.",
}
DISK_REMEDY = "Set KIT_CACHE_DIR to another folder that you can write to."


@contextmanager
def environments(
    command: Command, engine: Engine, frameworks: list[str], progress: Progress
) -> Iterator[dict[str, Environment]]:
    """Hold the machine's lock for a command. Find or make the CPU environments of these frameworks, by name.

    Raise EngineError if another run holds the lock or if the engine cannot run a framework, and ImageError.
    """
    machine.require_supported()
    known = catalog.frameworks()
    for name in frameworks:
        if reason := engine.refusal(known[name], "cpu"):
            raise EngineError(reason, "Choose another engine or framework.")
    with interrupts.handled(), machine_lock.measuring(command):
        made = phases.build(progress, engine, [(known[name], "cpu") for name in frameworks])
        yield {environment.framework: environment for environment in made}


def too_large(weights: TrainedWeights) -> Reason | None:
    """Return why a file of weights must not be copied, or None. Raise DiskError if it is missing."""
    with disk_errors(weights.file, did="read"):
        size = weights.file.stat().st_size
    if size <= MAX_WEIGHTS_BYTES:
        return None
    return Reason.of(Code.INVALID_WEIGHTS, f"{weights.file.name} is larger than {MAX_WEIGHTS_BYTES >> 30} GiB.")


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Make an empty folder in the cache, and remove it at the end. Raise DiskError."""
    with disk_errors(cache_folder(), DISK_REMEDY):
        cache_folder().mkdir(parents=True, exist_ok=True)
        prefix = f"{WORK}{identity(os.getpid())}-"
        temporary = tempfile.TemporaryDirectory(dir=cache_folder(), prefix=prefix)
    with temporary as name:
        yield Path(name)


@contextmanager
def work_folder(weights: TrainedWeights, inside: Path) -> Iterator[Path]:
    """Make a scratch folder with a copy of these weights, and remove it at the end. Raise DiskError.

    inside: a folder that is made by `temporary_folder`.
    """
    with disk_errors(inside, DISK_REMEDY):
        temporary = tempfile.TemporaryDirectory(dir=inside)
    with temporary as name:
        scratch = Path(name, "io")
        with disk_errors(weights.file, did="read"):
            source = weights.file.open("rb")
        with source, disk_errors(scratch, DISK_REMEDY):  # shutil.copyfile would name the source if the disk is full
            scratch.mkdir()
            with (scratch / WEIGHTS_FILE).open("wb") as copy:
                shutil.copyfileobj(source, copy)
        yield scratch


def remove_work_folders() -> list[str]:
    """Remove the temporary folders that killed processes left. Return a line for each. Raise DiskError."""
    with disk_errors(cache_folder()):
        found = abandoned(cache_folder(), WORK)
        for folder in found:
            shutil.rmtree(folder)
    return [f"folder {folder}" for folder in found]


def run_unmeasured(
    command: Command,
    engine: Engine,
    environment: Environment,
    request: Request,
    scratch: Path,
    weights: TrainedWeights,
) -> Result | Reason:
    """Run one launch to its end. Return its result, or why it has none. Keep the log of a failure.

    Raise KeyboardInterrupt after a signal, EngineError if the engine is lost, and DiskError.
    """
    folder = LaunchFolder(scratch, data=None, log=scratch.with_name("log"))
    with disk_errors(scratch, DISK_REMEDY):
        write(scratch / REQUEST_FILE, request)
    timeout_s = TIMEOUT_S + PICTURE_S * request.pictures
    limits = Limits(timeout_s, usable_memory(machine.memory_limit_bytes()), machine.usable_cpus()[: request.threads])
    labels = {"run": command, "key": request.cell.key, "launch": str(request.launch)}
    with interrupts.deferred():
        completion = engine.launch(environment, folder, limits, request.environment, labels, interrupts.pending)
    if interrupts.pending():
        raise KeyboardInterrupt
    tail = log_tail(folder.log, identify=True)
    found = classify(request, Execution(completion, None, result_file(scratch), tail, None))
    if found.reason is None:
        assert found.result is not None
        return found.result
    # The worker knows only the copy. The message may be part of a page, which names no folder of this machine.
    own = replace(
        found.reason,
        message=redact(found.reason.message.replace(WEIGHTS_FILE, weights.file.name)),
        remedy=_remedy(found.reason, completion),
    )
    return own if own.code is Code.INVALID_WEIGHTS else _with_log(own, folder.log, request)


def as_error(reason: Reason) -> KitError:
    """Return the error for a reason, with its exit code."""
    kinds = {kind.exit_code: kind for kind in (KitError, UsageError, EngineError, ImageError, DataError, DiskError)}
    return kinds[reason.code.exit_code](reason.message, reason.remedy)


def _remedy(reason: Reason, completion: Completion) -> str:
    if reason.code is Code.WORKER_ERROR and completion.exit_code == SIGKILLED:
        return "If the machine ran out of memory, close other programs."
    return REMEDIES.get(reason.code, reason.remedy)


def _with_log(reason: Reason, log: Path, request: Request) -> Reason:
    """Keep the log, and name it in the remedy."""
    kept = cache_folder() / "logs" / f"{request.purpose}-{request.cell.framework}.log"
    with disk_errors(kept, DISK_REMEDY):
        kept.parent.mkdir(parents=True, exist_ok=True)
        if not log.exists():
            return reason
        shutil.copyfile(log, kept)
    return replace(reason, remedy=f"{reason.remedy} The log is {kept}.")
