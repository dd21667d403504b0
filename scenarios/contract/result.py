"""Define the result: what a worker reports about one launch.

A run has up to millions of these objects, so they have slots, which need less memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from scenarios.contract import allocators
from scenarios.contract.augmented import AugmentedPicture
from scenarios.contract.ceilings import Ceiling
from scenarios.contract.cell import Cell
from scenarios.contract.epochs import KeptWeights
from scenarios.contract.evidence import Evidence
from scenarios.contract.predictions import HeldOutPrediction, Prediction, check_held_out, check_predictions
from scenarios.contract.ranges import Cores, Count, Error, Loss, Positive, PositiveTime, Rate, Share, Time
from scenarios.contract.reasons import Reason, Status
from scenarios.contract.request import SCHEMA, Purpose, Request

# The parts that an `ok` result must have, by the purpose of its launch.
PARTS: dict[Purpose, tuple[str, ...]] = {
    "measure": ("timings", "training", "inference", "proof", "evidence", "telemetry"),
    "probe": ("ceilings",),
    "tune": ("tuning",),
    "predict": ("predictions",),
    "export": ("model_digest",),
}

MIN_P99_SAMPLES = 500  # five samples lie above it; with fewer, it is little more than the slowest call


@dataclass(frozen=True, slots=True)
class Window:
    """Consecutive training steps between two clock readings. The device is synchronized at both.

    boundaries: number of epochs that ended in the window, so that the next one began. Their time is part of `seconds`.
    """

    start_at: Time
    seconds: PositiveTime
    steps: Positive
    images: Positive
    boundaries: Count = 0


def within_epochs(windows: Sequence[Window]) -> list[Window]:
    """Return the windows without an epoch boundary, whose rates are comparable.

    Return all windows if these are fewer than half, because epochs are then so short that boundaries are the rule.
    """
    inner = [window for window in windows if not window.boundaries]
    return inner if 2 * len(inner) >= len(windows) else list(windows)


def with_warm_up(resumed_from: Sequence[int]) -> set[int]:
    """Return the numbers of the epochs that begin a process, and so include its warm-up. resumed_from: see Training."""
    return {1, *(done + 1 for done in resumed_from)}


@dataclass(frozen=True, slots=True)
class Epoch:
    """One whole epoch.

    seconds: training only. train_loss, train_accuracy: running means over the epoch, taken before each update with
    dropout on. test_loss, test_accuracy: over the test set after the epoch. Losses are in nats.
    """

    index: Count
    seconds: Time
    images: Count
    train_loss: Loss
    train_accuracy: Share
    test_loss: Loss
    test_accuracy: Share


@dataclass(frozen=True, slots=True)
class Training:
    """The training part of a launch.

    windows: all windows, including the warm-up; the first window is the first step alone. If the launch was resumed,
    they are those of its last process. steady_from: index of the first window that counts. images_per_s: images of an
    epoch divided by its time, with stalls and the epoch boundary, from the steady windows; with whole epochs, from
    those that are not the first of a process, if there are any. epoch_s: time of one epoch of the published training
    set. projected: whether epoch_s is computed from images_per_s, because no whole epoch was timed or the training set
    is not as large as the published one. steps: number of steps in all. final_loss: training loss, in nats, at the end
    of the last window or epoch. epochs: empty if no whole epoch was trained.

    The following are None in older results. median_images_per_s: median over the steady windows without an epoch
    boundary, or over the whole epochs. boundary_s: extra time of an epoch boundary (end of the iterator, shuffling,
    start of the next one); also None if it cannot be separated. stall_share: share of an epoch's time that is lost
    against `median_images_per_s`, by stalls and by the boundary.

    resumed_from: for each time that the launch was resumed from a checkpoint, the number of epochs that were done.
    ignored_checkpoints: why checkpoints were not continued, one sentence each.
    """

    windows: list[Window]
    steady_from: Count
    images_per_s: Rate
    epoch_s: PositiveTime
    projected: bool
    steps: Count
    final_loss: Loss
    epochs: list[Epoch]
    median_images_per_s: Rate | None = None
    boundary_s: Time | None = None
    stall_share: Share | None = None
    resumed_from: list[Count] = field(default_factory=list)
    ignored_checkpoints: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Inference:
    """The inference part of a launch.

    latency_ms: duration of each call at batch size 1, from host array to host array. p50_ms, p90_ms, p99_ms:
    percentiles of these; p99_ms is None for fewer than MIN_P99_SAMPLES calls. windows: calls at batch size `batch`.
    images_per_s: median over these windows. test_loss (in nats), test_accuracy: of the trained weights on `test_images`
    images. They mean little after a short training.
    """

    latency_ms: list[PositiveTime]
    p50_ms: PositiveTime
    p90_ms: PositiveTime
    p99_ms: PositiveTime | None
    batch: Positive
    windows: list[Window]
    images_per_s: Rate
    test_images: Count
    test_loss: Loss
    test_accuracy: Share


@dataclass(frozen=True, slots=True)
class Check:
    """One comparison with the float64 reference. It passes if `error` is at most `tolerance`."""

    name: str
    error: Error
    tolerance: Error
    passed: bool


@dataclass(frozen=True, slots=True)
class Proof:
    """The comparison of a launch with the reference.

    optimizer_form: see `scenarios.adapter.Adapter`. seconds: duration of the proof. cached: whether the reference
    values came from a file.
    """

    passed: bool
    checks: list[Check]
    optimizer_form: str
    seconds: Time
    cached: bool

    def check(self) -> None:
        """Raise ValueError if what passed contradicts the errors, or if there is no check."""
        for check in self.checks:
            if check.passed != (check.error <= check.tolerance):
                outcome = "passed" if check.passed else "failed"
                error = f"an error of {check.error:.3g} and a tolerance of {check.tolerance:.3g}"
                raise ValueError(f"the check {check.name:.100} {outcome} with {error}")
        if not self.checks:
            raise ValueError("its proof has no checks")
        if self.passed != all(check.passed for check in self.checks):
            raise ValueError(f"its proof {'passed' if self.passed else 'failed'}, but its checks did not")


@dataclass(frozen=True, slots=True)
class Timings:
    """The duration of each part of the launch, in the order in which they run.

    first_step_s and warmup_s are parts of training_s. If the launch was resumed, all are those of its last process.
    """

    import_s: Time
    data_s: Time
    proof_s: Time
    build_s: Time
    first_step_s: Time
    warmup_s: Time
    training_s: Time
    inference_s: Time
    total_s: Time
    step_timing_s: Time = 0.0


@dataclass(frozen=True, slots=True)
class Telemetry:
    """What the worker's own process tree used while it trained, including the evaluation of whole epochs and the files
    that it writes after each. If the launch was resumed, this is about its last process.

    from_at, to_at: start and end of training. peak_rss_bytes: peak of the resident memory since the process began, so
    also in the proof. cpu_s: user and system time. cpu_cores: cpu_s divided by the wall time. busy_threads: threads of
    the worker's process that computed for at least a twentieth of the time. throttled_s: time for which the CPU quota
    stopped the cgroup; None if it cannot be read. gpu_peak_bytes: peak of the framework's allocator since the process
    began; None on the CPU.
    """

    from_at: Time
    to_at: Time
    peak_rss_bytes: Count
    cpu_s: Time
    cpu_cores: Cores
    busy_threads: Count
    throttled_s: Time | None
    gpu_peak_bytes: Count | None


@dataclass(frozen=True, slots=True)
class StepTime:
    """Training steps on one batch that is already on the device. Nothing is loaded, shuffled or augmented.

    seconds: duration of one step. Each value is the mean over several steps between two synchronizations.
    """

    batch: Positive
    seconds: list[PositiveTime]


@dataclass(frozen=True, slots=True)
class StepTiming:
    """The step breakdown, measured last.

    resident: step times at a quarter, half and all of the cell's batch size, ascending, without duplicates.
    """

    resident: list[StepTime]


Objective = Literal["training", "latency", "throughput"]


@dataclass(frozen=True, slots=True)
class Tried:
    """One candidate of a search.

    settings: how they differ from the settings at the start of the search. ratios: for each turn, the candidate's speed
    divided by the speed at the start. rates: for each turn, its speed in images/s (latency: calls/s). failure: why the
    search gave it up, or "".
    """

    settings: dict[str, str]
    ratios: list[Rate]
    rates: list[Rate]
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Search:
    """A search over settings.

    objective: what the search made fast: training, inference of one image, or inference of many images. chosen: the
    settings that it chose; empty if no candidate was significantly faster. tried: the candidates in order. The first
    one is the start of the search. Empty if there was no time left. seconds: duration of the search. untried: number of
    values of settings for which there was no time.
    """

    objective: Objective
    chosen: dict[str, str]
    tried: list[Tried]
    seconds: Time
    untried: Count = 0


@dataclass(frozen=True, slots=True)
class Tuning:
    """The fastest settings of a cell on this machine, and how they were found.

    allowed_s: how long all searches together were allowed to last. None if this is unknown.
    """

    settings: dict[str, str]
    searches: list[Search]
    allowed_s: Time | None = None

    @property
    def broken(self) -> str:
        """Return why the start of a search failed, or "". After such a failure the candidates were not compared."""
        failures = [search.tried[0].failure for search in self.searches if search.tried]
        return next(filter(None, failures), "")

    @property
    def untried(self) -> int:
        """Return how many values were not tried in searches that found nothing."""
        return sum(search.untried for search in self.searches if not search.chosen)


@dataclass(frozen=True, slots=True)
class Result:
    """What a worker reports about the launch with this cell and number.

    An `ok` result has all parts of its purpose. Any other status has a reason and the parts that were finished.
    step_timing: None if the budget counts steps or the proof is not the full one. ceilings: only for a probe. tuning:
    only for a search. weights: the files that were kept. held_out: what the network predicts for some images of the
    test set after whole epochs; empty in older results. augmented: only for the first launch of a cell with
    augmentation; None in older results. predictions: only for a prediction, one for each picture. model_digest: only
    for an export, SHA-256 (hex) of the file.
    """

    cell: Cell
    launch: Positive
    status: Status
    reason: Reason | None = None
    timings: Timings | None = None
    training: Training | None = None
    inference: Inference | None = None
    proof: Proof | None = None
    evidence: Evidence | None = None
    telemetry: Telemetry | None = None
    step_timing: StepTiming | None = None
    ceilings: list[Ceiling] | None = None
    tuning: Tuning | None = None
    predictions: list[Prediction] | None = None
    model_digest: str | None = None
    weights: list[KeptWeights] = field(default_factory=list)
    held_out: list[HeldOutPrediction] = field(default_factory=list)
    augmented: AugmentedPicture | None = None
    schema: int = SCHEMA

    def check_against(self, request: Request) -> None:
        """Raise ValueError if this is not a complete and consistent result of the request.

        The ranges of single numbers are checked when the file is read. The proof and the evidence are checked by
        `kit.execution.classify`.
        """
        if (self.cell, self.launch) != (request.cell, request.launch):
            raise ValueError(f"it is the result of another launch: {self.cell.key:.200}, {self.launch}")
        if self.status is not (self.reason.code.status if self.reason else Status.OK):
            raise ValueError(f"its status {self.status} does not match its reason")
        self._check_parts()
        if self.reason:
            return
        parts = PARTS[request.purpose]
        if request.purpose == "measure" and request.times_steps:
            parts = (*parts, "step_timing")
        if missing := [name for name in parts if not getattr(self, name)]:
            raise ValueError(f"it is ok, but has no {' and no '.join(missing)}")
        if self.training and not self.training.steady_from < len(self.training.windows):
            raise ValueError("it has no steady window")
        if self.inference and not (self.inference.windows and self.inference.latency_ms):
            raise ValueError("it has no inference window or no latency")
        if self.tuning:
            allocators.check(self.tuning.settings)
        if self.predictions is not None:
            check_predictions(self.predictions, request)

    def _check_parts(self) -> None:
        """Raise ValueError if a part that any result may have contradicts itself."""
        if self.proof:
            self.proof.check()
        for kept in self.weights:
            kept.check()
        if self.augmented:
            self.augmented.check()
        check_held_out(self.held_out)
