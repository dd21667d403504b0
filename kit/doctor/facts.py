"""What is known of a machine before anything is built on it: plain data, gathered by `gather`, judged by `checks`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kit.model.environment import EnvironmentKey, Framework
from kit.model.errors import KitError
from kit.model.machine import Gpu


@dataclass(frozen=True)
class Toolkit:
    """What hands GPUs to Docker's containers. ways: those of `CDI`, `nvidia runtime`, `hook` that are set up.
    version: of the NVIDIA Container Toolkit, as (1, 17, 8); None where it does not tell."""

    ways: tuple[str, ...]
    version: tuple[int, ...] | None


@dataclass(frozen=True)
class Docker:
    """description: what the engine says of itself, or why it cannot be used; then all else is empty.
    images_free_bytes: on the disk where it keeps its images; None where that is not to be seen from here. ready: where
    the image is built."""

    description: Mapping[str, str] | KitError
    toolkit: Toolkit = Toolkit((), None)
    images_free_bytes: int | None = None
    ready: frozenset[EnvironmentKey] = frozenset()


@dataclass(frozen=True)
class Local:
    """description: what the engine says of itself, or why it cannot be used. python: version of the interpreter from
    which its environments are made, as `3.11.9`; None where there is none yet. ready: where the environment is made."""

    description: Mapping[str, str] | KitError
    python: str | None = None
    ready: frozenset[EnvironmentKey] = frozenset()


@dataclass(frozen=True)
class Gpus:
    """What the driver shows. driver, cuda: its version, and the newest CUDA that it serves. busy: indices of the GPUs
    on which a process computes. lacks: framework to what no GPU here has of what its cuda environment needs, and the
    remedy; those that one can run are not in it. answered: False where the driver took too long or failed; then all
    else is empty."""

    found: tuple[Gpu, ...] = ()
    driver: str | None = None
    cuda: str | None = None
    busy: tuple[int, ...] = ()
    lacks: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    answered: bool = True


@dataclass(frozen=True)
class Folder:
    """A folder that kit writes to, or its nearest parent where it is still to be made. path: as the person knows it.
    setting: what names another one."""

    name: str
    path: Path
    setting: str
    writable: bool
    free_bytes: int


@dataclass(frozen=True)
class Cpus:
    """usable: logical CPUs that launches get; logical: of the machine; quota: of the cgroup, in CPUs."""

    usable: int
    logical: int
    quota: float | None


@dataclass(frozen=True)
class Load:
    """The logical CPUs that this process may run on, over a moment. busy: how many of them other processes kept busy;
    stolen: how many the hypervisor gave to others meanwhile. busiest: names of the programs that ran most, alone."""

    cpus: int
    busy: float
    stolen: float
    busiest: tuple[str, ...]


@dataclass(frozen=True)
class DataSet:
    """here: prepared. damage: why what is here cannot be used. download_bytes: of its published files. reachable: a
    place that has them answers; asked of absent sets alone."""

    name: str
    here: bool
    download_bytes: int
    damage: KitError | None = None
    reachable: bool = False


@dataclass(frozen=True)
class Facts:
    """frameworks: all that there are. cards: NVIDIA GPUs on the PCI bus, with or without a driver. limit_bytes: the
    cgroup's memory limit. shm_free_bytes: in /dev/shm, None where there is none. governors: of the CPUs' clocks, one a
    CPU, as far as the machine shows them. load: None where the system counts no CPU time."""

    system: str
    architecture: str
    docker: Docker
    local: Local
    frameworks: Sequence[Framework]
    cards: int
    gpus: Gpus
    folders: Sequence[Folder]
    cpus: Cpus
    available_bytes: int
    limit_bytes: int | None
    shm_free_bytes: int | None
    governors: Sequence[str]
    load: Load | None
    datasets: Sequence[DataSet]
