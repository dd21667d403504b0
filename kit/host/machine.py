"""What this machine is and how much of it may be used: CPUs, quota, memory, caches, GPUs, system.

Linux on x86_64 only. Each source is read by one function and parsed by another, which takes text, so that recorded
files of other machines test the parsers.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import pwd
import re
import shutil
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

import kit
from kit.model.errors import EngineError
from kit.model.machine import Machine
from scenarios.linux.caches import last_cache_bytes

# What decides how fast matrix code runs; the hundred other flags would only fill the records.
TELLING_FLAGS = re.compile(r"sse4_2|f16c|fma|avx.*|amx.*")


def require_supported(system: str = platform.system(), architecture: str = platform.machine()) -> None:
    """Raise EngineError anywhere but on Linux on x86_64: the frameworks have no such wheels for other machines."""
    if (system, architecture) != ("Linux", "x86_64"):
        raise EngineError(
            f"kit measures on Linux on x86_64 only; this is {system or 'an unknown system'} on {architecture}.",
            "Run it on a Linux x86_64 machine, or in such a virtual machine.",
        )


@dataclass(frozen=True)
class Processors:
    """/proc/cpuinfo. cores: logical CPU number to (socket, core) of the physical core it belongs to."""

    model: str
    flags: frozenset[str]
    cores: dict[int, tuple[int, int]]

    @property
    def sockets(self) -> int:
        return len({socket_id for socket_id, _ in self.cores.values()})

    @property
    def physical_cores(self) -> int:
        return len(set(self.cores.values()))


def parse_cpuinfo(text: str) -> Processors:
    """Parse /proc/cpuinfo. Where it names no core (some virtual machines), each logical CPU counts as one."""
    cores: dict[int, tuple[int, int]] = {}
    model, flags = "unknown", ""
    for block in text.strip().split("\n\n"):
        fields = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in block.splitlines())}
        if "processor" not in fields:
            continue
        number = int(fields["processor"])
        cores[number] = (int(fields.get("physical id", 0)), int(fields.get("core id", number)))
        model = fields.get("model name", model)
        flags = fields.get("flags", flags)
    return Processors(" ".join(model.split()), frozenset(flags.split()), cores)


def spread(cpus: set[int], cores: dict[int, tuple[int, int]]) -> tuple[int, ...]:
    """Logical CPUs in the order in which to use them: one of each physical core first, then their siblings."""
    taken: dict[tuple[int, int], int] = {}
    ranked = []
    for cpu in sorted(cpus):
        core = cores.get(cpu, (0, cpu))
        ranked.append((taken.setdefault(core, 0), cpu))
        taken[core] += 1
    return tuple(cpu for _, cpu in sorted(ranked))


def usable_cpus() -> tuple[int, ...]:
    """Numbers of the logical CPUs that may be used: affinity, of which no more than the cgroup's quota, rounded down,
    because a thread beyond the quota stalls all others whenever it is spent. Best first: the first n are on n
    physical cores where there are as many."""
    ordered = spread(os.sched_getaffinity(0), parse_cpuinfo(Path("/proc/cpuinfo").read_text()).cores)
    quota = quota_cpus()
    return ordered if quota is None else ordered[: max(1, int(quota))]


def cgroup_folders(controller: str, memberships: str, mounts: str) -> tuple[int, list[Path]]:
    """The cgroup version (1 or 2) that manages `controller`, and the folders whose limits hold for this process:
    its own first, then each parent up to the mount point. No folders where no such hierarchy is mounted.

    memberships: text of /proc/self/cgroup; mounts: text of /proc/self/mountinfo (both: man 7 cgroups, man 5 proc).
    """
    paths = {}
    for line in memberships.splitlines():
        _, names, path = line.split(":", 2)
        paths.update(dict.fromkeys(names.split(","), path))  # version 2 has the empty name
    unified: tuple[int, list[Path]] = (2, [])
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        root, point = before.split()[3:5]
        kind, _, options = after.split()[:3]
        if kind == "cgroup" and controller in options.split(",") and controller in paths:
            return 1, _chain(Path(point), root, paths[controller])
        if kind == "cgroup2" and "" in paths:
            unified = 2, _chain(Path(point), root, paths[""])
    return unified


def _chain(point: Path, root: str, path: str) -> list[Path]:
    # In a container the mount shows only the part of the hierarchy below `root`; a path outside of it is not visible,
    # and the kernel writes one outside of the cgroup namespace as /../name.
    inside = os.path.relpath(path, root)
    own = point if path.startswith("/..") or inside.startswith("..") else point / inside
    return [own, *(parent for parent in own.parents if parent.is_relative_to(point))]


def quota_from(version: int, folder: Path) -> float | None:
    """CPUs that one cgroup folder grants, None where it sets no limit."""
    if version == 2:
        quota, period = (_read(folder / "cpu.max") or "max 100000").split()
    else:
        quota = _read(folder / "cpu.cfs_quota_us") or "-1"
        period = _read(folder / "cpu.cfs_period_us") or "100000"
    return None if quota in {"max", "-1"} else int(quota) / int(period)


def memory_limit_from(version: int, folder: Path) -> int | None:
    """Bytes that one cgroup folder grants, None where it sets no limit."""
    text = _read(folder / ("memory.max" if version == 2 else "memory.limit_in_bytes")) or "max"
    # Version 1 writes "no limit" as the largest multiple of the page size that fits in 63 bits.
    return None if text == "max" or int(text) > 1 << 62 else int(text)


def quota_cpus() -> float | None:
    """CPUs that the cgroup's quota grants (the least on the way up), None where there is none."""
    version, folders = _own_cgroup("cpu")
    return min((q for q in (quota_from(version, folder) for folder in folders) if q is not None), default=None)


