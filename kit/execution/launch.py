"""Run one launch: write the request, start the worker through the engine, and return one record in every case.

A launch passes through these types: PlannedLaunch, then ReadyLaunch or UnstartedLaunch, Execution, Classification,
Record. Only an interruption or a fault of the disk leaves no record, so that --resume runs the launch again.
"""

import dataclasses
import errno
import math
import re
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kit.engines.base import Engine
from kit.execution.classify import Classification, Execution, classify
from kit.execution.epoch_watch import EpochWatch, OnEpoch
from kit.host.privacy import redact
from kit.host.sampling.sampler import Sampler
from kit.model.environment import Environment
from kit.model.errors import DiskError, EngineError
from kit.model.launch import Completion, LaunchFolder, Limits
from kit.model.machine import Machine
from kit.model.plan import PlannedLaunch
from kit.model.record import Image, Record
from kit.storage import kept_files
from kit.storage.files import disk_errors
from kit.storage.kept_files import KeptPaths
from kit.storage.kept_pictures import keep_picture
from kit.storage.reference_cache import ReferenceCache
from kit.storage.run_folder import SCRATCH
from kit.storage.safe_read import read_untrusted
from scenarios.contract.codec import write
from scenarios.contract.reasons import Code, Reason, Status
from scenarios.contract.request import EPOCHS_FOLDER, PROGRESS_FILE, REQUEST_FILE, RESULT_FILE, Request
from scenarios.contract.result import Result

# If such a launch trained, its epochs are not those of its cell, so no retry continues them.
REFUSED = {Code.WRONG_DEVICE, Code.MISSING_PROOF, Code.REFERENCE_MISMATCH, Code.INVALID_RESULT}
RESULT_LIMIT = 16 << 20
# What the worker can cause: a link, another kind of file, or a missing permission. Other errors come from this machine.
WORKER_FAULTS = {errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENXIO, errno.EACCES, errno.EPERM}
TAIL_BYTES = 64 << 10  # read from the end of the log; progress bars and colors take space and are removed
TAIL_CHARACTERS = 4000
# Terminal escape sequences (ECMA-48: CSI, OSC, others of two characters), then any other control character.
ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


@dataclass(frozen=True)
class RunContext:
    """What all launches of a run share. run: its id. warnings: go into each record."""

    run: str
    profile: str
    identify: bool
    machine: Machine
    engine: Engine
    references: ReferenceCache
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class UnstartedLaunch:
    """A planned launch that cannot start."""

    planned: PlannedLaunch
    reason: Reason


@dataclass(frozen=True)
class ReadyLaunch:
    """A launch that can start.

    data: folder with the prepared data sets; None if the worker generates its data. data_note: where the data comes
    from. work: folder for this launch only; it is created and removed here. log: where the log is kept. kept:
    where its checkpoints, weights and pictures are kept. max_rate: the images/s that the machine's ceilings allow in
    training.
    """

    request: Request
    environment: Environment
    limits: Limits
    data: Path | None
    data_note: str
    work: Path
    log: Path
    kept: KeptPaths
    max_rate: float = math.inf

    @property
    def folder(self) -> LaunchFolder:
        """Return what the engine gets."""
        return LaunchFolder(scratch=self.work / SCRATCH, data=self.data, log=self.work / "log")


def run_launch(
    context: RunContext, ready: ReadyLaunch, stopped: Callable[[], bool], on_epoch: OnEpoch = lambda progress: None
) -> Record:
    """Run one launch to its end and return its record. However it ends, its checkpoints are kept.

    on_epoch: called after each whole epoch.

    Raise KeyboardInterrupt if `stopped` ended it before it was ok, and DiskError if the disk was full or its files
    cannot be written.
    """
    started_at, warnings = now(), list[str]()
    try:
        with disk_errors(ready.work):
            warnings += _lay_out(context, ready)
        watch = EpochWatch(ready.folder.scratch / PROGRESS_FILE, on_epoch)

        def watched() -> bool:
            watch.look()
            return stopped()

        execution = execute(context, ready, watched)
        classification = classify(ready.request, execution, ready.max_rate)
        if stopped() and classification.reason is not None:  # else the signal came after the end of the worker
            raise KeyboardInterrupt
        warnings += execution.completion.warnings
        if _trained_something_else(classification):
            with disk_errors(ready.work):
                kept_files.remove_checkpoints(ready.folder.scratch / EPOCHS_FOLDER)
        if classification.reason is None:
            warnings += _use_cache(lambda: context.references.keep(ready.request, ready.folder.scratch))
            classification = _keep_picture(ready, _keep_weights(ready, classification), warnings)
        with disk_errors(ready.log):
            if ready.folder.log.exists():
                ready.folder.log.replace(ready.log)  # replaces a link, which may come from a stranger
        if classification.reason is not None and classification.reason.code is Code.DISK_FULL:
            raise DiskError(classification.reason.message, classification.reason.remedy)
    finally:
        warnings += _clear(ready)
    clean = _cleaner(context)
    return _record(
        context,
        ready.request,
        classification.reason,
        started_at,
        warnings=warnings,
        request=ready.request,
        result=classification.result and _clean_result(classification.result, clean),
        image=_image(ready.environment, clean),
        data_note=clean(ready.data_note),
        seconds=execution.completion.seconds,
        log_tail=execution.log_tail,
        host_samples=execution.host_samples,
    )


