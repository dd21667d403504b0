"""Break one training step of a cell down: where its time goes, and what it demands of the machine. No input or
output."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from kit.analysis import peaks
from kit.analysis.ceilings import Ceilings, ceiling_value
from kit.analysis.measured_launch import MeasuredLaunch
from kit.model.machine import Machine
from scenarios.contract.request import Request
from scenarios.spec import Conv, Scenario
from scenarios.spec.flops import training_bytes, training_flops


@dataclass(frozen=True)
class Step:
    """One training step of a cell, as medians over the launches that timed their steps.

    In a run, this is the first launch of a cell that is ok, because only it has the full proof.

    step_s: end-to-end time. resident_s: time of a step on a batch that is already on the device, at the cell's batch
    size. input_share: share of step_s by which it exceeds resident_s. fixed_s + batch * per_image_s: the line through
    resident_s and the times at smaller batch sizes.

    flops: operations of one step. traffic_bytes: lower bound of the bytes that one step moves to and from memory.
    weight_bytes: the part of the traffic for weights, gradients and optimizer state.

    ceilings: the best of all frameworks. own_ceilings: those of the cell's framework. flops_ceiling (FLOP/s) and
    memory_ceiling (B/s) are for all devices of the cell together, own_flops_ceiling is for its framework alone. None if
    not measured.

    busy_cpus, other_cpus: CPUs that the launch and other processes kept busy while it trained. other_cpus is None if
    not measured. busy_threads: busy threads of the launch.
    """

    launches: Sequence[MeasuredLaunch]
    request: Request
    scenario: Scenario
    machine: Machine
    ceilings: Ceilings
    own_ceilings: Ceilings
    step_s: float
    input_share: float
    resident_s: float
    fixed_s: float
    per_image_s: float
    flops: float
    weight_bytes: float
    traffic_bytes: float
    flops_ceiling: float | None
    own_flops_ceiling: float | None
    memory_ceiling: float | None
    busy_cpus: float
    other_cpus: float | None
    busy_threads: float

    @property
    def waiting_s(self) -> float:
        """Return the time by which a step exceeds one on a batch that is already on the device, in s."""
        return self.input_share * self.step_s

    @property
    def loader_workers(self) -> int | None:
        """Return the number of threads or processes that load photos, see `Placement`."""
        return self.launches[0].evidence.placement.workers

    @property
    def compute_share(self) -> float | None:
        """Return the share of a resident step that its arithmetic would take at the ceiling."""
        return self.flops / self.flops_ceiling / self.resident_s if self.flops_ceiling else None

    @property
    def memory_share(self) -> float | None:
        """Return the share of a resident step that its least traffic would take at the ceiling.

        Return None if the ceiling was not measured, or if the traffic does not go to memory: it fits in the last cache
        of the CPU, or would take longer than the step.
        """
        share = self.traffic_bytes / self.memory_ceiling / self.resident_s if self.memory_ceiling else None
        return share if share is not None and share <= 1 and not self.fits_in_cache(self.traffic_bytes) else None

    @property
    def weights_pass_s(self) -> float | None:
        """Return the time of one pass over weights, gradients and optimizer state at the memory ceiling, in s.

        It is shorter if they stay in a cache.
        """
        return self.weight_bytes / self.memory_ceiling if self.memory_ceiling else None

    def fits_in_cache(self, size: float) -> bool:
        """Return whether this many bytes fit in the last cache of the CPUs. For GPUs it is never known to fit."""
        return self.on_cpu and size <= self.machine.last_cache_bytes

    @property
    def on_cpu(self) -> bool:
        """Return whether the cell's device is the CPU."""
        return self.request.cell.device == "cpu"

    @property
    def device_name(self) -> str:
        """Return the name of the device in sentences."""
        return "CPU" if self.on_cpu else "GPU"

    @property
    def data_sheet(self) -> peaks.Peak | None:
        """Return the data sheet's figures of the GPU that the framework named. A slice of a GPU (MIG) has none."""
        return None if self.on_cpu else peaks.peak(self.launches[0].evidence.placement.device_name)


