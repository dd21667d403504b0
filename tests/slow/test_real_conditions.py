"""Test with real load, real quotas and a real slow loader that a run finds what disturbs a measurement.

These tests need a machine that is otherwise idle, so they run only with `make test-slow`. The same conditions are
simulated in tests/unit/test_conditions.py, for every machine.

The worker is a process of the local engine with the example framework of `tests/example`, which needs only NumPy.
Burners load the CPUs, cgroups have quotas, a network has only a few units, and a loader sleeps.
"""

from __future__ import annotations

import html
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import psutil
import pytest

from kit import assets
from kit.engines.base import Engine
from kit.engines.local import LocalEngine
from kit.environments.package_sources import Sources
from kit.execution import workflow
from kit.host import machine_lock
from kit.model.environment import Environment, Framework
from kit.model.progress import Progress, Silent
from kit.model.record import Record
from kit.planning.plan import Options
from kit.planning.profiles import PROFILES, Profile
from kit.planning.selection import Selection
from scenarios import catalog
from scenarios.contract.cell import Device
from scenarios.contract.reasons import Status
from scenarios.contract.request import Budget
from scenarios.linux import cgroup

ROOT = Path(__file__).parents[2]
# Long enough for several samples of the host and windows of the worker. Ceilings, which would add seconds to each run,
# have no part in what is found here.
BRIEF = Profile("brief", Budget(seconds=2, test_images=100), 1, "tests", ceilings=False)
TINY, FEW_UNITS, MANY_UNITS = "tiny-cnn", "few-units", "many-units"
LATE_S = 0.04
PERIOD_US = 100_000  # of quotas: the kernel's default
IDLE_CPUS = 0.1  # busy with other programs: half of what the kit would tell of

NET = """
from scenarios.spec import Dense, Flatten, Scenario, Sgd

SCENARIO = Scenario(
    name="{name}",
    title="MLP with {units} hidden units",
    study="",
    dataset="mnist",
    image=(28, 28, 1),
    layers=(Flatten(), Dense({units}), Dense(10, activation="softmax")),
    loss="categorical",
    optimizer=Sgd(),
    batch=4,
    epochs=1,
)
"""

# Follows the example's adapter in a copy of it: every batch comes late.
LATE_BATCHES = f"""

def late(self, train, epoch, batches=PlainModel._batches):
    import time

    for batch in batches(self, train, epoch):
        time.sleep({LATE_S})
        yield batch


PlainModel._batches = late
"""

# Computes without end, and tells again and again how much CPU time it had until when.
BURNER = """
import time

while True:
    until = time.monotonic() + 0.05
    while time.monotonic() < until:
        pass
    print(time.monotonic(), time.process_time(), flush=True)
"""


@dataclass(frozen=True)
class Run:
    """A finished run of one launch: its record, and the report."""

    record: Record
    page: str

    def rows(self, section: str) -> list[list[str]]:
        """The rows of all tables in a section of the report, as plain text; none where there is no such section."""
        found = re.search(rf'<section id="{section}">.*?</section>', self.page, re.DOTALL)
        rows = re.findall(r"<tr>(.*?)</tr>", found[0], re.DOTALL) if found else []
        cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL) for row in rows]
        return [[html.unescape(re.sub(r"<[^>]+>", "", cell)) for cell in row] for row in cells]

    def warning(self, pattern: str) -> re.Match[str] | None:
        """The first of the report's warnings in which what was seen matches this."""
        return next((match for row in self.rows("warnings") if (match := re.search(pattern, row[1]))), None)

    def verdict(self) -> tuple[str, str, str]:
        """By the report: what holds the cell back, the evidence, the remedy."""
        headers, row = self.rows("limits")
        told = dict(zip(headers, row, strict=True))
        return told["Held back by"], told["Evidence"], told["Remedy"]

    def other_load(self) -> float:
        """CPUs that others used by the report's warning; 0 where it has none."""
        told = self.warning(
            r"Other processes kept ([\d.]+) of the machine's \d+ logical CPUs busy while the cell trained"
        )
        return float(told[1]) if told else 0.0


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """Assets with the example's framework, the same with a slow loader, and two more nets."""
    folder = tmp_path_factory.mktemp("assets")
    for source in (ROOT, ROOT / "tests/example"):
        for name in ("docker", "scenarios"):
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source / name, folder / name, dirs_exist_ok=True, ignore=ignored)
    adapters = folder / "scenarios/frameworks"
    plain = (adapters / "plain/adapter.py").read_text()
    (adapters / "late").mkdir()
    (adapters / "late/adapter.py").write_text(plain.replace('"plain"', '"late"') + LATE_BATCHES)
    shutil.copytree(folder / "docker/plain", folder / "docker/late")
    for name, units in ((FEW_UNITS, 4), (MANY_UNITS, 512)):
        module = folder / "scenarios/catalog" / f"{name.replace('-', '_')}.py"
        module.write_text(NET.format(name=name, units=units))
    return folder


