"""What each launch of a run may use of this machine: CPUs, memory, GPUs, time. Decided once, when measuring starts."""

from __future__ import annotations

from collections.abc import Sequence

import psutil

from kit.model.errors import UsageError, unknown
from kit.model.launch import Limits
from kit.model.machine import Gpu
from kit.model.plan import Plan

MEMORY_SHARE = 0.9  # of what is free when the run starts; the rest is for the engine and the system


def launch_limits(plan: Plan, cpus: Sequence[int], memory_limit_bytes: int | None) -> Limits:
    """The limits of a CPU launch. cpus: those that may be used, best first; memory_limit_bytes: the cgroup's.

    Raises UsageError where the plan asks for more threads than there are CPUs.
    """
    threads = plan.threads or len(cpus)
    if threads > len(cpus):
        raise UsageError(
            f"--threads {threads} is more than the {len(cpus)} CPUs that may be used here.",
            "Leave --threads out for all of them.",
        )
    free = min(psutil.virtual_memory().available, memory_limit_bytes or (1 << 63))
    memory_bytes = plan.memory_bytes or int(MEMORY_SHARE * free)
    return Limits(plan.timeout_s, memory_bytes, tuple(cpus[:threads]))


def choose_gpus(wanted: str | None, found: Sequence[Gpu], busy: Sequence[int]) -> tuple[str, ...]:
    """The GPUs that CUDA launches get, by index or UUID. wanted: `all`, or indices and UUIDs with commas; None: the
    first that is not among the busy ones, else the first. Raises UsageError for a GPU that is not there."""
    indices = [str(gpu.index) for gpu in found]
    if wanted is None:
        idle = [index for index in indices if int(index) not in busy]
        return tuple((idle or indices)[:1])
    if wanted == "all":
        return tuple(indices)
    if not found:
        raise UsageError(
            f"--gpus {wanted}: no NVIDIA GPU is visible here.", "Leave --gpus out; kit doctor looks for GPUs."
        )
    known = [*indices, *(gpu.uuid for gpu in found if gpu.uuid)]
    chosen = tuple(wanted.split(","))
    for name in chosen:
        if name not in known:
            raise unknown("GPU", name, ["all", *known])
    return chosen
