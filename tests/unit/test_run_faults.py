"""Test that interrupts, faults of the disk and a lost engine cost a run no record, and that the next attempt ends it.

Each function of kit that calls the operating system, and each call of an engine, gets each kind of fault once.
"""

from __future__ import annotations

import functools
import shutil
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import jinja2
import pytest

from kit.analysis import run_analysis
from kit.engines import registry
from kit.environments.package_sources import Sources
from kit.execution import workflow
from kit.execution.reporting import FinishedRun
from kit.host import machine_lock
from kit.host.background import in_background
from kit.model.document import Document
from kit.model.errors import DiskError, EngineError, Interrupted, UsageError
from kit.model.launch import Completion, LaunchFolder
from kit.model.progress import Silent
from kit.planning.plan import Options
from kit.planning.selection import Selection
from kit.report import render, run_index
from kit.storage.run_folder import RECORDS, RunFolder
from scenarios.contract import codec
from scenarios.contract.request import REFERENCE_FILE, Request
from tests import fakes, faults
from tests.campaigns import fails
from tests.command import NO_GPU
from tests.fakes_docker import Client, docker_engine

pytestmark = pytest.mark.usefixtures("machine")

TUNED = Selection(scenarios=("mnist-cnn",), frameworks=("torch",), devices=("cpu",), lanes=("stock", "tuned"))
ERRORS = (UsageError, EngineError, DiskError, Interrupted, OSError)
NO_CEILINGS = "exit code 0 without ceilings"


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


class Compiled(jinja2.BytecodeCache):
    """Keep compiled templates in memory."""

    def __init__(self) -> None:
        self._codes: dict[str, bytes] = {}

    def load_bytecode(self, bucket: Any) -> None:
        if bucket.key in self._codes:
            bucket.bytecode_from_string(self._codes[bucket.key])

    def dump_bytecode(self, bucket: Any) -> None:
        self._codes[bucket.key] = bucket.bytecode_to_string()


@pytest.fixture(autouse=True)
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Save what takes most of the time of an attempt: computing, and a program. All calls that get faults are made."""
    from_json = functools.cache(Document.from_json.__func__)  # type: ignore[attr-defined]
    monkeypatch.setattr(Document, "from_json", classmethod(from_json))
    monkeypatch.setattr(run_analysis, "digest", functools.cache(run_analysis.digest))
    monkeypatch.setattr(jinja2, "Environment", functools.partial(jinja2.Environment, bytecode_cache=Compiled()))
    monkeypatch.setattr(codec.typing, "get_type_hints", functools.cache(codec.typing.get_type_hints))
    monkeypatch.setenv("PATH", str(tmp_path))  # without the program `systemd-detect-virt`


@pytest.fixture
def empty_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make reports without content, which is quick."""
    empty = "<!doctype html><title>{}</title>"
    monkeypatch.setattr(render, "render", lambda view: empty.format(render.PAGE.title_end))
    monkeypatch.setattr(run_index, "render_index", lambda *_: empty.format(run_index.PAGE.title_end))


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


def records(home: Path) -> dict[Path, bytes]:
    """Return the content of all records."""
    found = [file for name in RECORDS.values() for file in home.glob(f"reports/*/{name}/*.json")]
    return {file: file.read_bytes() for file in found}


def end_with_fault(home: Path, error: BaseException, place: str = "") -> str:
    """Attempt a run with a fault. Return how it ended, as its user sees it. Fail if the lock is still taken.

    place: where the error is raised; empty if the engine raises it.
    """

    def work() -> FinishedRun:
        with faults.at(place, error) if place else nullcontext():
            return attempt(home)

    ended = faults.attempt(work, error, *ERRORS)
    assert not machine_lock.is_alive(machine_lock.ANY_RUN)
    assert "exists" not in ended.text
    assert "Choose from: ." not in ended.text
    if ended.text and list(home.glob("reports/*/plan.json")):
        assert isinstance(ended.caught, UsageError | EngineError) or "run --resume" in ended.text, ended.text
    if ended.result and not all(record.ok for record in ended.result.analysis.run.probes):
        assert ended.outcome == "exit code 0", "a failed probe cost a launch"
        return NO_CEILINGS
    if ended.outcome == "exit code 0":
        require_complete(ended.result)
    return ended.outcome


def end_without_fault(home: Path, *, without_ceilings: bool) -> str:
    """Attempt the run again. Return what it did. Fail unless it ends with all that was planned, and nothing else."""
    before = records(home)
    how = "resumed" if list(home.glob("reports/*/plan.json")) else "started again"
    require_whole(home, attempt(home), without_ceilings=without_ceilings)
    assert before.items() <= records(home).items(), "a record was changed or lost"
    return how


def require_whole(home: Path, finished: FinishedRun, *, without_ceilings: bool = False) -> None:
    """Fail unless a run is complete, and nothing else is left."""
    require_complete(finished, without_ceilings=without_ceilings)
    assert list(home.glob("reports/*/")) == [finished.folder]
    assert list((finished.folder / "work").iterdir()) == []
    assert list(home.rglob("*.new")) == []


def require_complete(finished: FinishedRun, *, without_ceilings: bool = False) -> None:
    """Fail unless a run has a report, and one `ok` record of each planned launch, search and probe.

    without_ceilings: all launches were `ok` before this attempt, but the probe was not. So it was not repeated.
    """
    run = RunFolder.open(finished.folder).read()
    assert finished.exit_code == 0
    assert Counter(record.key for record in run.records if record.ok) == Counter(each.key for each in run.plan.launches)
    assert [record.ok for record in run.tunings].count(True) == 1
    assert [record.ok for record in run.probes].count(True) == (0 if without_ceilings else 1)
    assert finished.report.read_text().startswith("<!doctype html>")


