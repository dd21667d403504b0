"""Define the bottlenecks of a training step, and the rules that find them. No input or output.

Each rule checks one bottleneck. It returns the bottleneck, the evidence and the remedy, or None if it does not apply.
The first rule in RULES that applies decides:

1. Does something outside slow the step down (a limit, other load)?
2. Does the step wait for data?
3. Does most of its time not depend on the batch size (passes over the weights, or overhead)?
4. Are threads idle?
5. Otherwise the roofline model decides between arithmetic and memory (Williams, Waterman, Patterson 2009).
"""

import statistics
from collections.abc import Callable
from enum import StrEnum

from kit.analysis.ceilings import ceiling_value
from kit.analysis.gpu_use import busy_share
from kit.analysis.measured_launch import power_capped
from kit.analysis.step_breakdown import Step
from kit.model.formatting import format_count
from kit.model.formatting import format_percent as percent
from kit.model.formatting import format_si as si
from kit.model.formatting import format_whole as rounded
from scenarios.spec import loads_photos

# Of the time or of the requested CPU time. Below it only a warning reports throttling: other causes matter more.
THROTTLED_SHARE = 0.1
INPUT_SHARE = 0.3  # of the end-to-end step: the part that a resident step does not have
DECODING_SHARE = 0.5  # of the photos that could be decoded: a loader does more with each photo than decode it
FIXED_SHARE = 0.5  # of a resident step: from here on, most of the step does not grow with the batch size
THREADS_SHARE = 0.6  # of the threads that are busy; the serial parts of a step (loop, feed, update) leave 0.65 to 1
CROWDED_SHARE = 0.9  # of the machine's CPUs that are busy: a launch can get more only at the cost of other processes
MIN_CROWDED_CPUS = 0.2  # one thread gets this much next to four others: a launch with less did not request more
# Share of the fixed part that one pass over all weights takes at the memory ceiling. A step makes several passes:
# unfused optimizers read and write the weights in each of their operations, and matrix products reorder them. Neither
# reaches the full rate.
WEIGHTS_SHARE = 1 / 8
DECODED_FEEDS = ("cached", "pinned", "resident")  # feeds that decode each photo once, before training
KERNELS_SHARE = 0.5  # of the end-to-end step: the part that grows with the batch size, so kernels that process images
# Of a resident step, at the measured ceiling. From ROOF_SHARE on, the ceiling is named as the limit. Kernels of real
# shapes rarely reach more than half of it, so they are near it only from NEAR_SHARE on.
ROOF_SHARE = 0.4
NEAR_SHARE = 0.7
MIN_WAITING = 0.005  # of the end-to-end step: shorter waits are not worth a word
BUSY_SHARE = 0.5  # of the time with a kernel: from here on, a GPU does not mostly wait
MIN_ROOF_SHARE = 0.1  # below it neither ceiling explains the time
SLOWER_KERNELS = 0.8  # of the ceiling: below it the evidence names what the framework's own best kernel reaches

# NVML's reasons for lower clocks that are not part of normal work. The software power cap is normal: at its default
# limit a GPU reaches it when it computes at full speed.
SLOWDOWN = frozenset({"hw_slowdown", "sw_thermal", "hw_thermal", "hw_power_brake"})


class Bottleneck(StrEnum):
    """What limits the speed of a cell."""

    WRONG_DEVICE = "wrong_device"
    THROTTLED = "throttled"
    INPUT_BOUND = "input_bound"
    LAUNCH_BOUND = "launch_bound"
    STARVED_OF_THREADS = "starved_of_threads"
    COMPUTE_BOUND = "compute_bound"
    MEMORY_BOUND = "memory_bound"
    UNCLEAR = "unclear"


Finding = tuple[Bottleneck, str, str]  # with evidence and remedy


