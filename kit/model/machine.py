"""The files of a run as types: record, plan, machine. Versioned JSON; older versions are upgraded, newer refused.

A record holds the worker's own request and result unchanged, and beside them what the orchestrator knows: status,
reason, environment, machine, the log's tail. Records and machine name no host, user, home folder, serial or UUID
unless the run was made with `--identify`; the plan repeats what was typed, as the path given to `--env`.
"""

from __future__ import annotations

from kit.model.document import Document, Part


class Gpu(Part):
    """One NVIDIA GPU. uuid only with --identify. power limits in watts."""

    index: int
    name: str
    memory_bytes: int
    compute_capability: tuple[int, int]
    power_limit_w: float | None
    default_power_limit_w: float | None
    uuid: str | None = None


class Machine(Document):
    """The machine that measured. cpus: logical CPUs that may be used (affinity and quota); quota_cpus: the cgroup's
    quota in CPUs, None where there is none. caches: of CPU 0, level name to bytes; last_cache_bytes: of the last level,
    of all CPUs that may be used together, 0 where the system does not tell. id: a hash that is equal for equal hardware
    and software, so that runs of one machine can be told from runs of another; not a serial."""

    id: str
    cpu_model: str
    architecture: str
    sockets: int
    physical_cores: int
    logical_cpus: int
    cpus: int
    quota_cpus: float | None
    caches: dict[str, int]
    last_cache_bytes: int
    cpu_flags: list[str]
    memory_bytes: int
    memory_limit_bytes: int | None
    gpus: list[Gpu]
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