def break_down(
    launches: Sequence[MeasuredLaunch], scenario: Scenario, ceilings: Ceilings, own_ceilings: Ceilings, machine: Machine
) -> Step | None:
    """Return the step of a cell, or None if no launch timed its steps (smoke profile).

    launches: the ok launches of the cell. scenario: from the catalog. ceilings, own_ceilings: from `best_ceilings`,
    over all probes and over those of the cell's framework.
    """
    timed = [(launch, times) for launch in launches if (times := _resident_times(launch))]
    if not timed:
        return None
    request = timed[0][0].request
    batch, devices = request.cell.batch, request.cell.devices
    end_to_end = [batch / launch.training.images_per_s for launch, _ in timed]
    resident = [times[batch] for _, times in timed]
    fixed_s, per_image_s = _line([point for _, times in timed for point in times.items()])
    weight_bytes = float(training_bytes(scenario, 0))
    # Autocast halves the width of activations, but not that of weights and optimizer state.
    width = 0.5 if request.cell.precision == "bf16" else 1.0
    memory_ceiling = ceiling_value(ceilings, request.cell.device, "memory")
    other_cpus = [cpus for launch, _ in timed if (cpus := launch.other_cpus) is not None]
    return Step(
        launches=[launch for launch, _ in timed],
        request=request,
        scenario=scenario,
        machine=machine,
        ceilings=ceilings,
        own_ceilings=own_ceilings,
        step_s=statistics.median(end_to_end),
        input_share=statistics.median(max(0.0, 1 - r / e) for r, e in zip(resident, end_to_end, strict=True)),
        resident_s=statistics.median(resident),
        fixed_s=fixed_s,
        per_image_s=per_image_s,
        flops=float(training_flops(scenario)) * batch,
        weight_bytes=weight_bytes,
        traffic_bytes=weight_bytes + width * (training_bytes(scenario, batch) - weight_bytes),
        flops_ceiling=_flops_ceiling(request, scenario, ceilings),
        own_flops_ceiling=_flops_ceiling(request, scenario, own_ceilings),
        memory_ceiling=memory_ceiling and memory_ceiling * devices,
        busy_cpus=statistics.median(launch.telemetry.cpu_cores for launch, _ in timed),
        other_cpus=statistics.median(other_cpus) if other_cpus else None,
        busy_threads=statistics.median(launch.telemetry.busy_threads for launch, _ in timed),
    )


def _resident_times(launch: MeasuredLaunch) -> dict[int, float]:
    """Return the median time of a resident step in s by batch size, up to the cell's batch size.

    Return nothing if the launch has no time for the cell's batch size. A resident step does less than a step in
    training. If it took longer, the machine was slower at that time: all times are then scaled down to the time of the
    step in training.
    """
    result, batch = launch.record.result, launch.request.cell.batch
    parts = result.step_timing.resident if result and result.step_timing else []
    medians = {part.batch: statistics.median(part.seconds) for part in parts if part.seconds}
    usable = {size: seconds for size, seconds in medians.items() if size <= batch}
    if batch not in usable:
        return {}
    scale = min(1.0, batch / launch.training.images_per_s / usable[batch])
    return {size: scale * seconds for size, seconds in usable.items()}


def _line(points: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """Return (fixed, per image) of the least-squares line through (batch size, seconds), both at least 0.

    The fixed part is 0 if there is only one batch size.
    """
    largest = max(batch for batch, _ in points)
    at_largest = statistics.median(seconds for batch, seconds in points if batch == largest)
    if len({batch for batch, _ in points}) < 2:
        return 0.0, at_largest / largest
    slope, intercept = statistics.linear_regression(*zip(*points, strict=True))
    if intercept <= 0:
        return 0.0, at_largest / largest
    return min(intercept, at_largest), max(slope, 0.0)


def _flops_ceiling(request: Request, scenario: Scenario, ceilings: Ceilings) -> float | None:
    """Return the FLOP/s of the cell's devices together, for the kind of kernel that does most of its arithmetic."""
    convolves = any(isinstance(layer, Conv) for layer in scenario.layers)
    names = ("convolution", "matmul") if convolves else ("matmul", "convolution")
    values = (ceiling_value(ceilings, request.cell.device, name, request.cell.precision) for name in names)
    return next((value * request.cell.devices for value in values if value), None)
