"""What an examination looks at on every machine, and the whole of it in order. Pure: each check judges facts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from kit.analysis.warning_rules import WITHHELD_SHARE, tolerable_load
from kit.analysis.warnings import REMEDIES, WarningCode
from kit.datasets.service import AUTO_BUDGET
from kit.doctor.facts import Cpus, DataSet, Docker, Facts, Folder, Load, Local
from kit.doctor.findings import Finding, Level
from kit.doctor.gpu_checks import check_gpus
from kit.environments.uv_environments import PYTHON
from kit.host import machine
from kit.model.environment import Device, EnvironmentKey
from kit.model.errors import EngineError, KitError
from kit.model.figures import counted, percent
from kit.model.units import format_bytes
from kit.planning.estimates import environment_cost

MIN_FREE_BYTES = 2 << 30  # the smallest environment and its data
RUN_BYTES = 200 << 20  # a standard run of all cells with its samples and report, several times; as much is kept of it
MIN_STOLEN = 0.05  # CPUs: two clock ticks of the half second that is looked at, and a half
MIN_MEMORY_BYTES = 2 << 30  # the largest launch of the smoke profile
ROOMY_MEMORY_BYTES = 4 << 30
# PyTorch's four loader processes hand over batches in /dev/shm, each up to two ahead: at 128 x 128 x 3 float32 that is
# 50 MB for 32 images, which leaves no room in the 64 MB that Docker gives by default, and 400 MB for 256.
ROOMY_SHM_BYTES = 512 << 20


def judge(facts: Facts) -> list[Finding]:
    """Every check, in the order in which they are shown."""
    needs = folder_needs(facts)
    return [
        check_platform(facts.system, facts.architecture),
        *check_engines(facts.docker.description, facts.local.description),
        *check_python(facts.local),
        *check_gpus(facts),
        *(check_folder(folder, needs[folder.name]) for folder in facts.folders),
        *check_images(facts.docker, environments_bytes(facts, facts.docker.ready)),
        check_cpus(facts.cpus),
        check_memory(facts.available_bytes, facts.limit_bytes),
        check_shm(facts.shm_free_bytes),
        check_governor(facts.governors),
        check_load(facts.load),
        check_steal(facts.load),
        *(check_data(dataset) for dataset in facts.datasets),
    ]


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


def check_python(local: Local) -> list[Finding]:
    """What the local engine's environments are made from; nothing where that engine does not work anyway."""
    if isinstance(local.description, KitError):
        return []
    if local.python:
        return [Finding(Level.OK, "python", f"{local.python}, for environments of the local engine")]
    message = f"No Python {PYTHON} is here; the local engine would have uv fetch one."
    remedy = f"Without internet access: install Python {PYTHON}, or use --engine docker or --env system."
    return [Finding(Level.WARNING, "python", message, remedy)]


def check_folder(folder: Folder, more_bytes: int) -> Finding:
    """Room where kit writes, and the right to. more_bytes: what may come to lie there."""
    if not folder.writable:
        remedy = f"Name another folder by {folder.setting}."
        return Finding(Level.ERROR, folder.name, f"{folder.path} cannot be written.", remedy)
    message = f"{format_bytes(folder.free_bytes)} free at {folder.path}"
    if folder.free_bytes < min(MIN_FREE_BYTES, more_bytes):
        return Finding(Level.ERROR, folder.name, message, f"Make room: up to {format_bytes(more_bytes)} come to it.")
    if folder.free_bytes < more_bytes:
        remedy = f"Up to {format_bytes(more_bytes)} come to it: make room, or measure less (--framework, --scenario)."
        return Finding(Level.WARNING, folder.name, message, remedy)
    return Finding(Level.OK, folder.name, message)


def folder_needs(facts: Facts) -> dict[str, int]:
    """Name of each folder to the bytes that may come to lie there: environments of the local engine, where it is the
    only one, with what they are made from; data sets as downloaded, unpacked and prepared; runs."""
    alone = isinstance(facts.docker.description, KitError)
    return {
        "disk cache": RUN_BYTES + 2 * environments_bytes(facts, facts.local.ready) * alone,
        "disk data": 3 * sum(one.download_bytes for one in facts.datasets if not one.here),
        "disk out": RUN_BYTES,
    }


def environments_bytes(facts: Facts, ready: Collection[EnvironmentKey]) -> int:
    """What environments of all frameworks take together that are still to be made, for the devices that are here."""
    devices: tuple[Device, ...] = ("cpu", "cuda") if facts.gpus.found else ("cpu",)
    return sum(
        environment_cost(framework.name, device).bytes
        for framework in facts.frameworks
        for device in devices
        if device in framework.devices and (framework.name, device) not in ready
    )


