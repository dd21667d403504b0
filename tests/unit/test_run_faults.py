"""Test that interrupts, faults of the disk and a lost engine cost a run no record, and that the next attempt ends it.

Each function of kit that calls the operating system, and each call of an engine, gets each kind of fault once.
"""

from __future__ import annotations

import errno
import functools
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import jinja2
import pytest

from kit.cli import crash
from kit.engines import registry
from kit.environments.package_sources import Sources
from kit.execution import workflow
from kit.execution.workflow import FinishedRun
from kit.host import machine_lock
from kit.host.background import in_background
from kit.model.errors import EngineError, Interrupted, KitError, UsageError
from kit.model.launch import Completion, LaunchFolder
from kit.model.progress import Silent
from kit.planning.plan import Options
from kit.planning.selection import Selection
from kit.report import render
from kit.storage.run_folder import RECORDS, RunFolder
from scenarios.contract.request import REFERENCE_FILE, Request
from tests import fakes, faults
from tests.campaigns import fails
from tests.command import NO_GPU
from tests.fakes_docker import Client, docker_engine

pytestmark = pytest.mark.usefixtures("machine")

TUNED = Selection(scenarios=("mnist-cnn",), frameworks=("torch",), devices=("cpu",), lanes=("stock", "tuned"))
ERRORS: dict[str, Callable[[], BaseException]] = {
    "interrupt": KeyboardInterrupt,
    "disk full": lambda: OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
    "I/O error": lambda: OSError(errno.EIO, os.strerror(errno.EIO)),
    "no permission": lambda: OSError(errno.EACCES, os.strerror(errno.EACCES)),
}
OPERATIONS = (
    *faults.FILE_OPERATIONS,
    "os.fstat",
    "os.link",
    "os.lstat",
    "os.pwrite",
    "os.statvfs",
    "os.truncate",
    "os.utime",
)
Place = tuple[str, str]  # the call and its function, and the nearest function of another module that called it


def works(request: Request, folder: LaunchFolder) -> Completion:
    """Work in another thread, which gets no faults: they are for kit, not for the worker."""

    def work() -> Completion:
        (folder.scratch / REFERENCE_FILE).write_bytes(b"reference")
        return fakes.works(request, folder)

    return in_background(work).result()


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> fakes.FakeEngine:
    fake = fakes.FakeEngine(works, refused=NO_GPU)
    monkeypatch.setattr(registry, "choose", lambda name, environment, sources: (fake, "Using the fake engine."))
    return fake