def _throttled(step: Step) -> Finding | None:
    quota = statistics.median(launch.throttled_share or 0.0 for launch in step.launches)
    if quota > THROTTLED_SHARE:
        return (
            Bottleneck.THROTTLED,
            f"The CPU quota withheld {percent(quota)} of the CPU time that the cell requested while it trained.",
            "Raise the CPU quota, or use at most as many --threads as the quota has CPUs.",
        )
    used = {index for launch in step.launches for index in launch.gpus}
    capped = power_capped(gpu for gpu in step.machine.gpus if gpu.index in used)
    reasons = SLOWDOWN | {"sw_power_cap"} if capped else SLOWDOWN
    slowed = statistics.median(launch.slowdown_share(reasons) for launch in step.launches)
    if slowed > THROTTLED_SHARE:
        return (
            Bottleneck.THROTTLED,
            f"The GPU lowered its clocks because of heat or power in {percent(slowed)} of the samples.",
            "Improve the cooling, and restore the default power limit if it was lowered.",
        )
    return None


def _crowded_out(step: Step) -> Finding | None:
    """Find other processes that use the CPUs which the cell needs.

    This rule comes before all rules that use times, because the other load changes these times at random.
    """
    threads, cpus = step.request.working_threads, step.machine.logical_cpus
    if not step.on_cpu or step.other_cpus is None or step.busy_cpus >= THREADS_SHARE * threads:
        return None
    if step.busy_cpus + step.other_cpus < CROWDED_SHARE * cpus or step.busy_cpus < MIN_CROWDED_CPUS:
        return None
    return (
        Bottleneck.STARVED_OF_THREADS,
        f"{threads} threads kept {step.busy_cpus:.1f} CPUs busy. Other processes used {step.other_cpus:.1f} of {cpus}.",
        "Stop other programs on this machine and measure again, because their load hides all other causes.",
    )


def _input_bound(step: Step) -> Finding | None:
    if step.input_share <= INPUT_SHARE:
        return None
    evidence = (
        f"A step takes {si(step.step_s, 's')}, but {si(step.resident_s, 's')} on a batch that is already on the "
        f"{step.device_name}: {percent(step.input_share)} of the time goes to loading, shuffling and copying data and "
        "to the loop around the step."
    )
    remedy = "Feed data faster: use larger reads, keep the data on the device, or use more threads if CPUs are idle."
    jpeg, decodes = ceiling_value(step.ceilings, "cpu", "jpeg"), step.request.settings.get("feed") not in DECODED_FEEDS
    if loads_photos(step.scenario) and jpeg and decodes:
        trained = step.request.cell.batch / step.step_s
        threads = min(step.loader_workers or step.request.working_threads, step.request.threads)
        evidence += (
            f" One core decodes {jpeg:,.0f} photos/s at full size, and {_loaders(threads)} {jpeg * threads:,.0f}. "
            f"The cell trained on {trained:,.0f} photos/s."
        )
        decoding = trained >= DECODING_SHARE * jpeg * threads
        remedy = (
            "Feed decoded photos from a cache. "
            if decoding
            else "Resize and augment photos faster, because decoding is not the limit. "
        )
        remedy += "More --workers also help if CPUs are idle."
    return Bottleneck.INPUT_BOUND, evidence, remedy


def _loaders(count: int) -> str:
    return f"{format_count(count, 'thread')} decode{'s' * (count == 1)}"


def _weights_bound(step: Step) -> Finding | None:
    pass_s = step.weights_pass_s
    if step.fixed_s <= FIXED_SHARE * step.resident_s or not pass_s or pass_s < WEIGHTS_SHARE * step.fixed_s:
        return None
    held = step.weight_bytes / 2  # each is read and written
    cached = " (less if they stay in the CPU's caches)" if step.fits_in_cache(held) else ""
    evidence = (
        f"{_fixed_part(step)}). Each step passes over all weights, gradients and optimizer state several times. One "
        f"pass moves {si(step.weight_bytes, 'B')} and takes {si(pass_s, 's')} at the measured "
        f"{si(step.memory_ceiling or 0, 'B/s')}{cached}."
    )
    remedy = "Use a larger batch, which needs the same passes, or a fused optimizer, which needs fewer passes."
    return Bottleneck.MEMORY_BOUND, evidence, remedy