def check_images(docker: Docker, more_bytes: int) -> list[Finding]:
    """Room where Docker keeps its images; nothing where Docker cannot be used. more_bytes: of those to be built."""
    if isinstance(docker.description, KitError):
        return []
    free = docker.images_free_bytes
    if free is None:
        return [Finding(Level.OK, "disk images", "Docker's disk is not to be seen from here")]
    message = f"{format_bytes(free)} free where Docker keeps its images"
    if free < min(MIN_FREE_BYTES, more_bytes):
        remedy = "Make room (`docker system df` tells what takes it), or use --engine local."
        return [Finding(Level.ERROR, "disk images", message, remedy)]
    if free < more_bytes:
        remedy = f"The images still to be built take about {format_bytes(more_bytes)}; build fewer (--framework)."
        return [Finding(Level.WARNING, "disk images", message, remedy)]
    return [Finding(Level.OK, "disk images", message)]


def check_cpus(cpus: Cpus) -> Finding:
    """How many may be used, and whether that is a quota's doing."""
    message = f"{cpus.usable} of {cpus.logical} logical CPUs may be used"
    if cpus.quota is not None and cpus.quota < cpus.logical:
        return Finding(
            Level.WARNING,
            "cpus",
            f"{message}: a quota of {cpus.quota:g} CPUs holds here",
            "Figures are those of the quota, not of the machine; a quota that is no whole number is rounded down.",
        )
    return Finding(Level.OK, "cpus", message)


def check_memory(available_bytes: int, limit_bytes: int | None) -> Finding:
    """Memory that a launch could have now; limit_bytes: of the cgroup."""
    least = min(available_bytes, limit_bytes or available_bytes)
    limited = f", limited to {format_bytes(limit_bytes)}" if limit_bytes is not None else ""
    message = f"{format_bytes(available_bytes)} available{limited}"
    if least < MIN_MEMORY_BYTES:
        remedy = f"End other programs or raise the limit: a launch needs {format_bytes(MIN_MEMORY_BYTES)} or more."
        return Finding(Level.ERROR, "memory", message, remedy)
    if least < ROOMY_MEMORY_BYTES:
        return Finding(Level.WARNING, "memory", message, "The larger scenarios may end as out_of_memory.")
    return Finding(Level.OK, "memory", message)


def check_shm(free_bytes: int | None) -> Finding:
    """Shared memory of launches by the local engine; containers get their own."""
    message = "There is no /dev/shm." if free_bytes is None else f"{format_bytes(free_bytes)} free in /dev/shm"
    if free_bytes is None or free_bytes < ROOMY_SHM_BYTES:
        remedy = (
            "PyTorch's loader may end with a bus error in the local engine. If this is a container, start it with "
            "--shm-size=2g; or use --engine docker, whose containers get their own."
        )
        return Finding(Level.WARNING, "shm", message, remedy)
    return Finding(Level.OK, "shm", message)


def check_governor(governors: Sequence[str]) -> Finding:
    """What decides on the CPUs' clocks. Virtual machines mostly do not show it."""
    if not governors:
        return Finding(Level.OK, "governor", "The CPUs' frequency governor is not shown here")
    told = ", ".join(f"{name} on {counted(count, 'CPU')}" for name, count in Counter(governors).most_common())
    if set(governors) == {"performance"}:
        return Finding(Level.OK, "governor", told)
    remedy = "While you measure: `sudo cpupower frequency-set --governor performance`. Else clocks follow the load."
    return Finding(Level.WARNING, "governor", told, remedy)


def check_load(load: Load | None) -> Finding:
    """CPUs that other programs keep busy now."""
    if load is None:
        return Finding(Level.OK, "load", "CPU time is not counted here")
    message = f"{load.busy:.2f} of {load.cpus} CPUs are busy with other programs"
    if load.busy <= tolerable_load(load.cpus):
        return Finding(Level.OK, "load", message)
    named = f"; the busiest: {', '.join(load.busiest)}" if load.busiest else ""
    return Finding(Level.WARNING, "load", f"{message}{named}", "End what else runs before you measure.")


def check_steal(load: Load | None) -> Finding:
    """CPU time that the hypervisor gives to others."""
    if load is None:
        return Finding(Level.OK, "steal", "CPU time is not counted here")
    # Of the time asked for, as the warning has it; of next to none, one clock tick is a large share.
    share = load.stolen / (load.busy + load.stolen) if load.stolen >= MIN_STOLEN else 0.0
    message = f"The hypervisor gives {percent(share)} of the CPU time asked for to others"
    if share > WITHHELD_SHARE:
        return Finding(Level.WARNING, "steal", message, REMEDIES[WarningCode.STEAL])
    return Finding(Level.OK, "steal", message)


def check_data(dataset: DataSet) -> Finding:
    """Whether the real data set is here, or can be had."""
    name = f"data {dataset.name}"
    if dataset.damage:
        return Finding(Level.WARNING, name, dataset.damage.message, dataset.damage.remedy)
    if dataset.here:
        return Finding(Level.OK, name, "Here")
    size = format_bytes(dataset.download_bytes)
    if not dataset.reachable:
        return Finding(
            Level.WARNING,
            name,
            f"Not here ({size}), and no mirror offers it now.",
            f"`kit data add {dataset.name} PATH` takes what you have; else runs use the synthetic set.",
        )
    unasked = dataset.download_bytes <= AUTO_BUDGET.bytes
    how = "a run downloads it" if unasked else f"`kit data fetch {dataset.name}` downloads it, a run does not unasked"
    return Finding(Level.OK, name, f"Not here; {how} ({size})")
