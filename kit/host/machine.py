"""Describe this machine and how much of it may be used: CPUs, quota, memory, caches, GPUs, system.

Linux on x86_64 only. Parsers take text or a folder, so that recorded files of other machines test them.
"""

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
from scenarios.linux import cgroup
from scenarios.linux.caches import last_cache_bytes
from scenarios.linux.files import text

# The flags that decide how fast matrix code runs. The hundred others would only fill the records.
RECORDED_FLAGS = re.compile(r"sse4_2|f16c|fma|avx.*|amx.*")


def require_supported(system: str = platform.system(), architecture: str = platform.machine()) -> None:
    """Raise EngineError unless this is Linux on x86_64: the frameworks have no wheels for other machines."""
    if (system, architecture) != ("Linux", "x86_64"):
        raise EngineError(
            f"kit measures on Linux on x86_64 only, but this is {system or 'an unknown system'} on {architecture}.",
            "Run it on a Linux x86_64 machine or virtual machine.",
        )


@dataclass(frozen=True)
class Processors:
    """The content of /proc/cpuinfo. cores: logical CPU number to (socket, core) of its physical core."""

    model: str
    flags: frozenset[str]
    cores: dict[int, tuple[int, int]]

    @property
    def sockets(self) -> int:
        return len({socket_id for socket_id, _ in self.cores.values()})

    @property
    def physical_cores(self) -> int:
        return len(set(self.cores.values()))


def parse_cpuinfo(content: str) -> Processors:
    """Parse /proc/cpuinfo. If it names no cores (some virtual machines), each logical CPU counts as one."""
    cores: dict[int, tuple[int, int]] = {}
    model, flags = "unknown", ""
    for block in content.strip().split("\n\n"):
        fields = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in block.splitlines())}
        if "processor" not in fields:
            continue
        number = int(fields["processor"])
        cores[number] = (int(fields.get("physical id", 0)), int(fields.get("core id", number)))
        model = fields.get("model name", model)
        flags = fields.get("flags", flags)
    return Processors(" ".join(model.split()), frozenset(flags.split()), cores)


def spread(cpus: set[int], cores: dict[int, tuple[int, int]]) -> tuple[int, ...]:
    """Sort logical CPUs by the order in which to use them: one of each physical core first, then their siblings."""
    taken: dict[tuple[int, int], int] = {}
    ranked = []
    for cpu in sorted(cpus):
        core = cores.get(cpu, (0, cpu))
        ranked.append((taken.setdefault(core, 0), cpu))
        taken[core] += 1
    return tuple(cpu for _, cpu in sorted(ranked))


def usable_cpus() -> tuple[int, ...]:
    """Return the numbers of the logical CPUs that may be used, best first: the first n are on n physical cores if there
    are that many.

    These are the CPUs of the affinity mask, but no more than the cgroup's quota, rounded down: whenever the quota is
    used up, a thread beyond it stalls all others.
    """
    ordered = spread(os.sched_getaffinity(0), parse_cpuinfo(Path("/proc/cpuinfo").read_text()).cores)
    quota = quota_cpus()
    return ordered if quota is None else ordered[: max(1, int(quota))]


def quota_from(version: int, folder: Path) -> float | None:
    """Return the CPUs that one cgroup folder grants, None if it sets no limit."""
    if version == 2:
        quota, period = (text(folder / "cpu.max") or "max 100000").split()
    else:
        quota = text(folder / "cpu.cfs_quota_us") or "-1"
        period = text(folder / "cpu.cfs_period_us") or "100000"
    return None if quota in {"max", "-1"} else int(quota) / int(period)


def memory_limit_from(version: int, folder: Path) -> int | None:
    """Return the bytes that one cgroup folder grants, None if it sets no limit."""
    limit = text(folder / ("memory.max" if version == 2 else "memory.limit_in_bytes")) or "max"
    # Version 1 encodes "no limit" as the largest multiple of the page size that fits in 63 bits.
    return None if limit == "max" or int(limit) > 1 << 62 else int(limit)


def quota_cpus() -> float | None:
    """Return the CPUs that the cgroup's quota grants (the minimum over its parents), None if there is no quota."""
    version, folders = cgroup.own_folders("cpu")
    return min((q for q in (quota_from(version, folder) for folder in folders) if q is not None), default=None)


def memory_limit_bytes() -> int | None:
    """Return the cgroup's memory limit in bytes (the minimum over its parents), None if no limit is below the machine's
    memory."""
    version, folders = cgroup.own_folders("memory")
    total = psutil.virtual_memory().total
    limits = (memory_limit_from(version, folder) for folder in folders)
    return min((limit for limit in limits if limit is not None and limit < total), default=None)


def caches(folder: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> dict[str, int]:
    """Return the sizes in bytes of CPU 0's caches: L1d, L1i, L2, L3. Empty if the system does not show them."""
    found = {}
    for index in sorted(folder.glob("index*")):
        level, kind, size = (text(index / name) for name in ("level", "type", "size"))
        if level and kind and size:
            suffix = {"Data": "d", "Instruction": "i"}.get(kind, "")
            found[f"L{level}{suffix}"] = int(size.rstrip("KM")) << {"K": 10, "M": 20}.get(size[-1], 0)
    return found


def virtualization(flags: frozenset[str]) -> str | None:
    """Return the kind of container or virtual machine this runs in, by systemd's name. Return None on bare metal."""
    if tool := shutil.which("systemd-detect-virt"):
        answer = subprocess.run([tool], capture_output=True, text=True, check=False).stdout.strip()
        if answer:
            return None if answer == "none" else answer
    for mark, name in (("/.dockerenv", "docker"), ("/run/.containerenv", "podman")):
        if Path(mark).exists():
            return name
    return (text(Path("/sys/hypervisor/type")) or "virtual machine") if "hypervisor" in flags else None


def describe(runtime: dict[str, str], identify: bool) -> Machine:
    """Describe this machine. runtime: the engine's description of itself. identify: include host name, user and GPU
    UUIDs."""
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
        "cpu_flags": sorted(flag for flag in processors.flags if RECORDED_FLAGS.fullmatch(flag)),
        "memory_bytes": psutil.virtual_memory().total,
        "memory_limit_bytes": memory_limit_bytes(),
        "gpus": gpus(identify=identify),
        "driver": driver_version,
        "cuda_driver": cuda_version,
        "os": _system_name(),
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
    """Return 16 hex digits that are equal for equal facts about hardware, its limits and its system software.

    Memory counts in whole GiB, because the kernel's own share of it differs a little from boot to boot. A GPU's power
    limit does not count, because an administrator may change it at any time. Its UUID does not count either.
    """
    gpus = [gpu.hardware for gpu in facts["gpus"]]
    stable = facts | {"memory_bytes": round(facts["memory_bytes"] / (1 << 30)), "gpus": gpus}
    return hashlib.sha256(json.dumps(stable, sort_keys=True).encode()).hexdigest()[:16]


def _system_name() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "Linux")
    except OSError:  # a small image may have no os-release
        return "Linux"


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a number without an account, for example in containers
        return str(os.getuid())