@pytest.fixture
def empty_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make reports without content, which is quick."""
    monkeypatch.setattr(render, "render", lambda view: "<!doctype html>")


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], Path]:
    """Return a function that makes a folder the home of a run and its caches."""

    def use_folder(home: Path) -> Path:
        monkeypatch.setenv("KIT_CACHE_DIR", str(home / "cache"))
        monkeypatch.setenv("KIT_DATA_DIR", str(home / "data"))
        return home

    return use_folder


def attempt(home: Path) -> FinishedRun:
    """Resume the run in this home, also its failed launches, or start one. This is what a user does after a fault."""
    for plan in home.glob("reports/*/plan.json"):
        return workflow.resume_run(RunFolder.open(plan.parent), "", Sources(), Silent(), retry_failed=True)
    prepared = workflow.prepare(TUNED, Options("fake", data="synthetic"), Sources())
    return workflow.start(prepared, home / "reports", Silent())


def first_calls(calls: faults.Calls) -> dict[Place, int]:
    """Return the number of the first call at each place."""
    places = list(zip(calls.places, calls.callers, strict=True))
    return {place: nth for nth, place in reversed(list(enumerate(places, 1))) if "tests" not in place[0]}


def records(home: Path) -> dict[Path, bytes]:
    """Return the content of all records."""
    found = [file for name in RECORDS.values() for file in home.glob(f"reports/*/{name}/*.json")]
    return {file: file.read_bytes() for file in found}


def end_with_fault(home: Path, fault: AbstractContextManager[object]) -> str:
    """Attempt a run with a fault. Return how it ended, as its user sees it. Fail if a message is missing, or the lock
    is still taken."""
    error: KitError | OSError | None = None
    unharmed = "no effect"
    try:
        with fault:
            finished = attempt(home)
        code = finished.exit_code
        if not all(record.ok for record in finished.analysis.run.probes):
            unharmed = "exit code 0, but no ceilings"
    except KeyboardInterrupt:
        code = Interrupted.exit_code
    except (KitError, OSError) as caught:
        error = caught
    assert not machine_lock.is_alive(machine_lock.ANY_RUN)
    if error:
        text, code = crash.describe(error)
        assert "unexpected error" not in text, text
        assert len(text.splitlines()) > 1, f"no remedy: {text}"
        assert "File exists" not in text
        assert "Choose from: ." not in text
        if list(home.glob("reports/*/plan.json")):
            assert isinstance(error, UsageError | EngineError) or "run --resume" in text, text
    assert code in (0, 1, 2, 3, 6, 130)
    return f"exit code {code}" if code else unharmed


def end_without_fault(home: Path) -> str:
    """Attempt the run again. Return how. Fail unless it ends with all that was planned, and nothing else."""
    before = records(home)
    how = "then resumed" if list(home.glob("reports/*/plan.json")) else "then started again"
    require_whole(home, attempt(home))
    assert before.items() <= records(home).items(), "a record was changed or lost"
    return how


def require_whole(home: Path, finished: FinishedRun) -> None:
    """Fail unless a run has a report, no leftovers, and one `ok` record of each planned launch, search and probe. A
    probe that failed is only repeated together with launches."""
    run = RunFolder.open(finished.folder).read()
    assert finished.exit_code == 0
    assert Counter(record.key for record in run.records if record.ok) == Counter(each.key for each in run.plan.launches)
    assert [record.ok for record in run.tunings].count(True) == 1
    assert [record.ok for record in run.probes].count(True) == 1 or [record.ok for record in run.probes] == [False]
    assert finished.report.read_text().startswith("<!doctype html>")
    assert list(home.glob("reports/*")) == [finished.folder]
    assert list((finished.folder / "work").iterdir()) == []
    assert list(home.rglob("*.new")) == []


def require_no_loss(tmp_path: Path, use: Callable[[Path], Path], fault: str, places: Mapping[Place, int]) -> None:
    """Inject the fault at each place. Start with a copy of the home `begun` if there is one."""
    for (place, caller), nth in places.items():
        home = use(tmp_path / "home")
        shutil.copytree(tmp_path / "begun", home) if (tmp_path / "begun").exists() else home.mkdir()
        before = records(home)
        outcome = end_with_fault(home, faults.at(nth, ERRORS[fault](), OPERATIONS))
        assert before.items() <= records(home).items(), place
        faults.note(fault, f"run: {place} for {caller}", f"{outcome}, {end_without_fault(home)}")
        shutil.rmtree(home)


@pytest.mark.usefixtures("engine", "empty_report")
@pytest.mark.parametrize("fault", ERRORS)
def test_after_every_fault_of_a_run_the_next_attempt_ends_it(
    tmp_path: Path, use: Callable[[Path], Path], fault: str
) -> None:
    places = places_of_a_run(use(tmp_path / "clean"))
    assert len(places) > 80
    require_no_loss(tmp_path, use, fault, places)


def places_of_a_run(home: Path) -> dict[Place, int]:
    attempt(home)  # imports modules
    shutil.rmtree(home)
    with faults.at(0, KeyboardInterrupt(), OPERATIONS) as calls:
        finished = attempt(home)
    require_whole(home, finished)
    return first_calls(calls)


@pytest.mark.usefixtures("empty_report")
@pytest.mark.parametrize("fault", ERRORS)
def test_after_every_fault_of_a_resumed_run_the_next_attempt_ends_it(
    tmp_path: Path, use: Callable[[Path], Path], engine: fakes.FakeEngine, fault: str
) -> None:
    known = places_of_a_run(use(tmp_path / "clean"))
    stop(use(tmp_path / "begun"), engine)
    home = use(tmp_path / "home")
    shutil.copytree(tmp_path / "begun", home)
    with faults.at(0, KeyboardInterrupt(), OPERATIONS) as calls:
        attempt(home)
    shutil.rmtree(home)
    places = {place: nth for place, nth in first_calls(calls).items() if place not in known}
    assert len(places) > 5
    require_no_loss(tmp_path, use, fault, places)


def stop(home: Path, engine: fakes.FakeEngine) -> None:
    """Leave a run with a search in the cache only, a failed launch, a missing launch, and files of a killed process."""

    def interrupt_the_last(name: str) -> None:
        if name == "launch" and engine.calls.count("launch") == 4:
            raise KeyboardInterrupt

    engine.calls.clear()
    engine.on_call = interrupt_the_last
    engine.worker = lambda request, folder: (fails if request.purpose == "measure" else works)(request, folder)
    assert end_with_fault(home, nullcontext()) == "exit code 130"
    engine.on_call, engine.worker = lambda name: None, works
    (folder,) = home.glob("reports/*")
    (search,) = (folder / "tuning").iterdir()
    search.unlink()
    (folder / "work" / "launch" / "io").mkdir(parents=True)
    (folder / "work" / "launch" / "io" / "request.json").touch()
    (folder / "records" / "record.json.1.new").touch()


class Compiled(jinja2.BytecodeCache):
    """Keep compiled templates in memory, because compiling takes most of the time of a report."""

    def __init__(self) -> None:
        self._codes: dict[str, bytes] = {}

    def load_bytecode(self, bucket: Any) -> None:
        if bucket.key in self._codes:
            bucket.bytecode_from_string(self._codes[bucket.key])

    def dump_bytecode(self, bucket: Any) -> None:
        self._codes[bucket.key] = bucket.bytecode_to_string()


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("fault", ERRORS)
def test_after_every_fault_of_a_report_the_old_one_is_whole_and_the_next_attempt_writes_it(
    tmp_path: Path, use: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    monkeypatch.setattr(jinja2, "Environment", functools.partial(jinja2.Environment, bytecode_cache=Compiled()))
    home = use(tmp_path)
    report = attempt(home).report
    with faults.at(0, KeyboardInterrupt(), OPERATIONS) as calls:
        attempt(home)
    whole, before = content(report), records(home)
    places = {place: nth for place, nth in first_calls(calls).items() if "kit.report" in " ".join(place)}
    assert len(places) > 15
    for (place, caller), nth in places.items():
        outcome = end_with_fault(home, faults.at(nth, ERRORS[fault](), OPERATIONS))
        assert content(report) == whole, place
        faults.note(fault, f"run: {place} for {caller}", f"{outcome}, {end_without_fault(home)}")
        assert (content(report), records(home)) == (whole, before), place


def content(report: Path) -> str:
    """Return the text of a report. The library of the charts numbers their parts across all charts of a process."""
    return re.sub(r"\bclip\d+", "clip", report.read_text())


@pytest.mark.usefixtures("empty_report")
@pytest.mark.parametrize("fault", ["interrupt", "engine lost", "engine lost for one call"])
def test_after_every_fault_of_an_engine_the_next_attempt_ends_the_run(
    tmp_path: Path, use: Callable[[Path], Path], engine: fakes.FakeEngine, fault: str
) -> None:
    require_whole(tmp_path / "clean", attempt(use(tmp_path / "clean")))
    for nth, call in enumerate(list(engine.calls), 1):
        home = use(tmp_path / "home")
        engine.calls.clear()

        def fail(name: str, nth: int = nth) -> None:
            number = len(engine.calls)
            if number == nth and fault == "interrupt":
                raise KeyboardInterrupt
            if number == nth or (number > nth and fault == "engine lost"):
                raise EngineError("No engine answers.", "Start it.")

        engine.on_call = fail
        outcome = end_with_fault(home, nullcontext())
        assert outcome != "no effect"
        engine.on_call = lambda name: None
        faults.note(fault, f"engine: {call.split()[0]}", f"{outcome}, {end_without_fault(home)}")
        assert engine.running == []
        shutil.rmtree(home)


@pytest.mark.usefixtures("empty_report")
@pytest.mark.parametrize("lost", ["request", "answer", "all requests"])
def test_after_every_lost_connection_to_docker_the_next_attempt_ends_the_run(
    tmp_path: Path, use: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    def choose_with(client: Client) -> None:
        engine = docker_engine(client)
        monkeypatch.setattr(registry, "choose", lambda name, environment, sources: (engine, "Using Docker."))

    client = Client()
    choose_with(client)
    require_whole(tmp_path / "clean", attempt(use(tmp_path / "clean")))
    assert client.there == {}
    for nth, request in enumerate(client.made, 1):
        home, broken, working = use(tmp_path / "home"), Client(lost, nth), Client()
        choose_with(broken)
        outcome = end_with_fault(home, nullcontext())
        working.there = broken.there
        choose_with(working)
        outcome = f"{outcome}, {end_without_fault(home)}"
        faults.note(f"connection to Docker lost ({lost})", f"engine: {request}", outcome)
        assert working.there == {}, f"a container was left after {request}"
        shutil.rmtree(home)
