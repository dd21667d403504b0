"""Carry out one launch: prove, train, infer, collect the evidence and time single steps.

Or search for the settings of a cell, or measure the machine's ceilings through a framework.
"""

import importlib.util
import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from scenarios import data as data_sets
from scenarios import weights
from scenarios.adapter import Adapter, Arrays, Model, Options, TrainSet
from scenarios.contract import allocators
from scenarios.contract.evidence import Evidence
from scenarios.contract.reasons import Code, Reason, Status
from scenarios.contract.request import REFERENCE_FILE, Request
from scenarios.contract.result import Result, Timings
from scenarios.data.contact_sheet import write_sheet
from scenarios.measuring import ceilings, checkpoints, step_timing, telemetry
from scenarios.measuring.epoch_files import EpochFiles
from scenarios.measuring.held_out import predict_held_out
from scenarios.measuring.inference import infer
from scenarios.measuring.training import train
from scenarios.measuring.window_meter import WindowMeter
from scenarios.prepare import Refused, decode, find_scenario, start_adapter
from scenarios.proof import checks
from scenarios.spec import Scenario
from scenarios.tuning import shared_data, tune
from scenarios.tuning.search import TrialFailed

PROFILED_INFERENCE_S = 1.0
SMOKE_INFERENCE_S = 0.2


@dataclass
class Launch:
    """One launch on its way to a result. draft: the parts of the result that are finished. They survive a failure."""

    request: Request
    io: Path
    data: Path | None
    draft: Result
    started_at: float = field(default_factory=time.monotonic)
    spent: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Print the name of a part of the launch, and store its duration in `spent` as `<name>_s`."""
        start = time.monotonic()
        print(f"[{start - self.started_at:7.2f} s] {name}", flush=True)  # noqa: T201
        yield
        self.spent[f"{name}_s"] = time.monotonic() - start

    def result(self, reason: Reason | None = None) -> Result:
        """Return the result. reason: why the launch stopped; None if it is `ok`."""
        timings = None
        if reason is None and self.request.purpose == "measure":
            known = {f.name: self.spent[f.name] for f in fields(Timings) if f.name in self.spent}
            timings = Timings(**known, total_s=time.monotonic() - self.started_at)
        return replace(self.draft, status=reason.code.status if reason else Status.OK, reason=reason, timings=timings)


def measure_launch(launch: Launch) -> None:
    """Prove and measure the cell. Raise Refused and whatever the framework raises."""
    request = launch.request
    scenario = find_scenario(request)
    check_environment(request)
    with launch.phase("import"):
        adapter = start_adapter(request)
    with launch.phase("data"):
        loaded = data_sets.load(scenario, request.data, launch.data, launch.io, request.budget.test_images)
        test = decode(adapter, loaded.test)
    prove(launch, adapter, scenario)
    if request.full_proof and scenario.augment is not None:  # before training, so that a fault loses no measurement
        launch.draft = replace(launch.draft, augmented=write_sheet(scenario, request.seed, launch.io))
    with launch.phase("build"):
        initial = weights.initial_weights(scenario, request.seed)
        model = adapter.build(scenario, initial)
        initial_digest = weights.digest(model.weights())
        if initial_digest != weights.digest(initial):
            raise Refused(Code.REFERENCE_MISMATCH, "The framework did not keep the initial weights that were loaded.")
    files = epoch_files(request, scenario, launch.io, loaded.digest) if request.budget.epochs is not None else None
    train_and_infer(launch, model, scenario, loaded.train, test, files)
    evidence = Evidence(
        placement=model.placement(),
        versions=adapter.versions(),
        data_kind=loaded.kind,
        data_digest=loaded.digest,
        test_images=len(test.labels),
        initial_weights_digest=initial_digest,
        final_weights_digest=weights.digest(model.weights()),
        environment={name: os.environ.get(name, "") for name in request.environment},
        build=adapter.build_info(),
    )
    launch.draft = replace(launch.draft, evidence=evidence)
    if request.times_steps:
        with launch.phase("step_timing"):  # last, because it continues to train
            timing = step_timing.time_resident_steps(adapter, model, loaded.train, scenario.batch)
            launch.draft = replace(launch.draft, step_timing=timing)


def probe_ceilings(launch: Launch) -> None:
    """Measure the machine's ceilings. Raise Refused and whatever the framework raises."""
    cell = launch.request.cell
    check_environment(launch.request)
    with launch.phase("import"):
        adapter = start_adapter(launch.request)
    with launch.phase("ceilings"):
        launch.draft = replace(launch.draft, ceilings=ceilings.measure(adapter, cell.device, cell.precision))