def execute(context: RunContext, ready: ReadyLaunch, stopped: Callable[[], bool]) -> Execution:
    """Run the worker to its end, sample the host during this time, and collect what the worker left."""
    request, started = ready.request, time.monotonic()
    labels = {"run": context.run, "key": request.cell.key, "launch": str(request.launch)}
    sampler = Sampler(ready.limits.gpus)
    sampler.start()
    lost = None
    try:
        completion = context.engine.launch(
            ready.environment, ready.folder, ready.limits, request.environment, labels, stopped
        )
    except EngineError as error:
        completion = Completion(exit_code=None, seconds=time.monotonic() - started)
        lost = Reason.of(Code.ENGINE_FAILED, error.message, error.remedy)
    finally:
        samples = sampler.stop()
    if sampler.failure:
        completion = dataclasses.replace(completion, warnings=(*completion.warnings, sampler.failure))
    tail = log_tail(ready.folder.log, identify=context.identify)
    return Execution(completion, lost, result_file(ready.folder.scratch), tail, samples)


def _trained_something_else(classification: Classification) -> bool:
    """Return whether a launch was refused after it trained, or left nothing that shows whether it trained.

    A launch that was refused before keeps the checkpoints of the launch that it continues.
    """
    reason, result = classification.reason, classification.result
    return reason is not None and reason.code in REFUSED and (result is None or result.training is not None)


def unstarted_record(context: RunContext, unstarted: UnstartedLaunch) -> Record:
    """Return the record of a launch that cannot start: skipped, or without environment, data or settings."""
    return _record(context, unstarted.planned, unstarted.reason, now())


