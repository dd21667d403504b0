"""What passes between orchestrator and worker: one request file in, one result file out.

Standard library only. Every type here is a frozen dataclass; `scenarios.codec` writes and reads them.
Times are seconds unless the name says milliseconds; `*_at` are readings of the monotonic clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from scenarios.contract.reasons import Reason, Status
from scenarios.contract.request import SCHEMA

# Of an `ok` result, by the purpose of its launch.
PARTS: dict[str, tuple[str, ...]] = {
    "measure": ("timings", "training", "inference", "proof", "evidence", "telemetry"),
    "probe": ("ceilings",),
    "tune": ("tuning",),
}


@dataclass(frozen=True)
class Window:
    """A stretch of training steps between two synchronised clock readings."""

    start_at: float
    seconds: float
    steps: int
    images: int


@dataclass(frozen=True)
class Epoch:
    """One whole epoch. seconds: training alone. train_*: running means over the epoch, as the framework saw them
    (before each update, dropout on); test_*: over the test set after the epoch. Losses in nats, accuracies 0 to 1."""

    index: int
    seconds: float
    images: int
    train_loss: float
    train_accuracy: float
    test_loss: float
    test_accuracy: float


@dataclass(frozen=True)
class Training:
    """windows: all of them, warm-up too; the first is the first step alone. steady_from: index of the first that
    counts. images_per_s: median over steady windows (whole epochs: over epochs after the first where there are
    more). epoch_s: time of one epoch over the real training set; `projected` where no whole epoch was timed.
    epoch_images: images in one epoch of the published set. final_loss: training loss at the end of the last window
    or epoch."""

    windows: list[Window]
    steady_from: int
    images_per_s: float
    epoch_s: float
    projected: bool
    epoch_images: int
    steps: int
    final_loss: float
    epochs: list[Epoch]


@dataclass(frozen=True)
class Inference:
    """latency_ms: each call at batch 1, host array to host array; p50, p90, p99 of it. windows: calls at `batch`.
    test_accuracy and test_loss: of the trained weights on `test_images` images; the launch's training may have
    been far too short for them to mean anything (see the profile)."""

    latency_ms: list[float]
    p50_ms: float
    p90_ms: float
    p99_ms: float
    batch: int
    windows: list[Window]
    images_per_s: float
    test_images: int
    test_loss: float
    test_accuracy: float


@dataclass(frozen=True)
class Check:
    """One comparison with the reference: `error` must not exceed `tolerance`."""

    name: str
    error: float
    tolerance: float
    passed: bool


@dataclass(frozen=True)
class Proof:
    """The launch held against `reference.py`. seconds: what the proof cost. cached: reference values were reused."""

    passed: bool
    checks: list[Check]
    optimizer_form: str
    seed: int
    seconds: float
    cached: bool


@dataclass(frozen=True)
class Placement:
    """What really ran, as the framework itself tells it (or as probed), never as it was asked for.

    device: where the outputs of a training step lie. provider: execution provider or backend. tf32: whether a probe
    product was rounded to TF32 (None on the CPU). threads: the framework's own count of intra-op threads.
    training, loader: what trains and what feeds it, in words for the report. denormals: what a probe on the framework's
    own threads did to numbers below the smallest normal float32 (unknown: in records of version 1 alone). nodes: how
    many nodes of the training graph (eager frameworks: parameter tensors) lie on each provider or device.
    """

    device: str
    device_name: str
    provider: str
    layout: str
    tf32: bool | None
    threads: int
    training: str
    loader: str
    denormals: Literal["kept", "flushed"]
    nodes: dict[str, int]


@dataclass(frozen=True)
class Evidence:
    """placement: see there. versions: package to version, always with `python` and the framework. *_digest: SHA-256
    over content. environment: the requested variables as the process sees them."""

    placement: Placement
    versions: dict[str, str]
    data_kind: str
    data_digest: str
    train_images: int
    test_images: int
    initial_weights_digest: str
    final_weights_digest: str
    environment: dict[str, str]


@dataclass(frozen=True)
class Timings:
    """Where the launch's time went, in seconds: each part once, in the order in which they run."""

    import_s: float
    data_s: float
    proof_s: float
    build_s: float
    first_step_s: float
    warmup_s: float
    training_s: float
    inference_s: float
    total_s: float
    step_timing_s: float = 0.0


