"""One training step of a cell, taken apart: where its time goes, and what it asks of the machine. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from kit.analysis import peaks
from kit.analysis.ceilings import Ceilings
from kit.analysis.measured_launch import Launch
from kit.model.machine import Machine
from scenarios.contract.request import Request
from scenarios.spec import Conv, Scenario
from scenarios.spec.flops import training_bytes, training_flops


@dataclass(frozen=True)
class Step:
    """One training step of a cell: medians over its launches, times in seconds.

    seconds: end to end, of which the share `waiting` is not there in a step that is `resident`: on a batch that lies
    on the device, at the cell's batch size; fixed + batch * per_image is the line through it and the smaller batches.
    flops, traffic: operations and, at least, bytes to and from memory of one step; weights: the part of the traffic
    that passes over weights, gradients and the optimizer's state. ceilings: of all frameworks the best; own: of its
    framework alone. arithmetic, memory: the ceilings, FLOP/s and B/s, of all its devices together; own_arithmetic: as
    its framework reaches it alone; None where not measured. cores, others: CPUs that the launch and that other
    processes kept busy while it trained; others is None where nobody saw. busy_threads: of the launch.
    """

    launches: Sequence[Launch]
    request: Request
    scenario: Scenario
    machine: Machine
    ceilings: Ceilings
    own: Ceilings
    seconds: float
    waiting: float
    resident: float
    fixed: float
    per_image: float
    flops: float
    weights: float
    traffic: float
    arithmetic: float | None
    own_arithmetic: float | None
    memory: float | None
    cores: float
    others: float | None
    busy_threads: float

    @property
    def arithmetic_share(self) -> float | None:
        """Of a resident step that its arithmetic would take at the ceiling."""
        return self.flops / self.arithmetic / self.resident if self.arithmetic else None

    @property
    def memory_share(self) -> float | None:
        """Of a resident step that its least traffic would take at the ceiling. None, too, where that is more than the
        step takes, or fits in the CPU's last cache: it does not go to memory then."""
        share = self.traffic / self.memory / self.resident if self.memory else None
        return share if share is not None and share <= 1 and not self.fits_in_cache(self.traffic) else None

    @property
    def update(self) -> float | None:
        """Seconds that passing once over weights, gradients and the optimizer's state needs at memory's ceiling; where
        they stay in a cache, it is less."""
        return self.weights / self.memory if self.memory else None

    def fits_in_cache(self, size: float) -> bool:
        """Whether so many bytes do, in the CPUs' last one; never in a GPU's, which the machine does not tell."""
        return self.on_cpu and size <= self.machine.last_cache_bytes

    @property
    def on_cpu(self) -> bool:
        """Whether it was to train there."""
        return self.request.device == "cpu"

    @property
    def device(self) -> str:
        """As sentences name it."""
        return "CPU" if self.on_cpu else "GPU"

    @property
    def sheet(self) -> peaks.Peak | None:
        """What the data sheet promises of the GPU that the framework named; a slice of one (MIG) is none."""
        return None if self.on_cpu else peaks.peak(self.launches[0].evidence.placement.device_name)


def step_of(
    launches: Sequence[Launch], scenario: Scenario, ceilings: Ceilings, own: Ceilings, machine: Machine
) -> Step | None:
    """The step of the cell whose ok launches these are. scenario: as in the catalogue. ceilings: of `ceilings.best`
    over all probes; own: over those of its framework. None where no launch took its step apart (smoke)."""
    taken = [(launch, times) for launch in launches if (times := _resident(launch))]
    if not taken:
        return None
    request = taken[0][0].request
    batch, devices = request.batch, request.devices
    end_to_end = [batch / launch.training.images_per_s for launch, _ in taken]
    resident = [times[batch] for _, times in taken]
    fixed, per_image = _line([point for _, times in taken for point in times.items()])
    weights = float(training_bytes(scenario, 0))
    # Under autocast activations are half as wide; weights and the optimizer's state are not.
    width = 0.5 if request.precision == "bf16" else 1.0
    memory = ceiling(ceilings, request.device, "memory")
    others = [cpus for launch, _ in taken if (cpus := launch.other_cpus) is not None]
    return Step(
        launches=[launch for launch, _ in taken],
        request=request,
        scenario=scenario,
        machine=machine,
        ceilings=ceilings,
        own=own,
        seconds=statistics.median(end_to_end),
        waiting=statistics.median(max(0.0, 1 - r / e) for r, e in zip(resident, end_to_end, strict=True)),
        resident=statistics.median(resident),
        fixed=fixed,
        per_image=per_image,
        flops=float(training_flops(scenario)) * batch,
        weights=weights,
        traffic=weights + width * (training_bytes(scenario, batch) - weights),
        arithmetic=_arithmetic(request, scenario, ceilings),
        own_arithmetic=_arithmetic(request, scenario, own),
        memory=memory and memory * devices,
        cores=statistics.median(launch.telemetry.cpu_cores for launch, _ in taken),
        others=statistics.median(others) if others else None,
        # 0 stands for unknown in records of the first version.
        busy_threads=statistics.median(launch.telemetry.busy_threads or request.working_threads for launch, _ in taken),
    )


def _resident(launch: Launch) -> dict[int, float]:
    """Seconds of one resident step by batch size, the largest of which is the cell's: the median of its samples. Empty
    where the launch lacks the cell's own.

    Where the cell's own lasts longer than a step did in training, which has more to do, the machine was slower when
    the step was taken apart: all sizes are then scaled to what training took."""
    result, batch = launch.record.result, launch.request.batch
    parts = result.step_timing.resident if result and result.step_timing else []
    medians = {part.batch: statistics.median(part.seconds) for part in parts if part.seconds}
    usable = {size: seconds for size, seconds in medians.items() if size <= batch and 0 < seconds < math.inf}
    if batch not in usable:
        return {}
    scale = min(1.0, batch / launch.training.images_per_s / usable[batch])
    return {size: scale * seconds for size, seconds in usable.items()}


def _line(points: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """(fixed, per image) of the least-squares line through (batch, seconds), neither below 0. A single batch size
    tells nothing of a fixed part: it counts as 0."""
    largest = max(batch for batch, _ in points)
    at_largest = statistics.median(seconds for batch, seconds in points if batch == largest)
    if len({batch for batch, _ in points}) < 2:
        return 0.0, at_largest / largest
    slope, intercept = statistics.linear_regression(*zip(*points, strict=True))
    if intercept <= 0:
        return 0.0, at_largest / largest
    return min(intercept, at_largest), max(slope, 0.0)


def ceiling(ceilings: Ceilings, device: str, name: str, precision: str = "") -> float | None:
    """Its value in its own unit; None where it was not measured."""
    found = ceilings.get((device, name, precision))
    return found.value if found else None


def _arithmetic(request: Request, scenario: Scenario, ceilings: Ceilings) -> float | None:
    """FLOP/s of the cell's devices together, by the kind of kernel that most of its arithmetic is."""
    convolves = any(isinstance(layer, Conv) for layer in scenario.layers)
    names = ("convolution", "matmul") if convolves else ("matmul", "convolution")
    values = (ceiling(ceilings, request.device, name, request.precision) for name in names)
    return next((value * request.devices for value in values if value), None)
