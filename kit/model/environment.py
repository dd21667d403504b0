"""The nouns of the orchestrator: cell, framework, environment, limits, completion. Plain frozen data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Device = Literal["cpu", "cuda"]


EnvironmentKey = tuple[str, Device]  # a framework's name on a device: what has an environment


@dataclass(frozen=True)
class Framework:
    """What `docker/<framework>/framework.toml` says. modules: what its adapter imports, beside `common.in`.

    cuda_*: None where the framework has no cuda image. min_driver: NVIDIA driver major version. min_capability:
    compute capability, as (7, 5).
    """

    name: str
    title: str
    devices: tuple[Device, ...]
    modules: tuple[str, ...]
    cuda_major: int | None
    min_driver: int | None
    min_capability: tuple[int, int] | None
    folder: Path


@dataclass(frozen=True)
class Environment:
    """Something that can run a worker. kind image: `reference` is its tag and `digest` its id; venv and system:
    `reference` is the interpreter, `digest` the lock's hash (system: a hash over its packages)."""

    framework: str
    device: Device
    kind: Literal["image", "venv", "system"]
    reference: str
    digest: str
    size_bytes: int | None = None
