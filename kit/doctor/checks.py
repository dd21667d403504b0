"""Check every machine, with or without GPUs. Every check only judges facts."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from kit.analysis.warning_rules import WITHHELD_SHARE, tolerable_load
from kit.analysis.warnings import REMEDIES, WarningCode
from kit.datasets.service import AUTO_BUDGET
from kit.doctor.facts import Cpus, DataSet, Docker, Facts, Folder, Local
from kit.doctor.findings import Finding, Level
from kit.doctor.gpu_checks import check_gpus
from kit.environments.uv_environments import PYTHON
from kit.host import machine
from kit.host.load import Load
from kit.model.environment import EnvironmentKey
from kit.model.errors import EngineError, KitError
from kit.model.formatting import format_bytes, format_count, format_percent
from kit.planning.estimates import environment_cost
from scenarios.contract.cell import Device

MIN_FREE_BYTES = 2 << 30  # the smallest environment and its data
RUN_BYTES = 200 << 20  # several standard runs of all cells with host samples and reports
MIN_STOLEN = 0.05  # CPUs: 2.5 clock ticks in the half second of the measurement
MIN_MEMORY_BYTES = 2 << 30  # the largest launch of the smoke profile
AMPLE_MEMORY_BYTES = 4 << 30
# PyTorch's four loader processes pass batches through /dev/shm, each up to two batches ahead. At 128 x 128 x 3 float32
# per image, this takes 50 MB at batch size 32 and 400 MB at 256. Docker's default is 64 MB.
AMPLE_SHM_BYTES = 512 << 20


def judge(facts: Facts) -> list[Finding]:
    """Return the findings of all checks in the order of the output."""
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
    """Check that this is Linux on x86_64."""
    try:
        machine.require_supported(system, architecture)
    except EngineError as error:
        return Finding(Level.ERROR, "platform", error.message, error.remedy)
    return Finding(Level.OK, "platform", f"{system} on {architecture}")


def check_engines(docker: Mapping[str, str] | KitError, local: Mapping[str, str] | KitError) -> list[Finding]:
    """Check whether each engine works. One working engine is enough."""
    working = sum(not isinstance(answer, KitError) for answer in (docker, local))
    findings = []
    for name, answer in (("docker", docker), ("local", local)):
        if isinstance(answer, KitError):
            level = Level.WARNING if working else Level.ERROR
            findings.append(Finding(level, f"engine {name}", answer.message, answer.remedy))
        else:
            facts = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in answer.items() if key != "engine")
            findings.append(Finding(Level.OK, f"engine {name}", facts))
    return findings


def check_python(local: Local) -> list[Finding]:
    """Check the Python for environments of the local engine. Return nothing if that engine does not work."""
    if isinstance(local.description, KitError):
        return []
    if local.python:
        return [Finding(Level.OK, "python", f"{local.python}, for environments of the local engine")]
    message = f"Python {PYTHON} is missing. The local engine would download it with uv."
    remedy = f"Without internet access, install Python {PYTHON}, or use --engine docker or --env system."
    return [Finding(Level.WARNING, "python", message, remedy)]


def check_folder(folder: Folder, more_bytes: int) -> Finding:
    """Check permission and free space of a folder. more_bytes: space that runs may need."""
    if not folder.writable:
        remedy = f"Choose another folder with {folder.setting}."
        return Finding(Level.ERROR, folder.name, f"{folder.path} is not writable.", remedy)
    message = f"{format_bytes(folder.free_bytes)} free at {folder.path}"
    need = f"Runs may need {format_bytes(more_bytes)} there. Free disk space"
    limits = min(MIN_FREE_BYTES, more_bytes), more_bytes
    remedies = f"{need}.", f"{need}, or select less (--framework, --scenario)."
    return _graded(folder.name, message, folder.free_bytes, limits, remedies)


def _graded(name: str, message: str, count: int, limits: tuple[int, int], remedies: tuple[str, str]) -> Finding:
    """Return an error if the count is below the first limit, and a warning if it is below the second one."""
    for level, limit, remedy in zip((Level.ERROR, Level.WARNING), limits, remedies, strict=True):
        if count < limit:
            return Finding(level, name, message, remedy)
    return Finding(Level.OK, name, message)


def folder_needs(facts: Facts) -> dict[str, int]:
    """Return the bytes that runs may need in each folder.

    The cache has the environments of the local engine, and the packages for them, if Docker cannot be used. Data sets
    count three times: as downloaded, unpacked and prepared files.
    """
    only_local = isinstance(facts.docker.description, KitError)
    return {
        "disk cache": RUN_BYTES + 2 * environments_bytes(facts, facts.local.ready) * only_local,
        "disk data": 3 * sum(one.download_bytes for one in facts.datasets if not one.here),
        "disk out": RUN_BYTES,
    }


def environments_bytes(facts: Facts, ready: Collection[EnvironmentKey]) -> int:
    """Return the disk space of all missing environments for the devices of this machine."""
    devices: tuple[Device, ...] = ("cpu", "cuda") if facts.gpus.found else ("cpu",)
    return sum(
        environment_cost(framework.name, device).bytes
        for framework in facts.frameworks
        for device in devices
        if device in framework.devices and (framework.name, device) not in ready
    )


def check_images(docker: Docker, more_bytes: int) -> list[Finding]:
    """Check the free space for Docker's images. more_bytes: size of the images that are missing."""
    if isinstance(docker.description, KitError):
        return []
    free = docker.images_free_bytes
    if free is None:
        return [Finding(Level.OK, "disk images", "The free space on Docker's disk is unknown")]
    remedies = (
        "Free disk space (`docker system df` shows what uses it), or use --engine local.",
        f"The missing images take about {format_bytes(more_bytes)}. Free space, or build fewer images (--framework).",
    )
    limits = min(MIN_FREE_BYTES, more_bytes), more_bytes
    return [_graded("disk images", f"{format_bytes(free)} free for Docker images", free, limits, remedies)]


