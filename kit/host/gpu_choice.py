"""Choose the GPUs of a run: those of `--gpus`, or else one of those that CUDA_VISIBLE_DEVICES leaves visible.

The variable is read when launches start, not when the plan is made. A run that a scheduler resumes in another job then
uses the GPUs of that job.
"""

import os
from collections.abc import Sequence
from itertools import chain, takewhile

from kit.host import gpus
from kit.model.errors import UsageError, unknown
from kit.model.plan import Plan

VARIABLE = "CUDA_VISIBLE_DEVICES"
# Values that are no GPU. CUDA ignores them and everything after them, so one of them alone hides every GPU (CUDA
# Programming Guide, CUDA Environment Variables). Slurm sets `NoDevFiles` for a job without a GPU.
NO_GPU = {"", "-1", "NoDevFiles"}


def choose_gpus(plan: Plan) -> tuple[str, ...]:
    """Return the GPUs for the CUDA launches of a plan, by index or UUID. Return none if it has no such launch.

    Without `--gpus`, this is the first idle GPU of CUDA_VISIBLE_DEVICES, or of the machine if the variable is not set.
    If no GPU is idle, it is the first one. One GPU is enough, because kit runs a cell on one device. If a GPU is
    divided into MIG instances, its first instance replaces it, because CUDA uses no other.
    Raise UsageError for a GPU that NVML does not list.
    """
    if not (chosen := _chosen(plan)):
        return ()
    instances = gpus.mig_uuids()
    divided = [gpu for gpu in gpus.gpus(identify=True) if gpu.index in instances]
    parts = {name: instances[gpu.index][0] for gpu in divided for name in (str(gpu.index), gpu.uuid)}
    return tuple(parts.get(name, name) for name in chosen)


def _chosen(plan: Plan) -> tuple[str, ...]:
    if plan.gpus is None:
        return _first_idle() if any(launch.cell.device == "cuda" for launch in plan.launches) else ()
    known = _known()
    if plan.gpus == "all":
        return tuple(name for name in known if name.isdecimal())
    if not known:
        raise UsageError(
            f"The GPUs {plan.gpus!r:.100} cannot be used, because no NVIDIA GPU is visible.",
            "Omit --gpus. `kit doctor` looks for GPUs.",
        )
    chosen = []
    for name in plan.gpus.split(","):
        if (full := _full_name(name, known)) is None:
            raise unknown("GPU", name, ["all", *known])
        chosen.append(full)
    return tuple(chosen)


def visible_gpus() -> tuple[str, ...] | None:
    """Return the GPUs that CUDA_VISIBLE_DEVICES names, by index or UUID. Return None if it is not set.

    Indices are NVML's. Raise UsageError for a GPU that NVML does not list.
    """
    names = _visible_names()
    if names is None:
        return None
    known, found = _known(), []
    for name in names:
        if (full := _full_name(name, known)) is None:
            raise UsageError(
                f"{VARIABLE} names the GPU {name!r:.100}, but NVML does not list it.",
                f"Set the variable to one of {', '.join(known) or '(none)'}, or choose a GPU with --gpus.",
            )
        found.append(full)
    return tuple(found)


def hidden() -> UsageError | None:
    """Return the error that CUDA_VISIBLE_DEVICES hides every GPU, None if it does not."""
    if _visible_names() != ():
        return None
    return UsageError(
        f"{VARIABLE} is {os.environ[VARIABLE]!r:.100}, which hides every GPU.",
        "Request a GPU from the scheduler, unset the variable, or choose a GPU with --gpus.",
    )


def _first_idle() -> tuple[str, ...]:
    found, busy = gpus.gpus(identify=True), gpus.busy()
    if not found:
        return ()  # the engine has refused all CUDA launches, whatever the variable says
    visible = visible_gpus()
    names = [str(gpu.index) for gpu in found] if visible is None else list(visible)
    occupied = {name for gpu in found if gpu.index in busy for name in (str(gpu.index), gpu.uuid)}
    return tuple(([name for name in names if name not in occupied] or names)[:1])


def _visible_names() -> tuple[str, ...] | None:
    value = os.environ.get(VARIABLE)
    if value is None:
        return None
    return tuple(takewhile(lambda name: name not in NO_GPU, map(str.strip, value.split(","))))


def _known() -> list[str]:
    """Return the names of all GPUs: indices, UUIDs, and UUIDs of MIG instances."""
    found = gpus.gpus(identify=True)
    indices = [str(gpu.index) for gpu in found]
    return [*indices, *(gpu.uuid for gpu in found if gpu.uuid), *chain(*gpus.mig_uuids().values())]


def _full_name(name: str, known: Sequence[str]) -> str | None:
    """Return the name if it is known, or the only known UUID that begins with it. CUDA allows this abbreviation, but
    container engines do not."""
    if name in known:
        return name
    longer = [one for one in known if one.startswith(name)] if name.startswith(("GPU-", "MIG-")) else []
    return longer[0] if len(longer) == 1 else None
