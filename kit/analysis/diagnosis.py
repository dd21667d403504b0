"""What holds a cell back, from where its step's time goes and what the machine can do at most. Pure.

A training step is taken apart in this order, and the first part that is large is the verdict: is it slowed
down from outside (by a limit, by other load), does it wait for data, is it what a step costs at every batch size
(passes over the weights, or overhead), are threads missing, and else, by the roofline (Williams, Waterman, Patterson
2009), arithmetic or memory. What trained on another device than it was to has failed, and is told as such.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from kit.analysis.ceilings import Ceilings, best
from kit.analysis.measured_launch import capped, measured
from kit.analysis.step_breakdown import Step, ceiling, step_of
from kit.model.cell import Scenarios
from kit.model.figures import percent, si, two_digits
from kit.model.machine import Machine
from kit.model.record import Record
from scenarios.contract.reasons import Status
from scenarios.spec import DATASETS, Scenario

# Of the time or of the CPU time asked for. Below it the warning alone says so: the other explanations count for more.
THROTTLED_SHARE = 0.1
INPUT_SHARE = 0.3  # of the end-to-end step that is not spent on a step whose batch already lies on the device
DECODING_SHARE = 0.5  # of the photos that could be decoded: a loader does more with each than decoding it
FIXED_SHARE = 0.5  # of a resident step: the part that does not grow with the batch is then the larger one
THREADS_SHARE = 0.6  # of the threads that are busy; a step's serial parts (loop, feed, update) leave about 0.65 to 1
CROWDED_SHARE = 0.9  # of the machine's CPUs that are busy: a launch that asks for more can get it only from others
MIN_CROWDED = 0.2  # CPUs: one thread gets as much beside four others, so that who got less did not ask for it
# Of the fixed part, what one pass over all weights takes at memory's ceiling. A step makes several: optimizers that are
# not fused read and write them for each of their operations, matrix products reorder them, neither at the full rate.
WEIGHTS_SHARE = 1 / 8
DECODED = ("cached", "resident")  # feeds that decode each photo once, before training
KERNELS_SHARE = 0.5  # of the end-to-end step: the part that grows with the batch, which is kernels at work on images
# Of a resident step, at the measured ceiling: kernels of real shapes seldom come nearer than half of it, so that what
# reaches two fifths has little to gain from better kernels.
ROOF_SHARE = 0.4
MIN_ROOF_SHARE = 0.1  # below it neither ceiling has to do with the time
SLOWER_KERNELS = 0.8  # of the ceiling: what a framework's own best kernel reaches is worth telling below it

# NVML's reasons for lower clocks that are no part of normal work. The software power cap is: at its default limit a GPU
# that computes as fast as it can runs into it.
SLOWDOWN = frozenset({"hw_slowdown", "sw_thermal", "hw_thermal", "hw_power_brake"})


class Kind(StrEnum):
    """What holds a cell back."""

    WRONG_DEVICE = "wrong_device"
    THROTTLED = "throttled"
    INPUT_BOUND = "input_bound"
    LAUNCH_BOUND = "launch_bound"
    STARVED_OF_THREADS = "starved_of_threads"
    COMPUTE_BOUND = "compute_bound"
    MEMORY_BOUND = "memory_bound"
    UNCLEAR = "unclear"


@dataclass(frozen=True)
class Diagnosis:
    """The verdict on one cell. evidence: the figures it rests on; remedy: one sentence. flops_per_s: of training, end
    to end; None where nothing was measured. ceiling_share: of that in the measured ceiling of its devices (convolution
    for nets that have one, else matrix product, at the cell's precision), None where it was not measured. peak_share:
    in the data sheet's dense peak, None for CPUs and GPUs that are not in the table."""

    key: str
    kind: Kind
    evidence: str
    remedy: str
    flops_per_s: float | None
    ceiling_share: float | None
    peak_share: float | None


Finding = tuple[Kind, str, str]


def diagnose_all(
    records: Sequence[Record],
    probes: Sequence[Record],
    scenarios: Scenarios,
    machine: Machine,
) -> list[Diagnosis]:
    """Of every cell with an `ok` launch whose scenario is among these, and of those that ran on another device
    than they were to, in the order of the records. probes: of the run's ceilings. scenarios: as they were measured."""
    cells: dict[str, list[Record]] = {}
    for record in records:
        if record.status in (Status.OK, Status.WRONG_DEVICE):
            cells.setdefault(record.key, []).append(record)
    ceilings = best(probes)
    own = {p.request.framework: best([q for q in probes if q.request.framework == p.request.framework]) for p in probes}
    found = []
    for launches in cells.values():
        asked = launches[0].request
        scenario = scenarios.get(asked.scenario, {}).get(asked.variant)
        ok = [launch for launch in launches if launch.status is Status.OK]
        if not ok:
            found.append(_misplaced(launches[-1]))
        elif scenario and (diagnosis := diagnose(ok, scenario, ceilings, own.get(asked.framework, {}), machine)):
            found.append(diagnosis)
    return found


def diagnose(
    records: Sequence[Record], scenario: Scenario, ceilings: Ceilings, own: Ceilings, machine: Machine
) -> Diagnosis | None:
    """The verdict on the cell whose ok launches these are. scenario: as in the catalogue; the batch is the cell's.
    ceilings, own: of `ceilings.best`, over all probes and over those of the cell's framework. None where no launch took
    its step apart (smoke)."""
    step = step_of(measured(records), scenario, ceilings, own, machine)
    if step is None:
        return None
    kind, evidence, remedy = next(finding for rule in RULES if (finding := rule(step)))
    images_per_s = statistics.geometric_mean(launch.training.images_per_s for launch in step.launches)
    flops_per_s = images_per_s * step.flops / step.request.batch
    peak = step.sheet.flops(step.request.precision) if step.sheet else None
    return Diagnosis(
        key=step.request.key,
        kind=kind,
        evidence=evidence,
        remedy=remedy,
        flops_per_s=flops_per_s,
        ceiling_share=flops_per_s / step.arithmetic if step.arithmetic else None,
        peak_share=flops_per_s / (peak * step.request.devices) if peak else None,
    )


def _misplaced(record: Record) -> Diagnosis:
    """Of a cell that did not run where it should."""
    message, remedy = (record.reason.message, record.reason.remedy) if record.reason else ("", "")
    return Diagnosis(record.key, Kind.WRONG_DEVICE, message, remedy, None, None, None)


# The rules, in the order of precedence. Each returns kind, evidence and remedy, or None where it does not hold.


def _throttled(step: Step) -> Finding | None:
    quota = statistics.median(launch.held_back or 0.0 for launch in step.launches)
    if quota > THROTTLED_SHARE:
        return (
            Kind.THROTTLED,
            f"The CPU quota withheld {percent(quota)} of the CPU time that it asked for while it trained.",
            "Raise the CPU quota, or ask for no more --threads than the quota has CPUs.",
        )
    used = {index for launch in step.launches for index in launch.gpus}
    lowered = capped(gpu for gpu in step.machine.gpus if gpu.index in used)
    reasons = SLOWDOWN | {"sw_power_cap"} if lowered else SLOWDOWN
    slowed = statistics.median(launch.slowed(reasons) for launch in step.launches)
    if slowed > THROTTLED_SHARE:
        return (
            Kind.THROTTLED,
            f"The GPU lowered its clocks for heat or power in {percent(slowed)} of the samples.",
            "Improve the cooling, and restore the default power limit where it was lowered.",
        )
    return None


def _crowded_out(step: Step) -> Finding | None:
    """Others take the CPUs that it asks for. Goes before all that rests on times: they tell of that load by chance."""
    threads, cpus = step.request.working_threads, step.machine.logical_cpus
    if not step.on_cpu or step.others is None or step.cores >= THREADS_SHARE * threads:
        return None
    if step.cores + step.others < CROWDED_SHARE * cpus or step.cores < MIN_CROWDED:
        return None
    return (
        Kind.STARVED_OF_THREADS,
        f"It kept {step.cores:.1f} CPUs busy with {threads} threads; other processes used {step.others:.1f} of {cpus}.",
        "End what else runs on this machine, then measure again: until then nothing more can be told.",
    )


def _input_bound(step: Step) -> Finding | None:
    if step.waiting <= INPUT_SHARE:
        return None
    evidence = (
        f"A step takes {si(step.seconds, 's')}, on a batch that already lies on the {step.device} "
        f"{si(step.resident, 's')}: {percent(step.waiting)} of the time goes to loading, shuffling and copying data "
        "and to the loop around the step."
    )
    remedy = (
        "Feed it faster: larger reads, data that already lies on the device, or, where CPUs are idle, more threads."
    )
    jpeg, decodes = ceiling(step.ceilings, "cpu", "jpeg"), step.request.settings.get("feed") not in DECODED
    if DATASETS[step.scenario.dataset].shape is None and jpeg and decodes:
        threads, trained = step.request.working_threads, step.request.batch / step.seconds
        evidence += (
            f" One core decodes {jpeg:,.0f} photos/s at full size, {threads} threads {jpeg * threads:,.0f}; "
            f"it trained on {trained:,.0f}."
        )
        decoding = trained >= DECODING_SHARE * jpeg * threads
        remedy = (
            "Feed it decoded photos from a cache. " if decoding else "Resize and augment faster: decoding is not it. "
        )
        remedy += "Where CPUs are idle, more loader threads help, too."
    return Kind.INPUT_BOUND, evidence, remedy


def _weights_bound(step: Step) -> Finding | None:
    if step.fixed <= FIXED_SHARE * step.resident or not step.update or step.update < WEIGHTS_SHARE * step.fixed:
        return None
    held = step.weights / 2  # each is read and written
    cached = " (less where they stay in the CPU's caches)" if step.fits_in_cache(held) else ""
    evidence = (
        f"Of the {si(step.resident, 's')} of a step, {si(step.fixed, 's')} ({percent(step.fixed / step.resident)}) are "
        f"the same at every batch size: each step passes over all weights, gradients and what the optimizer keeps, "
        f"several times. Once, that is {si(step.weights, 'B')} of traffic, {si(step.update, 's')} at the measured "
        f"{si(step.memory or 0, 'B/s')}{cached}."
    )
    remedy = "Use a larger batch, for which the passes are the same, or a fused optimizer, which makes fewer of them."
    return Kind.MEMORY_BOUND, evidence, remedy


def _launch_bound(step: Step) -> Finding | None:
    if step.fixed <= FIXED_SHARE * step.resident:
        return None
    request = step.request
    grows = f"would take half of it from a batch of about {two_digits(step.fixed / (step.per_image or 1))} on"
    images = grows if step.per_image else "add nothing that could be measured"
    evidence = (
        f"Of the {si(step.resident, 's')} of a step, {si(step.fixed, 's')} "
        f"({percent(step.fixed / step.resident)}{_kernels(step)}) are the same at every batch size; the images "
        f"themselves {images}."
    )
    if step.arithmetic:
        evidence += (
            f" The {si(step.flops, 'FLOP')} of a batch of {request.batch} would take "
            f"{si(step.flops / step.arithmetic, 's')} at the measured {si(step.arithmetic, 'FLOP/s')}{_idle(step)}."
        )
    if step.on_cpu:
        remedy = "Use a larger batch or graph compilation: the framework's own work for each step is what costs here."
    else:
        remedy = (
            f"The net is too small for this GPU at batch {request.batch}: use a larger batch, graph compilation, "
            f"or stay on the CPU."
        )
    return Kind.LAUNCH_BOUND, evidence, remedy


def _kernels(step: Step) -> str:
    """How many empty kernels its framework could start one after the other in the fixed part."""
    launch = ceiling(step.own, step.request.device, "launch")
    if launch is None:
        return ""
    return f", as long as starting {step.fixed / launch:,.0f} empty kernels at {si(launch, 's')}"


def _idle(step: Step) -> str:
    if step.on_cpu:
        return ""
    use = [share for launch in step.launches for share in launch.while_training(r"gpu\d+_use")]
    seen = f" (it ran some kernel in {percent(statistics.fmean(use))} of the time)" if use else ""
    return f", so that the GPU mostly waits to be told what to do{seen}"


def _starved_of_threads(step: Step) -> Finding | None:
    threads = step.request.working_threads
    if not step.on_cpu or threads == 1 or min(step.cores, step.busy_threads) >= THREADS_SHARE * threads:
        return None
    load = f"; other processes used {step.others:.1f}" if step.others is not None else ""
    return (
        Kind.STARVED_OF_THREADS,
        f"Of {threads} threads asked for {step.busy_threads:.0f} computed, and {step.cores:.1f} CPUs were busy{load}.",
        "Free the CPUs of other load and check affinity; if neither is the cause, fewer --threads are as fast.",
    )


def _roofline(step: Step) -> Finding:
    shares = {Kind.COMPUTE_BOUND: step.arithmetic_share, Kind.MEMORY_BOUND: step.memory_share}
    known = {kind: share for kind, share in shares.items() if share is not None}
    kind = max(known, key=lambda kind: known[kind], default=Kind.UNCLEAR)
    evidence = f"Of the {si(step.resident, 's')} of a step: {', '.join(_parts(step))}."
    if known.get(kind, 0.0) < MIN_ROOF_SHARE or step.resident - step.fixed < KERNELS_SHARE * step.seconds:
        return Kind.UNCLEAR, evidence, _remedy_unclear(step)
    if known[kind] < ROOF_SHARE:
        return kind, evidence, _remedy_far(kind, known[kind], step)
    narrow = step.request.precision == "bf16"
    if kind is Kind.COMPUTE_BOUND:
        lower = "" if narrow else "a lower precision or "
        return kind, evidence, f"It computes near what this {step.device} can: {lower}a faster device helps most."
    lower = "" if narrow else "bf16, "
    return kind, evidence, f"It waits for memory: use {lower}graph compilation (it fuses operations) or faster memory."


def _remedy_far(kind: Kind, share: float, step: Step) -> str:
    """Where kernels are what takes the time, but reach little of the ceiling that stands above them."""
    what = "computing" if kind is Kind.COMPUTE_BOUND else "moving data"
    return (
        f"Its kernels spend their time {what}, at {percent(share)} of what this {step.device} can: another memory "
        f"layout, graph compilation or another framework may come nearer."
    )


def _parts(step: Step) -> list[str]:
    parts = []
    if step.arithmetic and step.arithmetic_share is not None:
        seconds = si(step.flops / step.arithmetic, "s")
        parts.append(
            f"its {si(step.flops, 'FLOP')} take {seconds} ({percent(step.arithmetic_share)}) at the measured "
            f"{si(step.arithmetic, 'FLOP/s')}{_own_kernel(step)}"
        )
    if step.memory and step.memory_share is not None:
        sheet = step.sheet
        promised = f" (data sheet: {si(sheet.memory * step.request.devices, 'B/s')})" if sheet else ""
        parts.append(
            f"its {si(step.traffic, 'B')} of memory traffic at least {si(step.traffic / step.memory, 's')} "
            f"({percent(step.memory_share)}) at the measured {si(step.memory, 'B/s')}{promised}"
        )
    elif step.memory:
        parts.append(f"its {si(step.traffic, 'B')} of memory traffic stay in caches")
    parts.append(f"{si(step.fixed, 's')} ({percent(step.fixed / step.resident)}) do not grow with the batch")
    waited = step.seconds - step.resident
    return [*parts, f"waiting for data adds {si(waited, 's')}"] if waited > 0 else parts


def _own_kernel(step: Step) -> str:
    """What the cell's framework reaches by itself, where another one showed what the device can."""
    own = step.own_arithmetic
    if not own or not step.arithmetic or own >= SLOWER_KERNELS * step.arithmetic:
        return ""
    return f" (its own framework's kernel: {si(own, 'FLOP/s')})"


def _remedy_unclear(step: Step) -> str:
    if step.arithmetic is None:
        return "Measure this device's ceilings, without which no more can be told (see what became of their probes)."
    return "None of these explains the step: look at one with the framework's profiler."


RULES: tuple[Callable[[Step], Finding | None], ...] = (
    _throttled,
    _crowded_out,
    _input_bound,
    _weights_bound,
    _launch_bound,
    _starved_of_threads,
    _roofline,
)
