"""Define the evidence of a launch: what really ran, with which packages, data and weights."""

from dataclasses import dataclass
from typing import Literal

from scenarios.contract.ranges import Count
from scenarios.contract.request import DataKind


@dataclass(frozen=True, slots=True)
class Placement:
    """What really ran, as the framework or a probe reports it.

    device: device of the outputs of a training step. device_name: name of the processor. provider: execution provider
    or backend. layout: memory layout of images. tf32: whether probes find that it rounds to TF32; None on the CPU.
    threads: number of intra-op threads that the framework reports. training, loader: what trains and what feeds it, as
    text for the report. denormals: what the framework's own threads do with numbers below the smallest normal float32.
    nodes: number of nodes of the training graph on each provider or device (eager frameworks: parameter tensors).
    workers: number of threads or processes that loaded photos; 0 if none of their own did; None if the images were in
    memory, and in older results. serving: what the timed calls for inference are, as text for the report; "" in older
    results.
    """

    device: str
    device_name: str
    provider: str
    layout: str
    tf32: bool | None
    threads: Count
    training: str
    loader: str
    denormals: Literal["kept", "flushed"]
    nodes: dict[str, Count]
    workers: Count | None = None
    serving: str = ""


@dataclass(frozen=True, slots=True)
class BuildInfo:
    """What a framework says about itself.

    devices: those that it sees in the worker's process, by its own names. flags: how it was built, by its own names.
    """

    devices: list[str]
    flags: dict[str, str]


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the worker used.

    versions: package to version, always with `python` and the framework. data_digest, initial_weights_digest,
    final_weights_digest: SHA-256 of the content. environment: the requested variables as the process sees them. build:
    None in older results.
    """

    placement: Placement
    versions: dict[str, str]
    data_kind: DataKind
    data_digest: str
    test_images: Count
    initial_weights_digest: str
    final_weights_digest: str
    environment: dict[str, str]
    build: BuildInfo | None = None
