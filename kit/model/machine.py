"""Define the description of a machine."""

import hashlib
import json
from collections import Counter
from typing import Annotated, Any

from pydantic import Field, NonNegativeInt

from kit.model.document import Document, Items, Part
from kit.model.formatting import format_bytes, format_count
from scenarios.contract.ranges import MAX_CPUS

Processors = Annotated[int, Field(ge=0, le=MAX_CPUS)]
Watts = Annotated[float, Field(ge=0, le=1e6)]


class Gpu(Part):
    """One NVIDIA GPU. NVML may refuse to report any of this. The name is then `NVIDIA GPU`, and other values are None.

    index: NVML's, in the order of the PCI bus. power_limit_w, default_power_limit_w: watts. uuid: only with --identify.
    """

    index: NonNegativeInt
    name: str
    memory_bytes: NonNegativeInt | None
    compute_capability: tuple[int, int] | None
    power_limit_w: Watts | None
    default_power_limit_w: Watts | None
    uuid: str | None = None

    @property
    def hardware(self) -> dict[str, Any]:
        """Return what is equal for equal GPUs. An administrator may change the power limit at any time."""
        return self.model_dump(include={"name", "memory_bytes", "compute_capability"})

    def digest(self, salt: str) -> str:
        """Return a SHA-256 (hex) of this one GPU: its name, and its UUID or, if NVML does not report it, its index.

        salt: of the run, so that records of two runs do not show that they used the same GPU.
        """
        return hashlib.sha256(json.dumps([salt, self.name, self.uuid or self.index]).encode()).hexdigest()


class Machine(Document):
    """The machine that measures.

    id: a hash, equal for equal hardware and system software. It is not a serial number. sockets, physical_cores,
    logical_cpus: of the whole machine. cpus: number of logical CPUs that may be used (affinity and quota). quota_cpus:
    quota of the cgroup, in CPUs; None for no quota. caches: caches of CPU 0, level to bytes. last_cache_bytes: all
    last-level caches of the usable CPUs together; 0 if unknown. memory_limit_bytes: limit of the cgroup; None for no
    limit. driver: version of NVIDIA's driver. cuda_driver: newest CUDA version that this driver supports.
    container_runtime: what the engine says about itself. hostname, user: only with --identify.
    """

    id: str
    cpu_model: str
    architecture: str
    sockets: Processors
    physical_cores: Processors
    logical_cpus: Processors
    cpus: Annotated[Processors, Field(ge=1)]
    quota_cpus: Annotated[float, Field(ge=0, le=MAX_CPUS)] | None
    caches: dict[str, NonNegativeInt]
    last_cache_bytes: NonNegativeInt
    cpu_flags: Items[str]
    memory_bytes: NonNegativeInt
    memory_limit_bytes: NonNegativeInt | None
    gpus: Items[Gpu]
    driver: str | None
    cuda_driver: str | None
    os: str
    kernel: str
    container_runtime: dict[str, str]
    virtualization: str | None
    python: str
    kit: str
    hostname: str | None = None
    user: str | None = None

    @property
    def description(self) -> str:
        """Return a short description, for example `Example CPU, 8 CPUs, 2 × Example GPU`."""
        return ", ".join([self.cpu_model, format_count(self.cpus, "CPU"), *self._gpu_names()])

    @property
    def description_with_memory(self) -> str:
        """Return for example `Example CPU, 8 CPUs, 16 GiB, no NVIDIA GPU`. The memory is what may be used."""
        memory = format_bytes(self.memory_limit_bytes or self.memory_bytes)
        return ", ".join([self.cpu_model, format_count(self.cpus, "CPU"), memory, *self._gpu_names()])

    def _gpu_names(self) -> list[str]:
        counts = Counter(gpu.name for gpu in self.gpus)
        return [f"{count} × {name}" for name, count in counts.items()] or ["no NVIDIA GPU"]
