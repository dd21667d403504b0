"""One launch: request in, worker through the engine, one Record out, whatever happens. Only an interruption leaves
none, so that the launch is run anew on --resume."""

from __future__ import annotations

import dataclasses
import re
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from kit.engines.base import Engine
from kit.execution.classify import Classification, classify, failure
from kit.host.privacy import redact
from kit.host.sampling.sampler import Sampler
from kit.model.environment import Environment
from kit.model.errors import EngineError
from kit.model.launch import Completion, LaunchFolder, Limits
from kit.model.machine import Machine
from kit.model.record import HostSamples, Image, Record, reason
from kit.storage.reference_cache import ReferenceCache
from kit.storage.run_folder import writing
from kit.storage.safe_read import read_untrusted
from scenarios.contract.codec import write
from scenarios.contract.reasons import Code, Reason, Status
from scenarios.contract.request import REQUEST_FILE, RESULT_FILE, Request
from scenarios.contract.result import Result

RESULT_LIMIT = 16 << 20
TAIL_BYTES = 64 << 10  # read from the log's end: progress bars and colours take room and are not kept
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
class Job:
    """One launch, ready to go. data: folder with the prepared data sets, None where the worker makes its own;
    data_note: why it is so. work: folder for this launch alone, made and removed here. log: where its log is kept."""

    request: Request
    environment: Environment
    limits: Limits
    data: Path | None
    data_note: str
    work: Path
    log: Path

    @property
    def folder(self) -> LaunchFolder:
        """What the engine gets."""
        return LaunchFolder(scratch=self.work / "io", data=self.data, log=self.work / "log")


def run_launch(setting: RunContext, job: Job, stopped: Callable[[], bool]) -> Record:
    """Run one launch to its end and describe it.

    Raises KeyboardInterrupt where `stopped` ended it, DiskError where its files cannot be written.
    """
    started_at, warnings, tail = now(), list[str](), ""
    try:
        with writing(job.work):
            warnings += _lay_out(setting, job)
        completion, lost, host_samples = _launch(setting, job, stopped)
        if stopped():
            raise KeyboardInterrupt
        tail = log_tail(job.folder.log, identify=setting.identify)
        verdict = failure(lost) if lost else classify(job.request, completion, _left(job), tail)
        warnings += completion.warnings
        if verdict.status is Status.OK:
            warnings += _use_cache(lambda: setting.references.keep(job.request, job.folder.scratch))
        with writing(job.log):
            if job.folder.log.exists():
                shutil.move(job.folder.log, job.log)
    finally:
        warnings += _clear(job.work)
    return _record(
        setting,
        job.request,
        verdict,
        started_at=started_at,
        seconds=completion.seconds,
        warnings=warnings,
        environment=job.environment,
        data_note=job.data_note,
        tail=tail,
        host_samples=host_samples,
    )


def record_without_launch(setting: RunContext, request: Request, cause: Reason, data_note: str = "") -> Record:
    """The record of a planned launch that never came to run: skipped, or without environment or data."""
    return _record(setting, request, failure(cause), started_at=now(), data_note=data_note)


def now() -> str:
    """UTC, ISO 8601, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def log_tail(log: Path, *, identify: bool) -> str:
    """The last TAIL_CHARACTERS of a log as plain text: of a line that was overwritten, what it showed last; no colours
    and control characters; without names of people and machines unless `identify`. Empty where there is no log."""
    if not log.exists():
        return ""
    with open(log, "rb") as file:
        file.seek(max(0, log.stat().st_size - TAIL_BYTES))
        text = file.read().decode("utf-8", errors="replace")
    lines = [line.rstrip("\r").rsplit("\r", 1)[-1] for line in ESCAPES.sub("", text).split("\n")]
    plain = CONTROLS.sub("", "\n".join(lines))
    return (plain if identify else redact(plain))[-TAIL_CHARACTERS:]


def _lay_out(setting: RunContext, job: Job) -> list[str]:
    """Make the launch's folders and files. Returns warnings."""
    scratch = job.folder.scratch
    scratch.mkdir(parents=True)
    write(scratch / REQUEST_FILE, job.request)
    return _use_cache(lambda: setting.references.lend(job.request, scratch))


