"""Estimate the time and disk space of a plan. Default timeouts use the same figures.

The model of a launch has a start (process, imports, data, proof, compilation), a fixed cost per step, and arithmetic at
an effective rate. The figures for the CPU are rounded from launches on a machine with 2 CPU cores with AVX-512. Those
for CUDA stand for one mid-range GPU. On other machines they are wrong by a factor of a few, so timeouts are generous.
"""

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from kit.model.environment import EnvironmentKey
from kit.model.formatting import format_about, format_count, format_disk, format_duration
from kit.model.plan import Plan, PlannedLaunch
from kit.planning.catalog import find_scenario
from kit.planning.profiles import PROFILES, Profile, budget, search_budget
from scenarios.catalog import Scenarios, scenario_of
from scenarios.contract import allocators
from scenarios.contract.cell import Device
from scenarios.contract.request import Budget, Request
from scenarios.spec import DATASETS, Scenario, parameters
from scenarios.spec.flops import forward_flops, state_tensors


@dataclass(frozen=True)
class Speed:
    """Typical speed of a framework on a device.

    start_s: seconds before the first step. step_s: seconds per step in addition to its arithmetic. gflops: effective
    rate of a training step, in 10^9 floating-point operations per second.
    """

    start_s: float
    step_s: float
    gflops: float


@dataclass(frozen=True)
class EnvironmentCost:
    """Cost to make one environment from empty caches. seconds: without the download. bytes: disk space."""

    seconds: float
    bytes: int


SPEEDS: dict[Device, dict[str, Speed]] = {
    "cpu": {
        "onnxruntime": Speed(3, 0.0005, 100),
        "tensorflow": Speed(8, 0.002, 120),
        "torch": Speed(5, 0.001, 120),
    },
    "cuda": {
        "onnxruntime": Speed(8, 0.001, 4000),
        "tensorflow": Speed(20, 0.003, 4000),
        "torch": Speed(12, 0.001, 4000),
    },
}

ENVIRONMENTS: dict[Device, dict[str, EnvironmentCost]] = {
    "cpu": {
        "onnxruntime": EnvironmentCost(15, 500_000_000),
        "tensorflow": EnvironmentCost(35, 1_900_000_000),
        "torch": EnvironmentCost(30, 1_500_000_000),
    },
    "cuda": {
        "onnxruntime": EnvironmentCost(40, 3_000_000_000),
        "tensorflow": EnvironmentCost(90, 6_800_000_000),
        "torch": EnvironmentCost(90, 5_200_000_000),
    },
}

PHOTO_S = 0.001  # decode, scale and augment one photo on all CPU cores
PROBE_S = 8  # kernels of one probe of the ceilings, without the start of the framework
WARMUP_STEPS = 2  # the first step and one more
TO_STEADY = 1.2  # time of the whole training, relative to the required steady time
STEADY_STEPS = 5  # slow steps need more than the required time, up to MAX_BUDGETS times as much
MAX_BUDGETS = 10
STEP_TIMING_S = 1.5  # step timing on device-resident data: stretches of fixed length ...
STEP_TIMING_STEPS = 12  # ... and steps with the whole batch
INFERENCE_S = 4  # latency and throughput windows with their warm-up
REFERENCE_GFLOPS = 5  # numpy in float64, for the proof
REFERENCE_PASSES = 8  # passes of the reference in the full proof, counted in forward passes; other proofs have one
DOWNLOAD_BYTES_PER_S = 12_500_000  # 100 Mbit/s
KEPT_FILES = 2  # weights of the last and the best epoch
CHECKPOINTS = 2  # of the launch that runs
COMPRESSION: dict[Device, float] = {"cpu": 0.4, "cuda": 0.55}  # bytes of wheels per byte on disk


def start_seconds(framework: str, device: Device) -> float:
    """Return typical seconds before the first step. An unknown framework counts as the slowest known one."""
    return _speed(framework, device).start_s


def search_seconds(framework: str, device: Device, limit: Budget) -> float:
    """Return typical seconds of a search with this budget.

    On the CPU, one process per allocator imports the framework before the search, and the trials start fast. On a GPU,
    the context and the compilers take most of a start, and each trial needs them.
    """
    start_s = start_seconds(framework, device)
    if device == "cpu":
        return limit.search_seconds(0.0) + len(allocators.VARIABLES) * start_s
    return limit.search_seconds(start_s) + start_s