def now() -> str:
    """Return the time in UTC, ISO 8601, in whole seconds."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def log_tail(log: Path, *, identify: bool) -> str:
    """Return the last TAIL_CHARACTERS of a log as plain text, or an empty string if there is no log.

    Remove colors and control characters. Keep only the last state of a line that was overwritten. Unless `identify`,
    remove the names of people and machines.
    """
    if not log.exists():
        return ""
    with open(log, "rb") as file:
        file.seek(max(0, log.stat().st_size - TAIL_BYTES))
        text = file.read().decode("utf-8", errors="replace")
    lines = [line.rstrip("\r").rsplit("\r", 1)[-1] for line in ESCAPES.sub("", text).split("\n")]
    plain = CONTROLS.sub("", "\n".join(lines))
    return (plain if identify else redact(plain))[-TAIL_CHARACTERS:]


def _lay_out(context: RunContext, ready: ReadyLaunch) -> list[str]:
    """Create the folders and files of the launch. Return warnings."""
    scratch = ready.folder.scratch
    scratch.mkdir(parents=True)
    kept_files.lend_checkpoints(ready.kept.resumed, scratch)
    write(scratch / REQUEST_FILE, ready.request)
    return _use_cache(lambda: context.references.lend(ready.request, scratch))


def _use_cache(step: Callable[[], None]) -> list[str]:
    """Use the cache of reference values. It only saves time, so a failure is only a warning."""
    try:
        step()
    except (OSError, ValueError) as error:
        return [f"The cache of reference values could not be used: {error}"]
    return []


def result_file(scratch: Path) -> bytes | Exception | None:
    """Return the content of the result file, or why it cannot be read, or None if it does not exist.

    Raise DiskError if this machine cannot read it. The launch then has no record and keeps its checkpoints.
    """
    try:
        return read_untrusted(scratch / RESULT_FILE, RESULT_LIMIT)
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno not in WORKER_FAULTS:
            remedy = "Check the disk, the memory and the limit of open files (`ulimit -n`)."
            raise DiskError(f"{scratch / RESULT_FILE} cannot be read: {error.strerror}.", remedy) from error
        return error


def _keep_weights(ready: ReadyLaunch, classification: Classification) -> Classification:
    """Move the trained weights of an ok launch. Its result then names them as they are in the run.

    Raise DiskError. Return that the result is not valid if it names a file that is missing or not a plain one.
    """
    result = classification.result
    assert result is not None, "a launch that is ok has a result"
    try:
        with disk_errors(ready.kept.weights):
            kept = kept_files.keep_weights(ready.folder.scratch, result.weights, ready.kept.weights)
    except ValueError as error:
        reason = Reason.of(Code.INVALID_RESULT, f"The worker's weights cannot be kept: {error}.")
        return dataclasses.replace(classification, reason=reason)
    return Classification(None, dataclasses.replace(result, weights=kept))


def _keep_picture(ready: ReadyLaunch, classification: Classification, warnings: list[str]) -> Classification:
    """Keep the picture of an ok launch. If it is not valid, add a warning, and leave it out of the result: only the
    report lacks it. Raise DiskError."""
    result = classification.result
    if result is None or result.augmented is None:
        return classification
    try:
        with disk_errors(ready.kept.pictures):
            keep_picture(ready.folder.scratch, result.augmented, ready.kept.pictures)
    except ValueError as error:
        warnings.append(f"The picture of augmented photos was not kept: {error}")
        return dataclasses.replace(classification, result=dataclasses.replace(result, augmented=None))
    return classification


def _clear(ready: ReadyLaunch) -> list[str]:
    """Remove the folder of the launch, but keep its checkpoints. Return a warning if the worker left something that
    cannot be removed."""
    work = ready.work
    try:
        kept_files.take_checkpoints(ready.folder.scratch, ready.kept.checkpoints)
        if work.exists():
            shutil.rmtree(work)
    except OSError as error:
        return [f"The scratch folder of the launch could not be removed: {error}"]
    return []


def _record(
    context: RunContext,
    launch: PlannedLaunch | Request,
    reason: Reason | None,
    started_at: str,
    *,
    warnings: Sequence[str] = (),
    **started: Any,
) -> Record:
    """Return a record. started: the fields that only a launch that started has."""
    clean = _cleaner(context)
    return Record(
        cell=launch.cell,
        launch=launch.launch,
        purpose=launch.purpose if isinstance(launch, Request) else "measure",
        status=reason.code.status if reason else Status.OK,
        reason=reason and _clean_reason(reason, clean),
        machine=context.machine,
        engine=context.engine.name,
        profile=context.profile,
        started_at=started_at,
        warnings=[clean(text) for text in (*context.warnings, *warnings)],
        **started,
    )


def _image(environment: Environment, clean: Callable[[str], str]) -> Image:
    return Image(
        kind=environment.kind,
        reference=clean(environment.reference),
        digest=environment.digest,
        size_bytes=environment.size_bytes,
    )


def _cleaner(context: RunContext) -> Callable[[str], str]:
    """Return the function that removes the names of people and machines from a text, unless the run keeps them."""
    return (lambda text: text) if context.identify else redact


def _clean_reason(reason: Reason, clean: Callable[[str], str]) -> Reason:
    return Reason(reason.code, clean(reason.message), clean(reason.remedy))


def _clean_result(result: Result, clean: Callable[[str], str]) -> Result:
    """Return the result without names in the texts that the worker wrote."""
    tuning = result.tuning
    if tuning is not None:
        searches = []
        for search in tuning.searches:
            tried = [dataclasses.replace(each, failure=clean(each.failure)) for each in search.tried]
            searches.append(dataclasses.replace(search, tried=tried))
        tuning = dataclasses.replace(tuning, searches=searches)
    training = result.training
    if training is not None:
        ignored = [clean(why) for why in training.ignored_checkpoints]
        training = dataclasses.replace(training, ignored_checkpoints=ignored)
    reason = result.reason and _clean_reason(result.reason, clean)
    return dataclasses.replace(result, reason=reason, tuning=tuning, training=training)
