"""One launch: find the scenario, import the framework, prove, train, infer, collect the evidence, time single steps.

Or, for a probe: import the framework and measure the machine's ceilings through it.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from scenarios import data as data_sets
from scenarios import weights
from scenarios.adapter import Adapter, Model, TrainSet
from scenarios.contract import allocators
from scenarios.contract.reasons import Code, Reason, Status
from scenarios.contract.request import EVENTS_FILE, REFERENCE_FILE, Request
from scenarios.contract.result import (
    Ceiling,
    Evidence,
    Inference,
    Proof,
    Result,
    StepTiming,
    Telemetry,
    Timings,
    Training,
    Tuning,
)
from scenarios.measuring import ceilings, measure, step_timing, telemetry
from scenarios.prepare import Refused, decode, find_scenario, start_adapter
from scenarios.proof import checks
from scenarios.spec import Scenario
from scenarios.tuning import shared_data, tune
from scenarios.tuning.search import TrialFailed

PROFILED_INFERENCE_S = 1.0
SMOKE_INFERENCE_S = 0.2


@dataclass
class Launch:
    """One launch on its way to a result: what is known so far survives a failure."""

    request: Request
    io: Path
    data: Path | None
    started_at: float = field(default_factory=time.monotonic)
    spent: dict[str, float] = field(default_factory=dict)
    proof: Proof | None = None
    training: Training | None = None
    inference: Inference | None = None
    evidence: Evidence | None = None
    telemetry: Telemetry | None = None
    step_timing: StepTiming | None = None
    ceilings: list[Ceiling] | None = None
    tuning: Tuning | None = None

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Announce a part of the launch in events.jsonl, and add its duration to `spent` as `<name>_s`."""
        start = time.monotonic()
        with open(self.io / EVENTS_FILE, "a", encoding="utf-8") as file:
            file.write(json.dumps({"at": start, "phase": name}) + "\n")
        print(f"[{start - self.started_at:7.2f} s] {name}", flush=True)  # noqa: T201
        yield
        self.spent[f"{name}_s"] = time.monotonic() - start

    def result(self, status: Status, reason: Reason | None = None) -> Result:
        """The result file's content as things stand."""
        timings = None
        if status is Status.OK and self.request.purpose == "measure":
            known = {f.name: self.spent[f.name] for f in dataclasses.fields(Timings) if f.name in self.spent}
            timings = Timings(**known, total_s=time.monotonic() - self.started_at)
        return Result(
            key=self.request.key,
            launch=self.request.launch,
            status=status,
            reason=reason,
            timings=timings,
            training=self.training,
            inference=self.inference,
            proof=self.proof,
            evidence=self.evidence,
            telemetry=self.telemetry,
            step_timing=self.step_timing,
            ceilings=self.ceilings,
            tuning=self.tuning,
        )


def measure_launch(launch: Launch) -> None:
    """Prove and measure; fills `launch`. Raises Refused and whatever the framework raises."""
    request = launch.request
    scenario = find_scenario(request)
    check_environment(request)
    with launch.phase("import"):
        adapter = start_adapter(request)
    with launch.phase("data"):
        loaded = data_sets.load(scenario, request.data, launch.data, launch.io, request.budget.test_images)
        test = decode(adapter, loaded.test)
    prove(launch, adapter, scenario)
    with launch.phase("build"):
        initial = weights.initial_weights(scenario, request.seed)
        model = adapter.build(scenario, initial)
        initial_digest = weights.digest(model.weights())
        if initial_digest != weights.digest(initial):
            raise Refused(
                Code.REFERENCE_MISMATCH,
                "The initial weights read back from the framework are not the ones that were loaded.",
                "Report this: the adapter is wrong.",
            )
    train_and_infer(launch, model, scenario, loaded.train, test)
    launch.evidence = Evidence(
        placement=model.placement(),
        versions=adapter.versions(),
        data_kind=loaded.kind,
        data_digest=loaded.digest,
        train_images=len(loaded.train),
        test_images=len(test.labels),
        initial_weights_digest=initial_digest,
        final_weights_digest=weights.digest(model.weights()),
        environment={name: os.environ.get(name, "") for name in request.environment},
    )
    if request.budget.steps is None:
        with launch.phase("step_timing"):  # last: it trains on
            launch.step_timing = step_timing.time_resident_steps(adapter, model, loaded.train, scenario.batch)


def probe_ceilings(launch: Launch) -> None:
    """Measure the machine's ceilings; fills `launch`. Raises Refused and whatever the framework raises."""
    request = launch.request
    check_environment(request)
    with launch.phase("import"):
        adapter = start_adapter(request)
    with launch.phase("ceilings"):
        launch.ceilings = ceilings.measure(adapter, request.device, request.precision)


def tune_launch(launch: Launch) -> None:
    """Find the cell's fastest settings; fills `launch`. Raises Refused, and what data and search raise."""
    request, folder = launch.request, launch.io / "tuning"
    scenario = find_scenario(request)
    with launch.phase("data"):
        loaded = data_sets.load(scenario, request.data, launch.data, launch.io, request.budget.test_images)
        shared_data.save(loaded, scenario.batch, folder)
    del loaded
    with launch.phase("search"):
        try:
            launch.tuning = tune.tune(request, launch.io, folder)
        except TrialFailed as error:
            raise Refused(
                Code.WORKER_ERROR,
                f"The search could not begin: {error}",
                "Run the cell in the stock lane, and see why.",
            ) from error


def train_and_infer(launch: Launch, model: Model, scenario: Scenario, data: TrainSet, test: measure.TestSet) -> None:
    """The measured part: training within the budget, then inference with the weights it left."""
    budget = launch.request.budget
    meter = measure.WindowMeter(budget, math.ceil(len(data) / scenario.batch))
    with launch.phase("training"):
        start = telemetry.read()
        launch.training = measure.train(model, scenario, data, test, meter)
        launch.telemetry = telemetry.between(start, telemetry.read(), model.device_peak_bytes())
    steady = meter.windows[meter.steady_from]
    launch.spent["first_step_s"] = meter.first_step_s
    launch.spent["warmup_s"] = max(0.0, steady.start_at - meter.windows[0].start_at - meter.first_step_s)
    with launch.phase("inference"):
        seconds = SMOKE_INFERENCE_S if budget.steps is not None else PROFILED_INFERENCE_S
        launch.inference = measure.infer(model, scenario, test, seconds)


def check_environment(request: Request) -> None:
    """The engine must have set every requested variable before the process started."""
    for name, value in request.environment.items():
        if os.environ.get(name) != value:
            raise Refused(
                Code.MISSING_PROOF,
                f"The environment variable {name} should be {value!r} and is {os.environ.get(name)!r}.",
                "Report this: the engine did not pass the request's environment on.",
            )
    if library := allocators.absent(request.environment):
        raise Refused(
            Code.MISSING_PROOF,
            f"{library} should be loaded before everything else, and is not.",
            "Install it where the launch runs, or tune the cell anew: the settings may come from another machine.",
        )


def prove(launch: Launch, adapter: Adapter, scenario: Scenario) -> None:
    """Hold the adapter against the reference. Raises Refused where it computes something else."""
    request = launch.request
    with launch.phase("proof"):
        launch.proof = checks.prove(adapter, scenario, request.seed, request.precision, launch.io / REFERENCE_FILE)
    if not launch.proof.passed:
        raise Refused(
            Code.REFERENCE_MISMATCH,
            f"{request.framework} does not compute this scenario's function: {checks.failures(launch.proof)}.",
            "No speed of this launch is shown. If the framework is as shipped with the kit, report this.",
        )