def launch_seconds(
    scenario: Scenario, framework: str, device: Device, batch: int, budget: Budget, *, first: bool
) -> float:
    """Return typical seconds of one launch. An unknown framework counts as the slowest known one.

    first: whether this is the first launch of the cell, which has the full proof and times single steps.
    """
    speed = _speed(framework, device)
    dataset = DATASETS[scenario.dataset]
    photo_s = PHOTO_S if dataset.shape is None else 0.0
    image_s = forward_flops(scenario) / (speed.gflops * 1e9)
    step_s = speed.step_s + batch * (3 * image_s + photo_s)  # backward costs about two forward passes
    tested = budget.test_images or dataset.test
    passes = REFERENCE_PASSES if first else 1
    proof_s = passes * scenario.proof_batch * forward_flops(scenario) / (REFERENCE_GFLOPS * 1e9)
    seconds = speed.start_s + proof_s + INFERENCE_S + tested * (image_s + photo_s) + WARMUP_STEPS * step_s
    if budget.steps is not None:
        return seconds + budget.steps * step_s
    if first:
        seconds += STEP_TIMING_S + STEP_TIMING_STEPS * (speed.step_s + batch * 3 * image_s)
    if budget.epochs is not None:
        steps = -(-dataset.train // batch)
        return seconds + budget.epochs * (steps * step_s + tested * image_s)
    assert budget.seconds is not None, "a budget limits steps, seconds or epochs"
    slow_s = min(STEADY_STEPS * step_s, MAX_BUDGETS * budget.seconds)
    return seconds + max(TO_STEADY * budget.seconds, slow_s, step_s)


def request_seconds(request: Request, scenarios: Scenarios) -> float:
    """Return typical seconds of one launch, of a probe of the ceilings, or of a search for settings.

    scenarios: the catalog, which has the scenario of the request.
    """
    cell = request.cell
    if request.purpose == "probe":
        return PROBE_S + start_seconds(cell.framework, cell.device)
    if request.purpose == "tune":
        return search_seconds(cell.framework, cell.device, request.budget)
    scenario = scenario_of(cell, scenarios)
    assert scenario is not None, "the request was made with it"
    return launch_seconds(scenario, cell.framework, cell.device, cell.batch, request.budget, first=request.launch == 1)


class Pace:
    """Estimate the time of launches that are still to come, from typical seconds and from those that were ok.

    The typical seconds of a launch are scaled by the ratio of measured to typical seconds: of the latest launch of its
    cell, or else of all launches. A first launch has a full proof, so it takes longer than the next one.
    """

    def __init__(self) -> None:
        self._scales: dict[str, float] = {}
        self._typical_s = self._measured_s = 0.0

    def add(self, key: str, typical_s: float, measured_s: float) -> None:
        """Add a launch that did all of its work. key: of its cell."""
        self._scales[key] = measured_s / typical_s
        self._typical_s += typical_s
        self._measured_s += measured_s

    def left_s(self, coming: Iterable[tuple[str, float]]) -> float:
        """Return the seconds of these launches. coming: key of the cell, and typical seconds of the launch."""
        usual = self._measured_s / self._typical_s if self._typical_s else 1.0
        return sum(self._scales.get(key, usual) * typical_s for key, typical_s in coming)


def _speed(framework: str, device: Device) -> Speed:
    return SPEEDS[device].get(framework) or min(SPEEDS[device].values(), key=lambda s: s.gflops)


def environment_cost(framework: str, device: Device) -> EnvironmentCost:
    """Return the typical cost to make an environment, with the download. An unknown framework costs the maximum."""
    known = ENVIRONMENTS[device]
    cost = known.get(framework) or max(known.values(), key=lambda c: c.bytes)
    return EnvironmentCost(cost.seconds + cost.bytes * COMPRESSION[device] / DOWNLOAD_BYTES_PER_S, cost.bytes)


def weights_bytes(launches: Collection[PlannedLaunch], plan: Plan, scenarios: Scenarios) -> int:
    """Return the size of the weights that these launches keep, and of the checkpoints of the largest one."""
    found = [find_scenario(launch, scenarios) for launch in launches if not launch.speed_only]
    sizes = [4 * sum(math.prod(p.shape) for p in parameters(scenario)) for scenario in found]
    checkpoints = [
        CHECKPOINTS * size * (1 + state_tensors(scenario.optimizer))
        for size, scenario in zip(sizes, found, strict=True)
    ]
    return KEPT_FILES * plan.keep_weights * sum(sizes) + max(checkpoints, default=0)


@dataclass(frozen=True)
class Estimate:
    """Total time and disk space of a plan. lines: the parts of the totals, for people."""

    seconds: float
    disk_bytes: int
    lines: tuple[str, ...]


def estimate(
    plan: Plan,
    scenarios: Scenarios,
    ready: Collection[EnvironmentKey] = (),
    left_out: Collection[EnvironmentKey] = (),
    *,
    runs: int = 1,
) -> Estimate:
    """Return the rough time and disk space of a plan, without downloads of data sets.

    ready: environments that exist. left_out: environments whose launches will be skipped. runs: number of runs that are
    measured in the same rounds. Only the first one builds environments and searches for settings.
    """
    launches = [launch for launch in plan.launches if launch.environment_key not in left_out]
    used = {launch.environment_key for launch in launches}
    needed = sorted(used - set(ready))
    costs = [environment_cost(framework, device) for framework, device in needed]
    building_s, building_bytes = sum(c.seconds for c in costs), sum(c.bytes for c in costs)
    profile = PROFILES[plan.profile]
    measuring_s = runs * sum(planned_seconds(launch, profile, plan.epochs, scenarios) for launch in launches)
    lines = [f"{format_count(runs * len(launches), 'launch')}: {format_about(measuring_s)}"]
    if plan.budget_s is not None and plan.budget_s > measuring_s:
        lines.append(f"More launches of cells with wide intervals, for up to {format_duration(plan.budget_s)} in total")
        measuring_s = plan.budget_s
    if searched := {x.key: x for x in launches if x.cell.lane == "tuned" and x.key not in plan.pinned}:
        limit = search_budget(plan.tune_s, plan.timeout_s)
        tuning_s = sum(search_seconds(x.cell.framework, x.cell.device, limit) for x in searched.values())
        count = format_count(len(searched), "search")
        lines.append(f"{count} for settings, unless they are cached: {format_about(tuning_s)} with start-up")
        if plan.pinned:
            lines.append(f"Searched, because the file of settings lacks them: {', '.join(searched)}")
        measuring_s += tuning_s
    if profile.ceilings:
        probes = {(launch.cell.framework, launch.cell.device, launch.cell.precision) for launch in launches}
        probing_s = runs * sum(PROBE_S + start_seconds(framework, device) for framework, device, _ in probes)
        count = format_count(runs * len(probes), "probe")
        lines.append(f"{count} of this machine's ceilings: {format_about(probing_s)}")
        measuring_s += probing_s
    kept_bytes = runs * weights_bytes(launches, plan, scenarios) if profile.budget is None else 0
    if kept_bytes:
        what = "Trained weights and checkpoints" if plan.keep_weights else "Checkpoints"
        lines.append(f"{what}: {format_disk(kept_bytes)}")
    if needed:
        names = ", ".join(f"{framework} {device}" for framework, device in needed)
        lines.append(
            f"{format_count(len(needed), 'environment')} to build ({names}): "
            f"{format_about(building_s)}, {format_disk(building_bytes)}"
        )
    return Estimate(measuring_s + building_s, building_bytes + kept_bytes, tuple(lines))


def planned_seconds(launch: PlannedLaunch, profile: Profile, epochs: int | None, scenarios: Scenarios) -> float:
    """Return typical seconds of a planned launch. epochs: of the plan."""
    scenario = find_scenario(launch, scenarios)
    limit = budget(profile, launch.epochs_in(epochs), scenario)
    cell = launch.cell
    return launch_seconds(scenario, cell.framework, cell.device, cell.batch, limit, first=launch.launch == 1)
