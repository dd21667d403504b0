"""Say what to change about a cell, with the command that changes it, if there is one. No input or output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kit.analysis.diagnosis import Diagnosis
from kit.analysis.diagnosis_rules import CROWDED_SHARE, DECODED_FEEDS, NEAR_SHARE, Bottleneck
from kit.analysis.repeat_command import cell_command
from kit.model.formatting import format_count, format_percent
from kit.model.plan import Plan
from scenarios.contract.cell import MAX_WORKERS, Cell, Precision
from scenarios.spec import Scenario, loads_photos

LARGER = 4  # times the batch size that is suggested: three quarters of the fixed cost per image disappear
MORE_WORKERS = 2  # times the workers that are suggested


@dataclass(frozen=True)
class Setup:
    """How a cell ran.

    plan: of its run. scenario: None if unknown. feed: the setting of that name, or "". workers: threads or processes
    that loaded photos, None if unknown. busy_cpus: CPUs that the cell kept busy, None if unknown. cpus: those that it
    could use, None if unknown. gpu_slower: whether the same cell is faster on the CPU. tensor_cores: the precisions of
    its framework that compute on the tensor cores of the GPU. synthetic: whether its data was synthetic. steady:
    whether its speed was steady, so that the parts of its step are reliable.
    """

    plan: Plan
    scenario: Scenario | None
    feed: str = ""
    workers: int | None = None
    busy_cpus: float | None = None
    cpus: int | None = None
    gpu_slower: bool = False
    tensor_cores: tuple[Precision, ...] = ()
    synthetic: bool = False
    steady: bool = True

    @property
    def photos(self) -> bool:
        """Return whether the network gets photos from a loader."""
        return self.scenario is not None and loads_photos(self.scenario)

    def command(self, cell: Cell, frameworks: Sequence[str]) -> str:
        """Return the command that measures a cell in these frameworks, in the same conditions."""
        return f"`{cell_command(cell, self.scenario, self.plan, frameworks)}`"


@dataclass(frozen=True)
class Advice:
    """What to change about a cell.

    text: a few sentences, with commands in backticks. Only the commands name frameworks. gain: how many times as fast
    training would be without waiting for data, if this is known and the cell waits. use: how the loader used the CPUs,
    for example `2 workers, 1.6 of 2 CPUs busy`, or "".
    """

    text: str
    gain: float | None = None
    use: str = ""


def advice(diagnosis: Diagnosis, cell: Cell, setup: Setup, frameworks: Sequence[str]) -> Advice:
    """Return what to change about a cell. frameworks: those of the commands, none for all of them."""
    if diagnosis.bottleneck is Bottleneck.INPUT_BOUND:
        gain = _gain(diagnosis) if setup.steady else None
        return Advice(_feed(cell, setup, frameworks), gain, _use(setup) if setup.photos else "")
    return Advice(_change(diagnosis, cell, setup))


def _change(diagnosis: Diagnosis, cell: Cell, setup: Setup) -> str:
    tuned = cell.lane == "tuned"
    match diagnosis.bottleneck:
        case Bottleneck.LAUNCH_BOUND:
            found = f"Use a larger batch (--batch {LARGER * cell.batch})"
            found += "" if tuned else " or --lane tuned, which tries compiled steps"
            return found + (", or the CPU, which is faster at this batch size." if setup.gpu_slower else ".")
        case Bottleneck.COMPUTE_BOUND if setup.tensor_cores and cell.precision == "fp32":
            computes = "compute" if len(setup.tensor_cores) > 1 else "computes"
            return f"Use --precision {' or '.join(setup.tensor_cores)}, which {computes} on the tensor cores."
        case Bottleneck.COMPUTE_BOUND if diagnosis.label == "arithmetic":
            return _arithmetic(diagnosis, tuned=tuned)
        case Bottleneck.COMPUTE_BOUND if not tuned:
            return "Use --lane tuned, which tries other memory layouts, memory allocators and compiled steps."
        case Bottleneck.MEMORY_BOUND if diagnosis.parts and diagnosis.parts.fixed > diagnosis.parts.kernels:
            return f"Use a larger batch (--batch {LARGER * cell.batch}), which needs the same passes over the weights."
        case Bottleneck.MEMORY_BOUND if cell.precision != "bf16" and "bf16" in setup.tensor_cores:
            return "Use --precision bf16, which halves the memory traffic of activations."
    return diagnosis.remedy


def _arithmetic(diagnosis: Diagnosis, *, tuned: bool) -> str:
    """Return the advice for a cell that is limited by arithmetic. Most of these cells are far from the ceiling."""
    parts = diagnosis.parts
    if parts is None or parts.arithmetic >= NEAR_SHARE * (parts.total - parts.waiting):
        return "The kernels are near the ceiling, so only a faster device helps much."
    share = format_percent(parts.share("arithmetic"))
    largest = parts.arithmetic >= max(parts.kernels, parts.fixed, parts.waiting)
    what = f"the largest part of the step ({share})" if largest else f"{share} of the step"
    change = "Use a faster device." if tuned else "Try --lane tuned, or use a faster device."
    return f"Arithmetic at the measured ceiling is {what}. The kernels still run below this ceiling. {change}"


def _gain(diagnosis: Diagnosis) -> float | None:
    parts = diagnosis.parts
    return parts.total / (parts.total - parts.waiting) if parts and parts.waiting < parts.total else None


def _feed(cell: Cell, setup: Setup, frameworks: Sequence[str]) -> str:
    if setup.photos:
        return _photo_feed(cell, setup, frameworks)
    if cell.framework == "torch" and cell.lane != "tuned":
        tuned = setup.command(replace(cell, lane="tuned"), frameworks)
        if cell.device == "cuda":
            return f"Try batches in pinned memory and data that stays on the device: {tuned}"
        return f"Let the tuned lane choose how batches are made: {tuned}"
    return f"Use a larger batch (--batch {LARGER * cell.batch}), so that fewer batches are prepared and copied."


def _photo_feed(cell: Cell, setup: Setup, frameworks: Sequence[str]) -> str:
    augmented = setup.scenario is not None and setup.scenario.augment is not None
    prepared = "resized and augmented" if augmented else "resized"
    every_epoch = "decoded, resized and augmented" if augmented else "decoded and resized"
    if setup.feed == "resident":
        return f"Use more --threads if CPUs are idle, because photos are {prepared} on the CPU."
    workers = min(MAX_WORKERS, MORE_WORKERS * (setup.workers or setup.cpus or 1))
    more = setup.command(replace(cell, workers=workers), frameworks)
    busy = setup.busy_cpus / setup.cpus if setup.busy_cpus is not None and setup.cpus else None
    idle = busy is None or busy < CROWDED_SHARE
    useless = "More workers would not help, because the CPUs were busy."
    more_workers = f"more workers{'' if busy is None else ', because CPUs were idle'}: {more}"
    if setup.feed in DECODED_FEEDS or cell.lane == "tuned":
        remedy = f"Try {more_workers}" if idle else useless
        return f"Photos are {prepared} on the CPU. {remedy}"
    tuned = setup.command(replace(cell, lane="tuned"), frameworks)
    made = " The photos were synthetic. Decoding real ones can take a different time." if setup.synthetic else ""
    first = f"First try feeds that decode each photo once: {tuned}"
    then = f"Then try {more_workers}" if idle else useless
    return f"In each epoch, all photos are {every_epoch} on the CPU. {first} {then}{made}"


def _use(setup: Setup) -> str:
    """Return how many workers loaded photos, and how busy the CPUs were."""
    known = [format_count(setup.workers, "worker")] if setup.workers else []  # a resident feed has none
    if setup.busy_cpus is not None and setup.cpus is not None:
        known.append(f"{setup.busy_cpus:.1f} of {format_count(setup.cpus, 'CPU')} busy")
    return ", ".join(known)
