"""Define the facts about a machine. `gather` collects them, and `checks` and `gpu_checks` judge them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kit.host.load import Load
from kit.model.environment import EnvironmentKey, Framework
from kit.model.errors import KitError
from kit.model.machine import Gpu


@dataclass(frozen=True)
class Toolkit:
    """How Docker passes GPUs to containers.

    ways: those of `CDI`, `nvidia runtime` and `hook` that are set up. version: of the NVIDIA Container Toolkit, for
    example (1, 17, 8); None if it is unknown.
    """

    ways: tuple[str, ...]
    version: tuple[int, ...] | None


@dataclass(frozen=True)
class Docker:
    """The state of Docker.

    description: what the engine reports, or why it cannot be used. Then all other fields are empty. images_free_bytes:
    free space for images; None if it cannot be seen. ready: environments whose image exists.
    """

    description: Mapping[str, str] | KitError
    toolkit: Toolkit = Toolkit((), None)
    images_free_bytes: int | None = None
    ready: frozenset[EnvironmentKey] = frozenset()


@dataclass(frozen=True)
class Local:
    """The state of the local engine.

    description: what the engine reports, or why it cannot be used. python: version of the interpreter for its
    environments, for example `3.11.9`; None if it is missing. ready: environments that exist.
    """

    description: Mapping[str, str] | KitError
    python: str | None = None
    ready: frozenset[EnvironmentKey] = frozenset()


@dataclass(frozen=True)
class Gpus:
    """What NVIDIA's driver reports.

    silent: number of GPUs that NVML counts, but that do not answer. driver: its version. cuda: the newest CUDA version
    that it supports. busy: indices of the GPUs on which a process computes. modes: index to compute mode of the GPUs on
    which the driver refuses processes. visible: the GPUs that CUDA_VISIBLE_DEVICES names, or what is wrong with them;
    None if it is not set. lacks: framework to (cause, remedy) if no GPU here can run its cuda environment. answered:
    False if the driver was too slow. Then all other fields are empty.
    """

    found: tuple[Gpu, ...] = ()
    driver: str | None = None
    cuda: str | None = None
    busy: tuple[int, ...] = ()
    silent: int = 0
    modes: Mapping[int, str] = field(default_factory=dict)
    visible: tuple[str, ...] | KitError | None = None
    lacks: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    answered: bool = True


@dataclass(frozen=True)
class Folder:
    """A folder to which kit writes, or its nearest parent if the folder does not exist yet.

    path: as the user named it. setting: the option or variable that changes the folder.
    """

    name: str
    path: Path
    setting: str
    writable: bool
    free_bytes: int


@dataclass(frozen=True)
class Cpus:
    """Numbers of CPUs. usable: logical CPUs for launches. logical: of the machine. quota: of the cgroup, in CPUs."""

    usable: int
    logical: int
    quota: float | None


@dataclass(frozen=True)
class DataSet:
    """The state of a data set.

    here: it is prepared. damage: why existing files cannot be used. download_bytes: size of the published files.
    reachable: a mirror offers them (only checked for data sets that are not here).
    """

    name: str
    here: bool
    download_bytes: int
    damage: KitError | None = None
    reachable: bool = False


@dataclass(frozen=True)
class Facts:
    """All facts about a machine.

    cards: number of NVIDIA GPUs on the PCI bus, with or without a driver. limit_bytes: memory limit of the cgroup.
    shm_free_bytes: free space in /dev/shm; None if it is missing. governors: frequency governor of each CPU, as far as
    the machine shows them. load: None if the system does not count CPU time.
    """

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
