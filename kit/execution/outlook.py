"""Describe in one line each what a run will do, and what may disturb it."""

from collections import Counter
from collections.abc import Collection

from kit.analysis.warning_rules import tolerable_load
from kit.host.load import Load
from kit.model.environment import EnvironmentKey
from kit.model.formatting import DEVICES, format_count
from kit.model.machine import Machine
from kit.model.plan import Plan
from kit.planning.profiles import find_profile


def describe_place(machine: Machine, note: str) -> str:
    """Return machine and engine in one line. note: a sentence about the engine and why it was chosen."""
    return f"{machine.description_with_memory} · {note.removeprefix('Using ').removesuffix('.')}"


def describe_launches(plan: Plan, left_out: Collection[EnvironmentKey], runs: int = 1) -> str:
    """Return the number of cells and launches of a plan, and what is skipped.

    left_out: environments that cannot run here. runs: number of runs that are measured in the same rounds.
    """
    profile = find_profile(plan.profile)
    planned = {launch.key: launch.cell.device for launch in plan.launches if launch.environment_key not in left_out}
    skipped = {launch.key: launch.cell.device for launch in plan.launches if launch.environment_key in left_out}
    sentences = []
    if planned:
        most = max(Counter(launch.key for launch in plan.launches if launch.key in planned).values())
        more = " or more" if profile.precise and plan.rounds is None else ""
        each = f"{format_count(most, 'launch')}{more} each{' in both runs' if runs > 1 else ''}"
        sentences.append(f"{_counts(planned.values(), 'cell')}, {each} ({profile.name}).")
    if skipped:
        text = _counts(skipped.values(), "" if planned else "cell")
        sentences.append(f"{text} {'is' if len(skipped) == 1 else 'are'} skipped.")
    return " ".join(sentences)


def describe_load(load: Load | None) -> str | None:
    """Return a warning if other programs use so much of the CPUs that the results will show it, else None."""
    if load is None or load.busy <= tolerable_load(load.cpus):
        return None
    names = f" ({', '.join(load.busiest)})" if load.busiest else ""
    used = f"{load.busy:.1f} of {format_count(load.cpus, 'CPU')}"
    return f"! Other programs use {used}{names}. Stop them, or the speeds will be too low."


def _counts(devices: Collection[str], noun: str) -> str:
    """Return for example `18 cells on the CPU and 18 on the GPU`. devices: of each cell. noun: may be empty."""
    parts: list[str] = []
    for device, count in Counter(devices).items():
        counted = format_count(count, noun) if noun and not parts else str(count)
        parts.append(f"{counted} on the {DEVICES[device]}")
    return " and ".join(parts)