def check_cpus(cpus: Cpus) -> Finding:
    """Check how many CPUs are usable, and whether a quota limits them."""
    message = f"{cpus.usable} of {cpus.logical} logical CPUs are usable"
    if cpus.quota is not None and cpus.quota < cpus.logical:
        return Finding(
            Level.WARNING,
            "cpus",
            f"{message}, because of a quota of {cpus.quota:g} CPUs",
            "Results apply to the quota, not to the whole machine. The quota is rounded down to whole CPUs.",
        )
    return Finding(Level.OK, "cpus", message)


def check_memory(available_bytes: int, limit_bytes: int | None) -> Finding:
    """Check the memory that a launch could use now. limit_bytes: limit of the cgroup."""
    usable = min(available_bytes, limit_bytes or available_bytes)
    limited = f", limited to {format_bytes(limit_bytes)}" if limit_bytes is not None else ""
    message = f"{format_bytes(available_bytes)} available{limited}"
    remedies = (
        f"End other programs or raise the limit. A launch needs at least {format_bytes(MIN_MEMORY_BYTES)}.",
        "The larger scenarios may run out of memory (out_of_memory). Omit them, or use a smaller --batch.",
    )
    return _graded("memory", message, usable, (MIN_MEMORY_BYTES, AMPLE_MEMORY_BYTES), remedies)


def check_shm(free_bytes: int | None) -> Finding:
    """Check the shared memory for launches of the local engine. Containers have their own."""
    message = "There is no /dev/shm." if free_bytes is None else f"{format_bytes(free_bytes)} free in /dev/shm"
    if free_bytes is None or free_bytes < AMPLE_SHM_BYTES:
        remedy = (
            "With the local engine, PyTorch's loader may end with a bus error. If this is a container, start it with "
            "--shm-size=2g. Or use --engine docker, whose containers have their own shared memory."
        )
        return Finding(Level.WARNING, "shm", message, remedy)
    return Finding(Level.OK, "shm", message)


def check_governor(governors: Sequence[str]) -> Finding:
    """Check the frequency governor of the CPUs. Most virtual machines do not show it."""
    if not governors:
        return Finding(Level.OK, "governor", "The frequency governor of the CPUs is unknown")
    counts = ", ".join(f"{name} on {format_count(count, 'CPU')}" for name, count in Counter(governors).most_common())
    if set(governors) == {"performance"}:
        return Finding(Level.OK, "governor", counts)
    remedy = "The clocks follow the load. Before you measure, run `sudo cpupower frequency-set --governor performance`."
    return Finding(Level.WARNING, "governor", counts, remedy)


def check_load(load: Load | None) -> Finding:
    """Check how many CPUs other programs keep busy."""
    if load is None:
        return Finding(Level.OK, "load", "The system does not count CPU time")
    message = f"{load.busy:.2f} of {load.cpus} CPUs are busy with other programs"
    if load.busy <= tolerable_load(load.cpus):
        return Finding(Level.OK, "load", message)
    named = f"; busiest: {', '.join(load.busiest)}" if load.busiest else ""
    return Finding(Level.WARNING, "load", f"{message}{named}", "End other programs before you measure.")


def check_steal(load: Load | None) -> Finding:
    """Check how much CPU time the hypervisor gives to other machines."""
    if load is None:
        return Finding(Level.OK, "steal", "The system does not count CPU time")
    # Share of the requested time, as in the warning. On an idle machine, one clock tick would be a large share.
    share = load.stolen / (load.busy + load.stolen) if load.stolen >= MIN_STOLEN else 0.0
    message = f"The hypervisor gives {format_percent(share)} of the requested CPU time to other machines"
    if share > WITHHELD_SHARE:
        return Finding(Level.WARNING, "steal", message, REMEDIES[WarningCode.STEAL])
    return Finding(Level.OK, "steal", message)


def check_data(dataset: DataSet) -> Finding:
    """Check whether the real data set is ready or can be downloaded."""
    name = f"data {dataset.name}"
    if dataset.damage:
        return Finding(Level.WARNING, name, dataset.damage.message, dataset.damage.remedy)
    if dataset.here:
        return Finding(Level.OK, name, "Ready")
    size = format_bytes(dataset.download_bytes)
    if not dataset.reachable:
        return Finding(
            Level.WARNING,
            name,
            f"Missing ({size}), and no mirror offers it now.",
            f"Add your own files with `kit data add {dataset.name} PATH`. Otherwise runs use synthetic data.",
        )
    automatic = dataset.download_bytes <= AUTO_BUDGET.bytes
    how = "A run downloads it" if automatic else f"Only `kit data fetch {dataset.name}` downloads it"
    return Finding(Level.OK, name, f"Missing. {how} ({size})")
