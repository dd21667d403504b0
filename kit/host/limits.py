"""Choose what each launch of a run may use: CPUs, memory, time. This happens once, when the run starts."""

from collections.abc import Sequence

import psutil

from kit.model.errors import UsageError
from kit.model.launch import Limits
from kit.model.plan import Plan

# Seconds that a killed process or container may take to end. If it takes longer, it hangs in the kernel or in the
# engine. The run then stops with an error.
KILL_S = 30
MEMORY_SHARE = 0.9  # of the memory that is free when the run starts; the rest is for the engine and the system


def launch_limits(plan: Plan, cpus: Sequence[int], memory_limit_bytes: int | None) -> Limits:
    """Return the limits of a CPU launch. cpus: usable logical CPUs, best first. memory_limit_bytes: of the cgroup.

    Raise UsageError if the plan asks for more threads than there are CPUs.
    """
    threads = plan.threads or len(cpus)
    if threads > len(cpus):
        raise UsageError(
            f"{threads:,} threads are more than the {len(cpus)} CPUs that kit may use.",
            "Omit --threads to use all of them.",
        )
    memory_bytes = plan.memory_bytes or usable_memory(memory_limit_bytes)
    return Limits(plan.timeout_s, memory_bytes, tuple(cpus[:threads]))


def usable_memory(memory_limit_bytes: int | None) -> int:
    """Return the bytes that one launch may use by default. memory_limit_bytes: of the cgroup."""
    return int(MEMORY_SHARE * min(psutil.virtual_memory().available, memory_limit_bytes or (1 << 63)))
