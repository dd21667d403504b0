"""Test with real load, real quotas and a real slow loader that a run finds what disturbs a measurement.

These tests need a machine that is otherwise idle, so they run only with `make test-slow`. The same conditions are
simulated in tests/unit/test_conditions.py, for every machine.

The worker is a process of the local engine with the example framework of `tests/example`, which needs only NumPy.
Burners load the CPUs, cgroups have quotas, a network has only a few units, and a loader sleeps.
"""

from __future__ import annotations

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
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest

from kit.engines.base import Engine
from kit.engines.local import LocalEngine
from kit.environments.package_sources import Sources
from kit.model.environment import Environment, Framework
from kit.model.progress import Progress
from kit.planning.plan import Options
from kit.planning.profiles import Profile
from kit.planning.selection import Selection
from scenarios.contract.cell import Device
from scenarios.contract.request import Budget
from scenarios.linux import cgroup
from tests.measured_runs import MeasuredRun, measure_cell, use_assets
from tests.workers import copy_assets

# Long enough for several samples of the host and windows of the worker. Without ceilings, which take seconds.
BRIEF = Profile("brief", Budget(seconds=2, test_images=100), 1, "tests", ceilings=False)
TINY, FEW_UNITS, MANY_UNITS = "tiny-cnn", "few-units", "many-units"
LATE_S = 0.04
PERIOD_US = 100_000  # of quotas: the kernel's default
IDLE_CPUS = 0.1  # busy with other programs: half of the load that causes a warning

NET = """
from scenarios.spec import Dense, Flatten, Scenario, Sgd

SCENARIO = Scenario(
    name="{name}",
    title="MLP with {units} hidden units",
    dataset="mnist",
    image=(28, 28, 1),
    layers=(Flatten(), Dense({units}), Dense(10, activation="softmax")),
    loss="categorical",
    optimizer=Sgd(),
    batch=4,
    epochs=1,
)
"""

# Appended to a copy of the example's adapter: every batch is late.
LATE_BATCHES = f"""

def late(self, train, epoch, batches=PlainModel._batches):
    import time

    for batch in batches(self, train, epoch):
        time.sleep({LATE_S})
        yield batch


PlainModel._batches = late
"""

# Computes until it is killed. Prints the time and its CPU time so far, again and again.
BURNER = """
import time

while True:
    until = time.monotonic() + 0.05
    while time.monotonic() < until:
        pass
    print(time.monotonic(), time.process_time(), flush=True)
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """Return assets with the example's framework, the same framework with a slow loader, and two more networks."""
    folder = tmp_path_factory.mktemp("assets")
    copy_assets(folder)
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
def measure(site, tmp_path, monkeypatch) -> Callable[..., MeasuredRun]:
    """Return a function that plans, measures and reports one cell on the CPU."""
    use_assets(site, tmp_path, BRIEF, monkeypatch)

    def run(
        scenario: str,
        framework: str = "plain",
        batch: int | None = None,
        threads: int | None = None,
        engine: Engine | None = None,
    ) -> MeasuredRun:
        selection = Selection((scenario,), frameworks=(framework,), devices=("cpu",), batches=batch and (batch,))
        options = Options("local", sys.executable, BRIEF.name, data="synthetic", threads=threads)
        engine = engine or LocalEngine(Sources(), sys.executable, site)
        return measure_cell(selection, options, engine, tmp_path)

    return run


def in_peace(measure: Callable[[], MeasuredRun]) -> MeasuredRun:
    """Return the run with the least load by other processes, out of at most three."""
    runs: list[MeasuredRun] = []
    while len(runs) < 3 and all(map(MeasuredRun.other_load, runs)):
        runs.append(measure())
    return min(runs, key=MeasuredRun.other_load)


@contextmanager
def burning(folder: Path) -> Iterator[Callable[[float, float], float]]:
    """Start one process per CPU that only computes.

    Yield a function to call after the block. It returns the CPUs that they used together between two times.
    """
    logs = [folder / f"burner{cpu}" for cpu in os.sched_getaffinity(0)]

    def used(from_at: float, to_at: float) -> float:
        spent = 0.0
        for file in logs:
            at, seconds = np.loadtxt(file.read_text().splitlines()[:-1], unpack=True)
            assert at[0] < from_at < to_at < at[-1], "a burner did not burn all the time"
            spent += float(np.diff(np.interp([from_at, to_at], at, seconds))[0])
        return spent / (to_at - from_at)

    with ExitStack() as running:
        for file in logs:
            output = running.enter_context(file.open("w"))
            # A new session, as for programs of other users: some kernels share the CPUs among sessions.
            command = [sys.executable, "-c", BURNER]
            burner = running.enter_context(subprocess.Popen(command, stdout=output, start_new_session=True))
            running.callback(burner.kill)
        while not all(file.stat().st_size for file in logs):
            time.sleep(0.01)
        yield used