def _use_cache(step: Callable[[], None]) -> list[str]:
    """Do a step of the reference cache. It only saves time, so that its failure is a warning."""
    try:
        step()
    except (OSError, ValueError) as error:
        return [f"The cache of reference values could not be used: {error}"]
    return []


def _launch(
    setting: RunContext, job: Job, stopped: Callable[[], bool]
) -> tuple[Completion, Reason | None, HostSamples]:
    """How the process ended, the reason where the engine itself was lost, and what the host saw meanwhile."""
    request, began = job.request, time.monotonic()
    labels = {"run": setting.run, "key": request.key, "launch": str(request.launch)}
    sampler = Sampler(job.limits.gpus)
    sampler.start()
    lost = None
    try:
        engine = setting.engine
        completion = engine.launch(job.environment, job.folder, job.limits, request.environment, labels, stopped)
    except EngineError as error:
        completion = Completion(exit_code=None, seconds=time.monotonic() - began)
        lost = reason(Code.ENGINE_FAILED, error.message, error.remedy)
    finally:
        host_samples = sampler.stop()
    if sampler.failure:
        completion = dataclasses.replace(completion, warnings=(*completion.warnings, sampler.failure))
    return completion, lost, host_samples


def _left(job: Job) -> bytes | Exception | None:
    """The result file's content, or why it cannot be read; None where there is none."""
    try:
        return read_untrusted(job.folder.scratch / RESULT_FILE, RESULT_LIMIT)
    except (OSError, ValueError) as error:
        return error


def _clear(work: Path) -> list[str]:
    """Remove the launch's folder. Returns a warning where the worker left something that cannot be removed."""
    try:
        if work.exists():
            shutil.rmtree(work)
    except OSError as error:
        return [f"The launch's scratch folder could not be removed: {error}"]
    return []


def _record(
    setting: RunContext,
    request: Request,
    verdict: Classification,
    *,
    started_at: str,
    seconds: float = 0.0,
    warnings: Sequence[str] = (),
    environment: Environment | None = None,
    data_note: str = "",
    tail: str = "",
    host_samples: HostSamples | None = None,
) -> Record:
    clean = (lambda text: text) if setting.identify else redact
    result, cause = verdict.result, verdict.reason
    if cause is not None:
        cause = reason(cause.code, clean(cause.message), clean(cause.remedy))
    if result is not None:
        result = _cleaned(result, clean)
    image = None
    if environment is not None:
        image = Image(
            kind=environment.kind,
            reference=clean(environment.reference),
            digest=environment.digest,
            size_bytes=environment.size_bytes,
        )
    return Record(
        key=request.key,
        launch=request.launch,
        status=verdict.status,
        reason=cause,
        request=request,
        result=result,
        machine=setting.machine,
        image=image,
        engine=setting.engine.name,
        profile=setting.profile,
        data_note=clean(data_note),
        started_at=started_at,
        seconds=seconds,
        warnings=[clean(text) for text in (*setting.warnings, *warnings)],
        log_tail=tail,
        host_samples=host_samples,
    )


def _cleaned(result: Result, clean: Callable[[str], str]) -> Result:
    """The result, with what the worker tells in words of its own cleaned."""
    told, tuning = result.reason, result.tuning
    if told is not None:
        told = reason(told.code, clean(told.message), clean(told.remedy))
    if tuning is not None:
        searches = []
        for search in tuning.searches:
            tried = [dataclasses.replace(each, failure=clean(each.failure)) for each in search.tried]
            searches.append(dataclasses.replace(search, tried=tried))
        tuning = dataclasses.replace(tuning, searches=searches)
    return dataclasses.replace(result, reason=told, tuning=tuning)