def _launch_bound(step: Step) -> Finding | None:
    if step.fixed_s <= FIXED_SHARE * step.resident_s:
        return None
    batch = step.request.cell.batch
    images = (
        f"At a batch size of about {rounded(step.fixed_s / step.per_image_s)}, the images take half of the time"
        if step.per_image_s
        else "The images add no measurable time"
    )
    evidence = f"{_fixed_part(step)}{_kernels(step)}). {images}."
    if step.flops_ceiling:
        evidence += (
            f" The {si(step.flops, 'FLOP')} of a batch of {batch} would take "
            f"{si(step.flops / step.flops_ceiling, 's')} at the measured {si(step.flops_ceiling, 'FLOP/s')}"
            f"{_idle(step)}."
        )
    if step.on_cpu:
        remedy = (
            "Use a larger batch or graph compilation, because the framework's own work per step takes most of the time."
        )
    else:
        remedy = (
            f"The network is too small for this GPU at batch size {batch}: use a larger batch or graph compilation, or "
            f"use the CPU."
        )
    return Bottleneck.LAUNCH_BOUND, evidence, remedy


def _fixed_part(step: Step) -> str:
    """Return the sentences about the step and its fixed part, without the closing parenthesis."""
    return (
        f"{_duration(step)} {si(step.fixed_s, 's')} of the step does not depend on the batch size "
        f"({percent(step.fixed_s / step.step_s)}"
    )


def _duration(step: Step) -> str:
    """Return how long a step takes, and which part of this time it waits for data, as a sentence."""
    whole = f"A step takes {si(step.step_s, 's')}"
    if step.input_share < MIN_WAITING:
        return f"{whole}."
    loaded, waiting = si(step.step_s - step.waiting_s, "s"), si(step.waiting_s, "s")
    return f"{whole}: {loaded} on loaded data and {waiting} ({percent(step.input_share)}) waiting for data."


def _kernels(step: Step) -> str:
    """Return how many empty kernels the framework could start one after the other in the fixed part."""
    launch = ceiling_value(step.own_ceilings, step.request.cell.device, "launch")
    if launch is None:
        return ""
    return f", as much time as starting {step.fixed_s / launch:,.0f} empty kernels at {si(launch, 's')} each"


def _idle(step: Step) -> str:
    """Return whether the samples of the GPU agree that it mostly waits."""
    if step.on_cpu:
        return ""
    busy = busy_share(step.launches)
    if busy is None:
        return ", so the GPU mostly waits for work"
    if busy < BUSY_SHARE:
        return f", so the GPU mostly waits for work (it ran kernels during {percent(busy)} of the time)"
    return (
        f". The samples of the GPU do not show this: it ran kernels during {percent(busy)} of the time, but these may "
        f"be small ones that use a part of it"
    )


def _starved_of_threads(step: Step) -> Finding | None:
    threads = step.request.working_threads
    if not step.on_cpu or threads == 1 or min(step.busy_cpus, step.busy_threads) >= THREADS_SHARE * threads:
        return None
    load = f", while other processes used {step.other_cpus:.1f}" if step.other_cpus is not None else ""
    return (
        Bottleneck.STARVED_OF_THREADS,
        f"Only {step.busy_threads:.0f} of {threads} threads computed, and {step.busy_cpus:.1f} CPUs were busy{load}.",
        "Stop other programs and check the CPU affinity. If neither is the cause, fewer --threads would be as fast.",
    )