def test_the_load_of_other_processes_is_reported_with_its_size(measure, tmp_path):
    with burning(tmp_path) as used:
        run = measure(TINY)
    telemetry, cpus = run.record.result.telemetry, run.record.machine.logical_cpus
    burned = used(telemetry.from_at, telemetry.to_at)
    assert burned > 0.1 * cpus  # enough for a warning
    # The load of others is at least what the burners used, and at most what the launch left.
    assert burned - 0.1 * cpus <= run.other_load() <= cpus - telemetry.cpu_cores + 0.1 * cpus
    verdict, evidence, remedy = run.verdict()
    assert verdict == "starved of threads"
    assert f"Other processes used {run.other_load():.1f} of {cpus}." in evidence
    assert remedy.startswith("Stop other programs")


def test_without_other_load_there_is_no_warning_about_it(measure):
    for _ in range(3):
        busy = busy_cpus()
        load = measure(TINY).other_load()
        if load == 0:
            return
        assert max(busy, busy_cpus()) > IDLE_CPUS, f"the machine is idle, but the report shows a load of {load} CPUs"
    pytest.skip("other programs keep this machine busy all the time")


def busy_cpus() -> float:
    """Return the number of busy CPUs during one second in which this process sleeps."""
    return sum(psutil.cpu_percent(1, percpu=True)) / 100


def own_cgroup() -> tuple[int, list[Path]]:
    """Return version and folders of the cgroup that limits the CPU time of this process. Parents come last."""
    return cgroup.own_folders("cpu")


@pytest.fixture
def quota() -> Iterator[Callable[[float], Path]]:
    """Return a function that makes a cgroup with a quota, in CPUs. It returns the file `cgroup.procs`, to enter it."""
    version, folders = own_cgroup()
    # In version 2 only some cgroups may have children with quotas.
    able = [f for f in folders if version == 1 or "cpu" in (f / "cgroup.subtree_control").read_text().split()]
    made: list[Path] = []

    def make(cpus: float) -> Path:
        if not able:
            pytest.skip("no cgroup here may have children with a CPU quota")
        folder, quota_us = able[0] / f"kit-test-{uuid.uuid4().hex[:8]}", int(cpus * PERIOD_US)
        # With the largest weight, so that the quota limits the group and not the load of others.
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
    """Keep this process in that cgroup until the block ends."""
    _, (home, *_) = own_cgroup()
    procs.write_text(str(os.getpid()))
    try:
        yield
    finally:
        (home / "cgroup.procs").write_text(str(os.getpid()))


class OwnCgroup(LocalEngine):
    """Let workers enter a cgroup first, as in a container. program: what to start instead of the interpreter."""

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


def test_a_quota_that_the_plan_sees_limits_the_threads_and_is_reported(measure, quota):
    cpus = len(os.sched_getaffinity(0))
    with inside(quota(cpus / 2)):
        run = measure(TINY)
    assert run.record.machine.quota_cpus == cpus / 2
    assert run.record.request.threads == max(1, cpus // 2)
    match = run.warning(r"^A CPU quota grants ([\d.]+) of the machine's (\d+) logical CPUs")
    assert match
    assert (float(match[1]), int(match[2])) == (cpus / 2, run.record.machine.logical_cpus)
    assert cpus == 1 or run.verdict()[0] != "throttled"


def test_a_network_that_is_too_small_is_launch_bound(measure):
    # One thread: with more, this framework splits every batch except one of a single image, which then costs least.
    run = in_peace(lambda: measure(FEW_UNITS, batch=4, threads=1))
    verdict, evidence, remedy = run.verdict()
    assert verdict == "launch-bound", evidence
    fixed = re.search(r"^A step takes .+ \S+ .?s of the step does not depend on the batch size \((\d+)%", evidence)
    assert fixed
    assert 35 <= int(fixed[1]) <= 100  # half of the step on loaded data, which is at least 70% of the whole
    assert "larger batch" in remedy


def test_a_loader_that_is_too_slow_is_reported_with_its_share(measure):
    run = in_peace(lambda: measure(TINY, framework="late"))
    verdict, evidence, remedy = run.verdict()
    assert verdict == "input-bound", evidence
    share = re.search(r": (\d+)% of the time goes to loading, shuffling and copying data and to the loop", evidence)
    assert share
    step_s = run.record.request.cell.batch / run.record.result.training.images_per_s
    # At least the time that the loader slept, within noise. There is no upper bound: a step takes longer on a CPU that
    # has just been idle, and the difference depends on the machine.
    assert 100 * LATE_S / step_s - 6 <= int(share[1]) < 100
    assert "Feed data faster" in remedy
