"""Looks at a machine before anything is built on it: what would fail, what would spoil the figures, and the remedy.

Each check is a pure function of facts; `examine` gathers the facts of this machine.
"""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import psutil

from kit import catalog, datasets, gpus, machine
from kit.engines.base import Engine
from kit.engines.docker import DockerEngine
from kit.engines.local import LocalEngine
from kit.errors import EngineError, KitError
from kit.places import cache_folder
from kit.sources import Sources
from kit.units import format_bytes

LEAST_FREE_BYTES = 2 << 30  # the smallest environment and its data
ROOMY_FREE_BYTES = 12 << 30  # three CPU environments, their download caches, all data sets
LEAST_MEMORY_BYTES = 2 << 30  # the largest launch of the smoke profile
ROOMY_MEMORY_BYTES = 4 << 30


class Level(StrEnum):
    """ok: good as it is. warning: kit works, with less. error: kit does not work until it is mended."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True)
class Finding:
    """One line of the examination. remedy: empty where there is nothing to do."""

    level: Level
    name: str
    message: str
    remedy: str = ""


def check_platform(system: str, architecture: str) -> Finding:
    """Linux on x86_64, or nothing."""
    try:
        machine.require_supported(system, architecture)
    except EngineError as error:
        return Finding(Level.ERROR, "platform", error.message, error.remedy)
    return Finding(Level.OK, "platform", f"{system} on {architecture}")


def check_engines(docker: Mapping[str, str] | KitError, local: Mapping[str, str] | KitError) -> list[Finding]:
    """What each engine says of itself, or why it cannot be used. One that works is enough."""
    working = sum(not isinstance(answer, KitError) for answer in (docker, local))
    findings = []
    for name, answer in (("docker", docker), ("local", local)):
        if isinstance(answer, KitError):
            level = Level.WARNING if working else Level.ERROR
            findings.append(Finding(level, f"engine {name}", answer.message, answer.remedy))
        else:
            told = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in answer.items() if key != "engine")
            findings.append(Finding(Level.OK, f"engine {name}", told))
    return findings


def check_gpu(names: Sequence[str], refusals: Mapping[str, str | None]) -> list[Finding]:
    """names: of the GPUs seen. refusals: framework to the reason why its CUDA cells cannot run, None where they can."""
    if not names:
        return [Finding(Level.OK, "gpu", "No NVIDIA GPU is visible; cells on cuda will be skipped.")]
    findings = [Finding(Level.OK, "gpu", ", ".join(names))]
    reasons = {reason: [name for name, other in refusals.items() if other == reason] for reason in refusals.values()}
    for reason, frameworks in reasons.items():
        if reason is not None:
            findings.append(Finding(Level.WARNING, "cuda", f"{', '.join(frameworks)} would be skipped: {reason}"))
    return findings


def check_disk(name: str, folder: Path, free_bytes: int) -> Finding:
    """Room where kit writes. folder: as the person knows it."""
    message = f"{format_bytes(free_bytes)} free at {folder}"
    if free_bytes < LEAST_FREE_BYTES:
        return Finding(
            Level.ERROR, name, message, f"Make room: kit needs {format_bytes(LEAST_FREE_BYTES)} there at the least."
        )
    if free_bytes < ROOMY_FREE_BYTES:
        remedy = f"All frameworks and data sets together take up to {format_bytes(ROOMY_FREE_BYTES)}."
        return Finding(Level.WARNING, name, message, remedy)
    return Finding(Level.OK, name, message)


def check_cpus(usable: int, logical: int, quota: float | None) -> Finding:
    """usable: logical CPUs that launches get. quota: of the cgroup, in CPUs."""
    message = f"{usable} of {logical} logical CPUs may be used"
    if quota is not None and quota < logical:
        return Finding(
            Level.WARNING,
            "cpus",
            f"{message}: a quota of {quota:g} CPUs holds here",
            "Figures are those of the quota, not of the machine; a quota that is no whole number is rounded down.",
        )
    return Finding(Level.OK, "cpus", message)


def check_memory(available_bytes: int, limit_bytes: int | None) -> Finding:
    """Memory that a launch could have now; limit_bytes: of the cgroup."""
    least = min(available_bytes, limit_bytes or available_bytes)
    limited = f", limited to {format_bytes(limit_bytes)}" if limit_bytes is not None else ""
    message = f"{format_bytes(available_bytes)} available{limited}"
    if least < LEAST_MEMORY_BYTES:
        remedy = f"End other programs or raise the limit: a launch needs {format_bytes(LEAST_MEMORY_BYTES)} or more."
        return Finding(Level.ERROR, "memory", message, remedy)
    if least < ROOMY_MEMORY_BYTES:
        return Finding(Level.WARNING, "memory", message, "The larger scenarios may end as out_of_memory.")
    return Finding(Level.OK, "memory", message)


def examine(sources: Sources, out: Path) -> list[Finding]:
    """All checks on this machine. out: the folder that takes the runs."""
    docker, local = DockerEngine(sources), LocalEngine(sources)
    answers = _answer(docker), _answer(local)
    engine = local if isinstance(answers[0], KitError) else docker
    refusals = {name: engine.refusal(framework, "cuda") for name, framework in catalog.frameworks().items()}
    folders = {"disk cache": cache_folder(), "disk data": datasets.data_dir(), "disk out": out}
    return [
        check_platform(platform.system(), platform.machine()),
        *check_engines(*answers),
        *check_gpu([gpu.name for gpu in gpus.gpus()], refusals),
        *(_look_at_folder(name, folder) for name, folder in folders.items()),
        check_cpus(len(machine.usable_cpus()), psutil.cpu_count() or 1, machine.quota_cpus()),
        check_memory(psutil.virtual_memory().available, machine.memory_limit_bytes()),
    ]


def _answer(engine: Engine) -> dict[str, str] | KitError:
    try:
        return engine.describe()
    except KitError as error:
        return error


def _look_at_folder(name: str, folder: Path) -> Finding:
    """At `folder`, or where it would be made: whether it can be, and the room on its disk."""
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if os.path.lexists(path))
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        remedy = "--out" if name == "disk out" else f"KIT_{name.rsplit(maxsplit=1)[-1].upper()}_DIR"
        return Finding(Level.ERROR, name, f"{folder} cannot be written.", f"Name another folder by {remedy}.")
    return check_disk(name, folder, shutil.disk_usage(there).free)