def _roofline(step: Step) -> Finding:
    shares = {Bottleneck.COMPUTE_BOUND: step.compute_share, Bottleneck.MEMORY_BOUND: step.memory_share}
    known = {bottleneck: share for bottleneck, share in shares.items() if share is not None}
    bottleneck = max(known, key=lambda each: known[each], default=Bottleneck.UNCLEAR)
    parts = ", ".join(_parts(step))
    evidence = f"{_duration(step)} {parts[0].upper()}{parts[1:]}."
    if known.get(bottleneck, 0.0) < MIN_ROOF_SHARE or step.resident_s - step.fixed_s < KERNELS_SHARE * step.step_s:
        return Bottleneck.UNCLEAR, evidence, _remedy_unclear(step)
    if known[bottleneck] < (NEAR_SHARE if bottleneck is Bottleneck.COMPUTE_BOUND else ROOF_SHARE):
        what = "compute" if bottleneck is Bottleneck.COMPUTE_BOUND else "move data"
        remedy = (
            f"The kernels mostly {what}, at {percent(known[bottleneck])} of the ceiling of this {step.device_name}: "
            f"another memory layout, graph compilation or another framework may come closer to it."
        )
        return bottleneck, evidence, remedy
    # Not every framework and device has a lower precision. `kit.analysis.advice` names those that exist.
    if bottleneck is Bottleneck.COMPUTE_BOUND:
        remedy = f"The kernels compute near the ceiling of this {step.device_name}: a faster device helps most."
        return bottleneck, evidence, remedy
    remedy = "The kernels wait for memory: use graph compilation (it fuses operations) or faster memory."
    return bottleneck, evidence, remedy


def _parts(step: Step) -> list[str]:
    """Return what a step consists of, in shares of its whole time."""
    parts = []
    if step.flops_ceiling:
        least_s = step.flops / step.flops_ceiling
        parts.append(
            f"its {si(step.flops, 'FLOP')} take {si(least_s, 's')} ({percent(least_s / step.step_s)}) at the measured "
            f"{si(step.flops_ceiling, 'FLOP/s')}{_own_kernel(step)}"
        )
    if step.memory_ceiling and step.memory_share is not None:
        sheet = step.data_sheet
        promised = f" (data sheet: {si(sheet.memory * step.request.cell.devices, 'B/s')})" if sheet else ""
        least_s = step.traffic_bytes / step.memory_ceiling
        parts.append(
            f"its {si(step.traffic_bytes, 'B')} of memory traffic take at least {si(least_s, 's')} "
            f"({percent(least_s / step.step_s)}) at the measured {si(step.memory_ceiling, 'B/s')}{promised}"
        )
    elif step.memory_ceiling:
        parts.append(f"its {si(step.traffic_bytes, 'B')} of memory traffic stay in caches")
    parts.append(f"{si(step.fixed_s, 's')} ({percent(step.fixed_s / step.step_s)}) do not grow with the batch size")
    return parts


def _own_kernel(step: Step) -> str:
    """Return what the cell's framework reaches, if another framework set a much higher ceiling."""
    own = step.own_flops_ceiling
    if not own or not step.flops_ceiling or own >= SLOWER_KERNELS * step.flops_ceiling:
        return ""
    return f" (its own framework's kernel: {si(own, 'FLOP/s')})"


def _remedy_unclear(step: Step) -> str:
    if step.flops_ceiling is None:
        return "Measure the ceilings of this device first, and check how its probes ended."
    if step.resident_s - step.fixed_s < KERNELS_SHARE * step.step_s:
        return "No part takes most of the step. A profiler can show where its time goes."
    others = (
        "" if step.request.cell.lane == "tuned" else " --lane tuned tries other layouts, allocators and compiled steps."
    )
    far = "Most of the step grows with the batch size, but the kernels are far from every ceiling."
    return f"{far}{others} A profiler can show why."


RULES: tuple[Callable[[Step], Finding | None], ...] = (
    _throttled,
    _crowded_out,
    _input_bound,
    _weights_bound,
    _launch_bound,
    _starved_of_threads,
    _roofline,
)
