"""Run single launches in unit tests with a fake engine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from kit.execution.launch import ReadyLaunch, RunContext, run_launch
from kit.model.environment import Environment
from kit.model.launch import Completion, LaunchFolder, Limits
from kit.model.record import Record
from kit.storage.kept_files import KeptPaths
from kit.storage.reference_cache import ReferenceCache
from scenarios.contract import codec
from scenarios.contract.reasons import Status
from scenarios.contract.request import RESULT_FILE, Request
from tests import examples, fakes

SUCCESS = Completion(exit_code=0, seconds=1.0)


def run_context(folder: Path) -> RunContext:
    """Return the context of a run with a fake engine. folder: where the reference cache is made."""
    return RunContext(
        run="r1",
        profile="quick",
        identify=False,
        machine=examples.machine(),
        engine=fakes.FakeEngine(),
        references=ReferenceCache(folder / "cache"),
    )


def ready_launch(folder: Path) -> ReadyLaunch:
    """Return a launch of the example cell that is ready to start in this folder."""
    (folder / "logs").mkdir()
    return ReadyLaunch(
        request=examples.request(),
        environment=Environment("torch", "cpu", "image", "kit-torch:cpu", "sha256:0"),
        limits=Limits(600, 1 << 30, (0, 1)),
        data=None,
        data_note="synthetic: requested",
        work=folder / "work" / "launch",
        log=folder / "logs" / "launch.log",
        kept=KeptPaths(*(folder / name / "launch" for name in ("weights", "checkpoints", "checkpoints", "pictures"))),
    )


def never_stopped() -> bool:
    """Return False: nobody stops the launch."""
    return False


def run(context: RunContext, ready: ReadyLaunch, worker: fakes.Worker) -> Record:
    """Run a launch with this worker. Check what holds for every record, and return the record."""
    assert isinstance(context.engine, fakes.FakeEngine)
    context.engine.worker = worker
    record = run_launch(context, ready, never_stopped)
    assert (record.cell, record.launch, record.request) == (ready.request.cell, ready.request.launch, ready.request)
    assert (record.status is Status.OK) == (record.reason is None)
    assert record.reason is None or (record.reason.message and record.reason.remedy)
    assert not ready.work.exists()
    assert type(record).from_json(record.to_json(), "itself") == record
    return record


def result_worker(*, completion: Completion = SUCCESS, log: str = "", **changes: Any) -> fakes.Worker:
    """Return a worker that writes its `ok` result with these changes."""

    def worker(request: Request, folder: LaunchFolder) -> Completion:
        folder.log.write_text(log)
        codec.write(folder.scratch / RESULT_FILE, replace(examples.result(request), **changes))
        return completion

    return worker


def text_worker(text: str | None, completion: Completion = SUCCESS, log: str = "") -> fakes.Worker:
    """Return a worker that writes this text as its result file, or no file if the text is None."""

    def worker(request: Request, folder: LaunchFolder) -> Completion:
        folder.log.write_text(log)
        if text is not None:
            (folder.scratch / RESULT_FILE).write_text(text)
        return completion

    return worker
