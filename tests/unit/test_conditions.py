"""Test that a whole run finds what disturbs or limits a measurement, from the plan to the report.

The worker runs as a process of the local engine, with a copy of the framework in `tests/example`. All conditions
are simulated: the worker has a fake clock that only its own steps advance, fake CPU counters, and fake host samples. So
the expected figures are exact and do not depend on the machine.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest

from kit.engines.local import LocalEngine
from kit.environments.package_sources import Sources
from kit.host.machine import usable_cpus
from kit.model.record import HostSamples
from kit.planning.plan import Options
from kit.planning.profiles import Profile
from kit.planning.selection import Selection
from scenarios.contract.request import Budget
from scenarios.linux import cgroup
from tests.measured_runs import MeasuredRun, measure_cell, use_assets
from tests.workers import copy_assets

BRIEF = Profile("brief", Budget(seconds=2, test_images=100), 1, "tests", ceilings=False)
SCENARIO = "tiny-cnn"
PERIOD_US = 100_000  # of CPU quotas: the default of the kernel


@dataclass(frozen=True)
class Conditions:
    """What the worker's clock and counters show.

    fixed_s: seconds of a step that do not depend on the batch. image_s: seconds of a step per image. late_s: seconds
    that each batch of the loader takes. busy: CPUs that each thread of the worker keeps busy. throttled: seconds that
    the quota withholds per second. others: CPUs that other processes keep busy.
    """

    fixed_s: float = 0.0
    image_s: float = 0.001
    late_s: float = 0.0
    busy: float = 1.0
    throttled: float = 0.0
    others: float = 0.0


# Appended to a copy of the example's adapter.
SIMULATION = """
import time

from scenarios.measuring import telemetry, window_meter


class Clock:
    now = time.monotonic()
    threads = 1


def advance(method, fixed_s, image_s):
    def advanced(self, images, *rest):
        Clock.now += fixed_s + image_s * len(images)
        Clock.threads = self._options.threads
        return method(self, images, *rest)

    return advanced


def load_late(self, train, epoch, batches=PlainModel._batches):
    for batch in batches(self, train, epoch):
        Clock.now += {late_s}
        yield batch


def predict_slowly(self, batch, predictor=PlainModel.predictor):
    predict = predictor(self, batch)

    def predict_images(images):
        Clock.now += 0.005
        return predict(images)

    return predict_images


def read():
    threads = {{(number, 0): {busy} * Clock.now for number in range(Clock.threads)}}
    return telemetry.Reading(Clock.now, sum(threads.values()), {throttled} * Clock.now, threads)


time.monotonic = lambda: Clock.now
window_meter.WindowMeter.__init__.__defaults__ = (time.monotonic,)
telemetry.read = read
PlainModel._step = advance(PlainModel._step, {fixed_s}, {image_s})
PlainModel._batches = load_late
PlainModel.predictor = predict_slowly
"""


def fake_sampler(busy: float) -> type:
    """Return a host sampler that reports a constant number of busy CPUs, once per second for one hour."""

    class FakeSampler:
        failure = None

        def __init__(self, gpus: Sequence[str]) -> None:
            self.started_at = 0.0

        def start(self) -> None:
            self.started_at = time.monotonic()

        def stop(self) -> HostSamples:
            at = [self.started_at + second for second in range(3600)]
            return HostSamples(at=at, series={"cpu_busy": [busy] * len(at)}, core_busy=[], cost_s=0.0)

    return FakeSampler


@pytest.fixture
def measure(tmp_path, monkeypatch) -> Callable[..., MeasuredRun]:
    """Return a function that plans, measures and reports one cell on the CPU under simulated conditions."""
    site = tmp_path / "assets"
    copy_assets(site)
    use_assets(site, tmp_path, BRIEF, monkeypatch)
    monkeypatch.setattr(cgroup, "own_folders", lambda controller: (2, []))  # without the quotas of this machine
    adapter = site / "scenarios/frameworks/plain/adapter.py"
    plain = adapter.read_text()

    def run(conditions: Conditions, threads: int | None = None) -> MeasuredRun:
        adapter.write_text(plain + SIMULATION.format(**vars(conditions)))
        selection = Selection((SCENARIO,), frameworks=("plain",), devices=("cpu",))
        options = Options("local", sys.executable, BRIEF.name, data="synthetic", threads=threads)
        busy = conditions.busy * (threads or len(usable_cpus())) + conditions.others
        monkeypatch.setattr("kit.execution.launch.Sampler", fake_sampler(busy))
        engine = LocalEngine(Sources(), sys.executable, site)
        return measure_cell(selection, options, engine, tmp_path)

    return run


def test_the_load_of_other_processes_is_reported_and_starves_the_cell(measure):
    cpus = os.cpu_count() or 1
    others = cpus - 0.5 * len(usable_cpus())
    run = measure(Conditions(busy=0.5, others=others))
    assert run.other_load() == pytest.approx(others, abs=0.06)  # the report shows one decimal
    verdict, evidence, remedy = run.verdict()
    assert verdict == "too little CPU time"
    assert f"Other processes used {run.other_load():.1f} of {cpus}." in evidence
    assert remedy.startswith("Stop other programs")


def test_without_other_load_there_is_no_warning_about_it(measure):
    assert measure(Conditions()).other_load() == 0


def test_a_quota_that_the_plan_does_not_see_throttles_the_launch(measure):
    run = measure(Conditions(busy=0.5, throttled=0.5), threads=1)
    assert run.record.request.threads == 1
    verdict, evidence, remedy = run.verdict()
    assert verdict == "throttling"
    assert evidence == "The CPU quota withheld 50% of the CPU time that the cell requested while it trained."
    assert run.warning(re.escape(evidence))
    assert remedy == "Raise the CPU quota, or use at most as many --threads as the quota has CPUs."
    assert not run.warning("A CPU quota grants")


def test_a_quota_that_the_plan_sees_limits_the_threads_and_is_reported(measure, tmp_path, monkeypatch):
    cpus = len(os.sched_getaffinity(0))
    (tmp_path / "cpu.max").write_text(f"{cpus * PERIOD_US // 2} {PERIOD_US}")
    monkeypatch.setattr(cgroup, "own_folders", lambda controller: (2, [tmp_path]))
    run = measure(Conditions())
    assert run.record.machine.quota_cpus == cpus / 2
    assert run.record.request.threads == max(1, cpus // 2)
    quota = run.warning(r"^A CPU quota grants ([\d.]+) of the machine's (\d+) logical CPUs")
    assert quota
    assert (float(quota[1]), int(quota[2])) == (cpus / 2, run.record.machine.logical_cpus)
    assert run.verdict()[0] != "throttling"


def test_a_network_that_is_too_small_is_launch_bound(measure):
    run = measure(Conditions(fixed_s=0.008, image_s=0.002 / 32), threads=1)
    assert run.record.request.cell.batch == 32
    verdict, evidence, remedy = run.verdict()
    assert verdict == "fixed cost per step"
    assert re.match(
        r"A step takes 10(\.0+)? ms\. 8(\.0+)? ms of the step does not depend on the batch size \(80%", evidence
    )
    assert "larger batch" in remedy


def test_a_slow_loader_is_input_bound_with_its_share(measure):
    run = measure(Conditions(image_s=0.001, late_s=0.032))
    assert run.record.request.cell.batch == 32
    verdict, evidence, remedy = run.verdict()
    assert verdict == "waiting for data"
    assert ": 50% of the time goes to loading, shuffling and copying data and to the loop" in evidence
    assert "so that fewer batches are prepared and copied." in remedy
    assert "Without waiting for data, training would speed up 2.0×." in remedy
