"""Define frameworks and the environments in which they run."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kit.model.device_code import Capability, DeviceCode
from scenarios.contract.cell import Device

EnvironmentKey = tuple[str, Device]  # the name of a framework, and a device


@dataclass(frozen=True)
class Framework:
    """The content of `docker/<framework>/framework.toml`.

    modules: modules that the adapter imports, in addition to those of `common.in`. cuda_major, min_driver (major
    version of NVIDIA's driver), device_code: None without a CUDA image. device_code: the code in each
    `package==version/library` of the CUDA lock that every training step needs. max_capability: compute capability of
    the newest GPUs for which the framework can compile code at run time; None for no limit.
    """

    name: str
    title: str
    devices: tuple[Device, ...]
    modules: tuple[str, ...]
    cuda_major: int | None
    min_driver: int | None
    device_code: Mapping[str, tuple[DeviceCode, ...]] | None
    folder: Path
    max_capability: Capability | None = None


@dataclass(frozen=True)
class Environment:
    """Something that can run a worker.

    For the kind `image`, reference is the tag and digest is the image's id. For `venv` and `system`, reference is the
    interpreter. Then digest is a hash over the lock (`venv`) or over the installed packages (`system`).
    """

    framework: str
    device: Device
    kind: Literal["image", "venv", "system"]
    reference: str
    digest: str
    size_bytes: int | None = None
