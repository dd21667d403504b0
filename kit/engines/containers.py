"""Describe a launch's container: user, variables, limits, mounts. kit/engines/docker.py creates it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from kit.model.launch import LaunchFolder, Limits

IO = PurePosixPath("/io")
DATA = PurePosixPath("/data")
NOBODY = 65534
LOG_BYTES = 10_000_000

# Every folder that libraries write to by default, below the scratch mount.
FOLDERS = {
    "HOME": "home",
    "TMPDIR": "tmp",
    "XDG_CACHE_HOME": "cache",
    "XDG_CONFIG_HOME": "home/.config",
    "TORCHINDUCTOR_CACHE_DIR": "cache/inductor",
    "TRITON_CACHE_DIR": "cache/triton",
    "MPLCONFIGDIR": "cache/matplotlib",
    "CUDA_CACHE_PATH": "cache/cuda",
}


@dataclass(frozen=True)
class Host:
    """The parts of the engine's description of itself (`/info`) that a container depends on."""

    rootless: bool
    userns: bool
    selinux: bool
    cdi: bool
    memory: bool
    swap: bool
    pids: bool
    cpuset: bool

    @classmethod
    def of(cls, info: Mapping[str, Any]) -> Host:
        """Read the engine's answer. A limit that it does not mention is one that it can set."""
        security = {str(option).removeprefix("name=").split(",")[0] for option in info.get("SecurityOptions") or ()}
        return cls(
            rootless="rootless" in security,
            userns="userns" in security,
            selinux="selinux" in security,
            cdi=_offers_cdi(info),
            memory=bool(info.get("MemoryLimit", True)),
            swap=bool(info.get("SwapLimit", True)),
            pids=bool(info.get("PidsLimit", True)),
            cpuset=bool(info.get("CPUSet", True)),
        )


def _offers_cdi(info: Mapping[str, Any]) -> bool:
    """Return whether the engine knows NVIDIA's devices by CDI. Before Docker 28 it names only CDI folders."""
    found = [str(device.get("ID", "")) for device in info.get("DiscoveredDevices") or ()]
    specifications = [path for folder in info.get("CDISpecDirs") or () for path in Path(folder).glob("nvidia*")]
    return bool(specifications) or any(device.startswith("nvidia.com/gpu=") for device in found)


def default_runtime(info: Mapping[str, Any], version: Mapping[str, Any]) -> str:
    """Return program and, if known, version of the runtime that starts containers, for example `crun 1.14.1`.

    info, version: the engine's answers to `/info` and `/version`. Docker reads the version from the output of the
    program. Older releases understand only that of runc.
    """
    name = str(info.get("DefaultRuntime") or "unknown")
    described = (info.get("Runtimes") or {}).get(name) or {}
    program = PurePosixPath(str(described.get("path") or name)).name
    versions = [part.get("Version") for part in version.get("Components") or () if part.get("Name") in {name, program}]
    return " ".join([program, *filter(None, versions[:1])])


def user(host: Host) -> tuple[int, int]:
    """Return the worker's uid and gid: the caller's, or nobody's for root. In a rootless engine, 0 is the caller."""
    if host.rootless:
        return 0, 0
    return (os.getuid(), os.getgid()) if os.getuid() else (NOBODY, NOBODY)


def variables(request: Mapping[str, str]) -> dict[str, str]:
    """Return the worker's variables: the request's, and every home and cache in the scratch mount."""
    places = {name: str(IO / folder) for name, folder in FOLDERS.items()}
    return {**request, **places, "USER": "kit", "LOGNAME": "kit"}


def command(folder: LaunchFolder) -> list[str]:
    """Return the worker's arguments. The image's entry point is the worker."""
    return [str(IO), "--data", str(DATA)] if folder.data else [str(IO)]


def host_options(host: Host, folder: LaunchFolder, limits: Limits) -> tuple[dict[str, Any], list[str]]:
    """Return `HostConfig` of the engine's API, and a warning for every limit that this engine cannot set."""
    options: dict[str, Any] = {
        "NetworkMode": "none",
        "ReadonlyRootfs": True,
        "CapDrop": ["ALL"],
        "SecurityOpt": ["no-new-privileges", *(["label=disable"] if host.selinux else [])],
        "ShmSize": limits.shm_bytes,
        "Mounts": _mounts(folder),
        "LogConfig": {"Type": "none", "Config": {}},  # the output is read while it comes
    }
    settable: dict[str, tuple[bool, dict[str, Any]]] = {
        "memory": (host.memory, {"Memory": limits.memory_bytes}),
        "swap": (host.memory and host.swap, {"MemorySwap": limits.memory_bytes}),  # memory and swap together
        "processes": (host.pids, {"PidsLimit": limits.pids}),
        "CPUs": (host.cpuset, {"CpusetCpus": ",".join(map(str, limits.cpus))}),
    }
    warnings = []
    for name, (possible, values) in settable.items():
        if possible:
            options |= values
        else:
            warnings.append(f"The engine cannot limit {name} here. The launch ran without that limit.")
    if host.userns:  # the engine would give the worker another uid, which may not write to the scratch folder
        options["UsernsMode"] = "host"
    if limits.gpus:
        options["DeviceRequests"] = [gpu_request(host, limits.gpus)]
    return options, warnings


def gpu_request(host: Host, gpus: tuple[str, ...]) -> dict[str, Any]:
    """Return a device request for these GPUs, through CDI if the engine knows NVIDIA's devices by it."""
    if host.cdi:
        return {"Driver": "cdi", "DeviceIDs": [f"nvidia.com/gpu={gpu}" for gpu in gpus]}
    return {"Driver": "nvidia", "DeviceIDs": list(gpus), "Capabilities": [["gpu", "compute", "utility"]]}


def _mounts(folder: LaunchFolder) -> list[dict[str, Any]]:
    mounts = [{"Type": "bind", "Source": str(folder.scratch.resolve()), "Target": str(IO), "ReadOnly": False}]
    if folder.data:
        mounts.append({"Type": "bind", "Source": str(folder.data.resolve()), "Target": str(DATA), "ReadOnly": True})
    return mounts