@dataclass(frozen=True)
class Telemetry:
    """Of the worker's own process tree while it trained (whole epochs: with their evaluation), which lasted from
    from_at to to_at. cpu_s: user and system time; cpu_cores: that over the wall time. busy_threads: threads of the
    worker's process that computed for at least a twentieth of it. throttled_s: time for which the cgroup was held back
    by its quota, None where it cannot be read. gpu_peak_bytes: the framework's allocator, None on the CPU."""

    from_at: float
    to_at: float
    peak_rss_bytes: int
    cpu_s: float
    cpu_cores: float
    busy_threads: int
    throttled_s: float | None
    gpu_peak_bytes: int | None


@dataclass(frozen=True)
class StepTime:
    """Training steps on one batch that lies on the device: nothing is loaded, shuffled or augmented. seconds: of one
    step, each the mean over a synchronised stretch of steps."""

    batch: int
    seconds: list[float]


@dataclass(frozen=True)
class StepTiming:
    """What a step's time is made of, measured last. resident: at a quarter, half and all of the cell's batch size
    (fewer where these coincide), ascending."""

    resident: list[StepTime]


@dataclass(frozen=True)
class Ceiling:
    """The most that this machine does of one thing, through one framework. value: the best of `samples` (for `launch`
    the least). precision: of the arithmetic, empty where there is none. detail: shapes or sizes, in words.

    matmul, convolution: FLOP/s. memory: B/s read and written by an elementwise kernel on arrays larger than any cache.
    upload: B/s from host to device. launch: s for one trivial kernel. jpeg: photos/s decoded by one core.
    """

    name: Literal["matmul", "convolution", "memory", "upload", "launch", "jpeg"]
    precision: Literal["fp32", "tf32", "bf16", ""]
    unit: Literal["FLOP/s", "B/s", "s", "images/s"]
    value: float
    samples: list[float]
    detail: str


Objective = Literal["training", "latency", "throughput"]


@dataclass(frozen=True)
class Tried:
    """A candidate. settings: those that differ from what the search began with. ratios: its speed over that of the
    beginning, turn by turn. rates: its own, in images/s (latency: calls/s), of each turn. failure: why it was
    given up; empty where it was not."""

    settings: dict[str, str]
    ratios: list[float]
    rates: list[float]
    failure: str = ""


@dataclass(frozen=True)
class Search:
    """A search over settings. objective: what was to be fast: training, one image at a time, or many at once. chosen:
    the settings that it took, none where nothing was faster beyond doubt. tried: in order, what it began with first;
    nothing where no time was left for it. seconds: what it took. untried: values of settings for which there was no
    time."""

    objective: Objective
    chosen: dict[str, str]
    tried: list[Tried]
    seconds: float
    untried: int = 0


@dataclass(frozen=True)
class Tuning:
    """The settings with which a cell is fastest on this machine, and how they were found."""

    settings: dict[str, str]
    searches: list[Search]

    @property
    def broken(self) -> str:
        """Why something else than the candidates decided: what a search began with failed. Empty where they did."""
        began = [search.tried[0].failure for search in self.searches if search.tried]
        return next(filter(None, began), "")

    @property
    def untried(self) -> int:
        """Values of settings that might gain and were not tried, in searches that found nothing."""
        return sum(search.untried for search in self.searches if not search.chosen)


@dataclass(frozen=True)
class Result:
    """What a worker reports. `ok` carries every part that its purpose has; any other status carries a reason and what
    is known so far. step_timing: None if the budget counts steps. ceilings: for a probe. tuning: for a search."""

    key: str
    launch: int
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
    schema: int = SCHEMA

    def missing(self, purpose: str = "measure") -> list[str]:
        """Names of the parts that an `ok` result must have and this one lacks."""
        return [name for name in PARTS[purpose] if not getattr(self, name)]