def memory_limit_bytes() -> int | None:
    """The cgroup's memory limit (the least on the way up), None where there is none below the machine's memory."""
    version, folders = _own_cgroup("memory")
    total = psutil.virtual_memory().total
    limits = (memory_limit_from(version, folder) for folder in folders)
    return min((limit for limit in limits if limit is not None and limit < total), default=None)


def _own_cgroup(controller: str) -> tuple[int, list[Path]]:
    process = Path("/proc/self")
    return cgroup_folders(controller, (process / "cgroup").read_text(), (process / "mountinfo").read_text())


def caches(folder: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> dict[str, int]:
    """Sizes in bytes of the caches that CPU 0 sees: L1d, L1i, L2, L3. Empty where the system does not tell."""
    found = {}
    for index in sorted(folder.glob("index*")):
        level, kind, size = (_read(index / name) for name in ("level", "type", "size"))
        if level and kind and size:
            suffix = {"Data": "d", "Instruction": "i"}.get(kind, "")
            found[f"L{level}{suffix}"] = int(size.rstrip("KM")) << {"K": 10, "M": 20}.get(size[-1], 0)
    return found


def virtualization(flags: frozenset[str]) -> str | None:
    """The kind of container or virtual machine this runs in, as systemd names it; None on bare metal."""
    if tool := shutil.which("systemd-detect-virt"):
        answer = subprocess.run([tool], capture_output=True, text=True, check=False).stdout.strip()
        if answer:
            return None if answer == "none" else answer
    for mark, name in (("/.dockerenv", "docker"), ("/run/.containerenv", "podman")):
        if Path(mark).exists():
            return name
    return (_read(Path("/sys/hypervisor/type")) or "virtual machine") if "hypervisor" in flags else None


def describe(runtime: dict[str, str], identify: bool) -> Machine:
    """Describe this machine. runtime: what the engine says of itself. Host name, user and GPU serials (UUIDs) are in
    it only with `identify`."""
    from kit.host.gpus import driver, gpus

    processors = parse_cpuinfo(Path("/proc/cpuinfo").read_text())
    driver_version, cuda_version = driver()
    facts: dict[str, Any] = {
        "cpu_model": processors.model,
        "architecture": platform.machine(),
        "sockets": processors.sockets,
        "physical_cores": processors.physical_cores,
        "logical_cpus": len(processors.cores),
        "cpus": len(usable_cpus()),
        "quota_cpus": quota_cpus(),
        "caches": caches(),
        "last_cache_bytes": last_cache_bytes(usable_cpus()),
        "cpu_flags": sorted(flag for flag in processors.flags if TELLING_FLAGS.fullmatch(flag)),
        "memory_bytes": psutil.virtual_memory().total,
        "memory_limit_bytes": memory_limit_bytes(),
        "gpus": gpus(identify=identify),
        "driver": driver_version,
        "cuda_driver": cuda_version,
        "os": platform.freedesktop_os_release().get("PRETTY_NAME", "Linux"),
        "kernel": platform.release(),
        "virtualization": virtualization(processors.flags),
    }
    return Machine(
        id=identity(facts),
        **facts,
        container_runtime=runtime,
        python=platform.python_version(),
        kit=kit.__version__,
        hostname=socket.gethostname() if identify else None,
        user=_user() if identify else None,
    )


def identity(facts: dict[str, Any]) -> str:
    """16 hex digits, equal for equal facts about hardware, its limits and its system software.

    Memory counts in whole GiB, because the kernel's own share of it differs a little from boot to boot; a GPU's
    power limit, which an administrator may change at any time, and its UUID do not count.
    """
    gpus = [gpu.model_dump(include={"name", "memory_bytes", "compute_capability"}) for gpu in facts["gpus"]]
    stable = facts | {"memory_bytes": round(facts["memory_bytes"] / (1 << 30)), "gpus": gpus}
    return hashlib.sha256(json.dumps(stable, sort_keys=True).encode()).hexdigest()[:16]


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a number without an account, as in containers
        return str(os.getuid())


def _read(path: Path) -> str | None:
    """The stripped text of a small system file, None where the system has none or shows it to nobody."""
    try:
        return path.read_text().strip()
    except OSError:
        return None