def require_no_loss(tmp_path: Path, use: Callable[[Path], Path], fault: str, places: Iterable[str]) -> None:
    """Inject the fault at each place. Start with a copy of the home `begun` if there is one."""
    for place in places:
        home = use(tmp_path / "home")
        shutil.copytree(tmp_path / "begun", home) if (tmp_path / "begun").exists() else home.mkdir()
        before = records(home)
        outcome = end_with_fault(home, faults.ERRORS[fault](), place)
        assert before.items() <= records(home).items(), place
        following = end_without_fault(home, without_ceilings=outcome == NO_CEILINGS)
        faults.note(fault, f"run: {place}", outcome, following)
        shutil.rmtree(home)


@pytest.mark.usefixtures("engine", "empty_report")
@pytest.mark.parametrize("fault", faults.ERRORS)
def test_after_every_fault_of_a_run_the_next_attempt_ends_it(
    tmp_path: Path, use: Callable[[Path], Path], fault: str
) -> None:
    places = places_of_a_run(use(tmp_path / "clean"))
    assert len(places) > 80
    require_no_loss(tmp_path, use, fault, places)


def places_of_a_run(home: Path) -> list[str]:
    attempt(home)  # imports modules
    shutil.rmtree(home)
    with faults.record() as calls:
        finished = attempt(home)
    require_whole(home, finished)
    for function in ("write_atomic", "sync_folder"):
        synced = calls.places[f"os.fsync in kit.storage.files.{function} for kit.storage.run_folder.save"]
        assert synced == len(records(home)), "a power cut may cost a record: the file and its folder must be synced"
    return list(calls.places)


@pytest.mark.usefixtures("empty_report")
@pytest.mark.parametrize("fault", faults.ERRORS)
def test_after_every_fault_of_a_resumed_run_the_next_attempt_ends_it(
    tmp_path: Path, use: Callable[[Path], Path], engine: fakes.FakeEngine, fault: str
) -> None:
    known = places_of_a_run(use(tmp_path / "clean"))
    stop(use(tmp_path / "begun"), engine)
    home = use(tmp_path / "home")
    shutil.copytree(tmp_path / "begun", home)
    with faults.record() as calls:
        attempt(home)
    shutil.rmtree(home)
    # Functions of the folder meet other files than in a new run.
    places = [place for place in calls.places if place not in known or "kit.storage.run_folder" in place]
    assert len(places) > 20
    require_no_loss(tmp_path, use, fault, places)


def stop(home: Path, engine: fakes.FakeEngine) -> None:
    """Leave a run with a search in the cache only, a failed launch, a missing launch, and files of a killed process."""
    interrupt = KeyboardInterrupt()

    def interrupt_the_last(name: str) -> None:
        if name == "launch" and engine.calls.count("launch") == 4:
            raise interrupt

    engine.calls.clear()
    engine.on_call = interrupt_the_last
    engine.worker = lambda request, folder: (fails if request.purpose == "measure" else works)(request, folder)
    assert end_with_fault(home, interrupt) == "exit code 130"
    engine.on_call, engine.worker = lambda name: None, works
    (folder,) = home.glob("reports/*/")
    (search,) = (folder / "tuning").iterdir()
    search.unlink()
    (folder / "work" / "launch" / "io").mkdir(parents=True)
    (folder / "work" / "launch" / "io" / "request.json").touch()
    (folder / "records" / "record.json.1.new").touch()


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("fault", faults.ERRORS)
def test_after_every_fault_of_a_report_the_old_one_is_whole_and_the_next_attempt_writes_it(
    tmp_path: Path, use: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    home = use(tmp_path)
    report = attempt(home).report
    with faults.record() as calls:
        attempt(home)
    whole, before = report.read_text(), records(home)
    places = [place for place in calls.places if "kit.report" in place]
    assert len(places) > 15
    for place in places:
        outcome = end_with_fault(home, faults.ERRORS[fault](), place)
        assert report.read_text() == whole, place
        faults.note(fault, f"run: {place}", outcome, end_without_fault(home, without_ceilings=False))
        assert (report.read_text(), records(home)) == (whole, before), place


@pytest.mark.usefixtures("empty_report")
@pytest.mark.parametrize("fault", ["interrupt", "engine lost", "engine lost for one call"])
def test_after_every_fault_of_an_engine_the_next_attempt_ends_the_run(
    tmp_path: Path, use: Callable[[Path], Path], engine: fakes.FakeEngine, fault: str
) -> None:
    require_whole(tmp_path / "clean", attempt(use(tmp_path / "clean")))
    error = KeyboardInterrupt() if fault == "interrupt" else EngineError("No engine answers.", "Start it.")
    for nth, call in enumerate(list(engine.calls), 1):
        home = use(tmp_path / "home")
        engine.calls.clear()

        def fail(name: str, nth: int = nth) -> None:
            number = len(engine.calls)
            if number == nth or (number > nth and fault == "engine lost"):
                raise error

        engine.on_call = fail
        outcome = end_with_fault(home, error)
        assert engine.calls[nth - 1] == call
        assert outcome != "exit code 0"
        engine.on_call = lambda name: None
        following = end_without_fault(home, without_ceilings=outcome == NO_CEILINGS)
        faults.note(fault, f"engine: {call.split()[0]}", outcome, following)
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
        outcome = end_with_fault(home, ConnectionResetError())
        assert broken.made[nth - 1] == request
        working.there = broken.there
        choose_with(working)
        following = end_without_fault(home, without_ceilings=outcome == NO_CEILINGS)
        faults.note(f"lost {lost}", f"engine: {request}", outcome, following)
        assert working.there == {}, f"a container was left after {request}"
        shutil.rmtree(home)