@pytest.fixture
def measure(site, tmp_path, monkeypatch) -> Callable[..., Run]:
    """Plan, measure and report one cell of a scenario on the CPU."""
    monkeypatch.setattr(assets, "ROOT", site)
    monkeypatch.setattr(catalog, "__path__", [str(site / "scenarios/catalog")])
    monkeypatch.setattr(machine_lock, "PATH", tmp_path / "lock")
    monkeypatch.setenv("KIT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setitem(PROFILES, BRIEF.name, BRIEF)

    def run(
        scenario: str,
        framework: str = "plain",
        batch: int | None = None,
        threads: int | None = None,
        engine: Engine | None = None,
    ) -> Run:
        selection = Selection((scenario,), frameworks=(framework,), devices=("cpu",), batches=batch and (batch,))
        options = Options("local", sys.executable, BRIEF.name, data="synthetic", threads=threads)
        prepared = workflow.prepare(selection, options, Sources())
        engine = engine or LocalEngine(Sources(), sys.executable, site)
        outcome = workflow.start(replace(prepared, engine=engine), tmp_path / uuid.uuid4().hex, Silent())
        (record,) = outcome.analysis.run.records
        assert record.status is Status.OK, record.reason
        return Run(record, outcome.report.read_text())

    return run


def in_peace(measure: Callable[[], Run]) -> Run:
    """Of up to three runs the one with the least load by others: the machine need not be ours alone."""
    runs: list[Run] = []
    while len(runs) < 3 and all(map(Run.other_load, runs)):
        runs.append(measure())
    return min(runs, key=Run.other_load)


@contextmanager
def burning(folder: Path) -> Iterator[Callable[[float, float], float]]:
    """One process for each CPU that does nothing but compute. Yields what tells, after the block, how many CPUs they
    used together between two times."""
    told = [folder / f"burner{cpu}" for cpu in os.sched_getaffinity(0)]

    def used(from_at: float, to_at: float) -> float:
        spent = 0.0
        for file in told:
            at, seconds = np.loadtxt(file.read_text().splitlines()[:-1], unpack=True)
            assert at[0] < from_at < to_at < at[-1], "a burner did not burn all the time"
            spent += float(np.diff(np.interp([from_at, to_at], at, seconds))[0])
        return spent / (to_at - from_at)

    with ExitStack() as running:
        for file in told:
            output = running.enter_context(file.open("w"))
            # A session of its own, as other people's programs have: some kernels share the CPUs out among sessions.
            command = [sys.executable, "-c", BURNER]
            burner = running.enter_context(subprocess.Popen(command, stdout=output, start_new_session=True))
            running.callback(burner.kill)
        while not all(file.stat().st_size for file in told):
            time.sleep(0.01)
        yield used


def test_a_burner_beside_the_run_is_told_of_with_what_it_took(measure, tmp_path):
    with burning(tmp_path) as used:
        run = measure(TINY)
    telemetry, cpus = run.record.result.telemetry, run.record.machine.logical_cpus
    burned = used(telemetry.from_at, telemetry.to_at)
    assert burned > 0.1 * cpus  # there is something to tell of
    # Others' load is all of the load but the launch's own: what burned, and no more than the launch left.
    assert burned - 0.1 * cpus <= run.other_load() <= cpus - telemetry.cpu_cores + 0.1 * cpus
    verdict, evidence, remedy = run.verdict()
    assert verdict == "starved of threads"
    assert f"Other processes used {run.other_load():.1f} of {cpus}." in evidence
    assert remedy.startswith("Stop other programs")


def test_without_a_burner_nothing_is_told_of_one(measure):
    for _ in range(3):
        busy = busy_cpus()
        told = measure(TINY).other_load()
        if told == 0:
            return
        assert max(busy, busy_cpus()) > IDLE_CPUS, f"the machine is idle, but the report tells of {told} CPUs"
    pytest.skip("other programs keep this machine busy all the time")


def busy_cpus() -> float:
    """CPUs that are busy now, over a second in which this process sleeps."""
    return sum(psutil.cpu_percent(1, percpu=True)) / 100


def own_cgroup() -> tuple[int, list[Path]]:
    """Version and folders, the parents' last, of the cgroup that limits this process' CPU time."""
    return cgroup.own_folders("cpu")


@pytest.fixture
def quota() -> Iterator[Callable[[float], Path]]:
    """Make a cgroup with a quota of this many CPUs. Returns its `cgroup.procs`, by which processes enter."""
    version, folders = own_cgroup()
    # In version 2 only some cgroups may have children with quotas.
    able = [f for f in folders if version == 1 or "cpu" in (f / "cgroup.subtree_control").read_text().split()]
    made: list[Path] = []

    def make(cpus: float) -> Path:
        if not able:
            pytest.skip("no cgroup here may have children with a CPU quota")
        folder, quota_us = able[0] / f"kit-test-{uuid.uuid4().hex[:8]}", int(cpus * PERIOD_US)
        # With the most weight that there is, so that the quota and not other load decides what it gets.
        limits = {"cpu.max": f"{quota_us} {PERIOD_US}", "cpu.weight": "10000"}
        if version == 1:
            limits = {"cpu.cfs_period_us": str(PERIOD_US), "cpu.cfs_quota_us": str(quota_us), "cpu.shares": "262144"}
        try:
            folder.mkdir()
            made.append(folder)
            for name, value in limits.items():
                (folder / name).write_text(value)
        except OSError as error:
            pytest.skip(f"no cgroup with a CPU quota may be made here: {error}")
        return folder / "cgroup.procs"

    yield make
    for folder in made:
        folder.rmdir()


@contextmanager
def inside(procs: Path) -> Iterator[None]:
    """This process is in that cgroup until the block ends."""
    _, (home, *_) = own_cgroup()
    procs.write_text(str(os.getpid()))
    try:
        yield
    finally:
        (home / "cgroup.procs").write_text(str(os.getpid()))


class OwnCgroup(LocalEngine):
    """Its workers enter a cgroup first, as a container has one. program: what to start in the interpreter's place."""

    def __init__(self, root: Path, program: Path) -> None:
        super().__init__(Sources(), sys.executable, root)
        self._program = program

    def prepare(self, framework: Framework, device: Device, progress: Progress) -> Environment:
        return replace(super().prepare(framework, device, progress), reference=str(self._program))


def test_a_quota_that_the_plan_does_not_see_throttles_the_launch(measure, quota, site, tmp_path):
    threads = min(2, len(os.sched_getaffinity(0)))
    program = tmp_path / "python"
    enter = f"echo $$ > {shlex.quote(str(quota(threads / 2)))}"
    program.write_text(f'#!/bin/sh\n{enter} && exec {shlex.quote(sys.executable)} "$@"\n')
    program.chmod(0o755)
    run = measure(MANY_UNITS, batch=256, threads=threads, engine=OwnCgroup(site, program))
    assert run.record.request.threads == threads
    withheld = run.warning(
        r"^The CPU quota withheld (\d+) % of the CPU time that the cell requested while it trained\.$"
    )
    assert withheld
    verdict, evidence, remedy = run.verdict()
    assert (verdict, evidence) == ("throttled", withheld[0])
    assert remedy == "Raise the CPU quota, or use at most as many --threads as the quota has CPUs."
    assert not run.warning("A CPU quota grants")


def test_a_quota_that_the_plan_keeps_to_is_what_the_figures_stand_for(measure, quota):
    cpus = len(os.sched_getaffinity(0))
    with inside(quota(cpus / 2)):
        run = measure(TINY)
    assert run.record.machine.quota_cpus == cpus / 2
    assert run.record.request.threads == max(1, cpus // 2)
    told = run.warning(r"^A CPU quota grants ([\d.]+) of the machine's (\d+) logical CPUs")
    assert told
    assert (float(told[1]), int(told[2])) == (cpus / 2, run.record.machine.logical_cpus)
    assert cpus == 1 or run.verdict()[0] != "throttled"


def test_a_net_that_is_too_small_pays_for_the_step_and_not_for_the_images(measure):
    # One thread: with more, this framework splits all batches but those of a single image, which then costs least.
    run = in_peace(lambda: measure(FEW_UNITS, batch=4, threads=1))
    verdict, evidence, remedy = run.verdict()
    assert verdict == "launch-bound", evidence
    fixed = re.search(
        r"^A step takes \S+ .?s, and \S+ .?s of this does not depend on the batch size \((\d+) %", evidence
    )
    assert fixed
    assert 50 < int(fixed[1]) <= 100
    assert "larger batch" in remedy


def test_a_loader_that_is_too_slow_is_told_with_its_share(measure):
    run = in_peace(lambda: measure(TINY, framework="late"))
    verdict, evidence, remedy = run.verdict()
    assert verdict == "input-bound", evidence
    share = re.search(r": (\d+) % of the time goes to loading, shuffling and copying data and to the loop", evidence)
    assert share
    step_s = run.record.request.cell.batch / run.record.result.training.images_per_s
    # All that it slept, within the noise of a step by itself, and the loop's own time: on a CPU that has just been idle
    # a step takes longer than the same step among others, and by how much is the machine's.
    assert 100 * LATE_S / step_s - 6 <= int(share[1]) < 100
    assert "Feed data faster" in remedy