def tune_launch(launch: Launch) -> None:
    """Search for the fastest settings of the cell. Raise Refused, NotOffered, and what data and search raise."""
    request, folder = launch.request, launch.io / "tuning"
    scenario = find_scenario(request)
    Options.of(request)  # raises NotOffered here: an exception in a fork server would look like a crash
    with launch.phase("data"):
        loaded = data_sets.load(scenario, request.data, launch.data, launch.io, request.budget.test_images)
        shared_data.save(loaded, scenario.batch, folder)
    del loaded
    with launch.phase("search"):
        try:
            launch.draft = replace(launch.draft, tuning=tune.tune(request, launch.io, folder))
        except TrialFailed as error:
            raise Refused(
                Code.WORKER_ERROR,
                f"The search could not begin: {error}",
                "Run the cell in the stock lane. Its record shows the cause.",
            ) from error


def epoch_files(request: Request, scenario: Scenario, folder: Path, data_digest: str) -> EpochFiles:
    """Return the files of a launch with whole epochs. Without safetensors, there are no checkpoints."""
    bound_to = checkpoints.binding(request, data_digest) if has_safetensors() else None
    if bound_to is None:
        print("No checkpoints are written, because the package safetensors is missing.", flush=True)  # noqa: T201
    return EpochFiles(request, scenario.label, folder, bound_to)


def train_and_infer(
    launch: Launch, model: Model, scenario: Scenario, data: TrainSet, test: Arrays, files: EpochFiles | None
) -> None:
    """Train within the budget, then infer with the trained weights. This is the measured part.

    After whole epochs, also predict a sample of the test set.
    """
    budget = launch.request.budget
    meter = WindowMeter(budget, math.ceil(len(data) / scenario.batch))
    with launch.phase("training"):
        start = telemetry.read()
        trained = train(model, scenario, data, test, meter, files)
        launch.draft = replace(launch.draft, training=trained, weights=files.weights if files else [])
        used = telemetry.between(start, telemetry.read(), model.device_peak_bytes())
        launch.draft = replace(launch.draft, telemetry=used)
    steady = meter.windows[meter.steady_from]
    launch.spent["first_step_s"] = meter.first_step_s
    launch.spent["warmup_s"] = max(0.0, steady.start_at - meter.windows[0].start_at - meter.first_step_s)
    with launch.phase("inference"):
        seconds = SMOKE_INFERENCE_S if budget.steps is not None else PROFILED_INFERENCE_S
        launch.draft = replace(launch.draft, inference=infer(model, scenario, test, seconds))
    if budget.epochs is not None:
        launch.draft = replace(launch.draft, held_out=predict_held_out(model, scenario, test))


def has_safetensors() -> bool:
    """Return whether the package is installed. An interpreter of `--env` may lack it."""
    return importlib.util.find_spec("safetensors") is not None


def check_environment(request: Request) -> None:
    """Raise Refused unless the process has every requested variable and the packages that the request needs."""
    for name, value in request.environment.items():
        if os.environ.get(name) != value:
            raise Refused(
                Code.MISSING_PROOF,
                f"The environment variable {name} should be {value!r}, but is {os.environ.get(name)!r}.",
            )
    if library := allocators.absent(request.environment):
        raise Refused(
            Code.MISSING_PROOF,
            f"The library {library} should be preloaded, but is not.",
            "Install it where the launch runs. If the settings come from another machine, tune the cell again instead.",
        )
    if request.keep_weights and not has_safetensors():
        raise Refused(
            Code.WORKER_ERROR,
            "The weights cannot be kept, because the package safetensors is missing.",
            "Install it where the launch runs, or add --no-weights.",
        )


def prove(launch: Launch, adapter: Adapter, scenario: Scenario) -> None:
    """Compare the adapter with the reference. Raise Refused if it computes something else."""
    request = launch.request
    cell, file = request.cell, launch.io / REFERENCE_FILE
    with launch.phase("proof"):
        proof = checks.prove(adapter, scenario, request.seed, cell.precision, file, full=request.full_proof)
        launch.draft = replace(launch.draft, proof=proof)
    if not proof.passed:
        raise Refused(
            Code.REFERENCE_MISMATCH,
            f"{cell.framework} does not compute this scenario's function: {checks.failures(proof)}.",
        )
