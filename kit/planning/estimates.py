"""What things typically cost: the one table behind estimates and default deadlines. Rough on purpose.

A launch is modelled as a start (process, imports, data, proof, compilation), a fixed cost per step, and arithmetic at
an effective rate. The figures are rounded from launches on a machine with 2 CPU cores with AVX-512 (CPU) and stand for
one mid-range GPU (CUDA); on other machines they are off by a factor of a few, which is why deadlines are generous.
"""

from __future__ import annotations

from dataclasses import dataclass

from kit.model.environment import Device
from scenarios.contract import allocators
from scenarios.contract.request import Budget
from scenarios.spec import DATASETS, Scenario
from scenarios.spec.flops import forward_flops


@dataclass(frozen=True)
class Speed:
    """start_s: seconds before the first step. step_s: cost of a step beside its arithmetic. gflops: effective
    10^9 floating-point operations a second of a training step."""

    start_s: float
    step_s: float
    gflops: float


@dataclass(frozen=True)
class EnvironmentCost:
    """Of making one environment from empty caches. seconds: without the download. bytes: on disk."""

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
        "tensorflow": EnvironmentCost(90, 6_000_000_000),
        "torch": EnvironmentCost(90, 7_000_000_000),
    },
}

PHOTO_S = 0.001  # decode, scale and augment one photo, all CPU cores together
PROBE_S = 8  # the kernels of one probe of the ceilings, once the framework is up
WARMUP_STEPS = 2  # the first step and one more
TO_STEADY = 1.2  # training until enough of it is steady, over what must be
STEP_TIMING_S, STEP_TIMING_STEPS = (
    1.5,
    12,
)  # device-resident steps: stretches of fixed length, and steps of the whole batch
INFERENCE_S = 4  # latency and throughput windows with their warm-up
REFERENCE_GFLOPS = 5  # numpy in float64, for the proof
REFERENCE_PASSES = 8  # forward and backward passes of the reference in one proof, in forward passes
DOWNLOAD_BYTES_PER_S = 12_500_000  # 100 Mbit/s
COMPRESSION = 0.4  # bytes of the wheels for each byte on disk


def start_seconds(framework: str, device: Device) -> float:
    """Typical seconds before the first step of a launch. An unknown framework is taken for the slowest known."""
    return _speed(framework, device).start_s


def search_seconds(framework: str, device: Device, tune_s: float) -> float:
    """Typical seconds of a search of `tune_s`, before which, on the CPU, a process for each allocator that there may be
    imports the framework."""
    processes = len(allocators.VARIABLES) if device == "cpu" else 1
    return tune_s + processes * start_seconds(framework, device)


def launch_seconds(scenario: Scenario, framework: str, device: Device, batch: int, budget: Budget) -> float:
    """Typical seconds of one launch. An unknown framework is taken for the slowest that is known."""
    speed = _speed(framework, device)
    dataset = DATASETS[scenario.dataset]
    photo_s = PHOTO_S if dataset.shape is None else 0.0
    image_s = forward_flops(scenario) / (speed.gflops * 1e9)
    step_s = speed.step_s + batch * (3 * image_s + photo_s)  # backward costs about two forward passes
    tested = budget.test_images or dataset.test
    proof_s = REFERENCE_PASSES * scenario.proof_batch * forward_flops(scenario) / (REFERENCE_GFLOPS * 1e9)
    seconds = speed.start_s + proof_s + INFERENCE_S + tested * (image_s + photo_s) + WARMUP_STEPS * step_s
    step_timing_s = STEP_TIMING_S + STEP_TIMING_STEPS * (speed.step_s + batch * 3 * image_s)
    if budget.epochs is not None:
        steps = -(-dataset.train // batch)
        return seconds + budget.epochs * (steps * step_s + tested * image_s) + step_timing_s
    if budget.steps is not None:
        return seconds + budget.steps * step_s
    assert budget.seconds is not None, "a budget limits steps, seconds or epochs"
    return seconds + max(TO_STEADY * budget.seconds, step_s) + step_timing_s


def _speed(framework: str, device: Device) -> Speed:
    return SPEEDS[device].get(framework) or min(SPEEDS[device].values(), key=lambda s: s.gflops)


def environment_cost(framework: str, device: Device) -> EnvironmentCost:
    """Typical cost of making an environment from nothing, download included; unknown: the largest that is known."""
    known = ENVIRONMENTS[device]
    cost = known.get(framework) or max(known.values(), key=lambda c: c.bytes)
    return EnvironmentCost(cost.seconds + cost.bytes * COMPRESSION / DOWNLOAD_BYTES_PER_S, cost.bytes)
