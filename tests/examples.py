"""Complete example documents for tests: a machine, a plan, requests, results and records of any status."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kit.model.cell import Cell
from kit.model.machine import Gpu, Machine
from kit.model.plan import Plan, PlannedLaunch
from kit.model.record import Record
from kit.planning import catalog
from scenarios import spec
from scenarios.contract.reasons import Code, Reason, Status
from scenarios.contract.request import Budget, Request
from scenarios.contract.result import (
    Ceiling,
    Check,
    Epoch,
    Evidence,
    Inference,
    Placement,
    Proof,
    Result,
    Search,
    StepTime,
    StepTiming,
    Telemetry,
    Timings,
    Training,
    Tried,
    Tuning,
    Window,
)

SETTINGS = {"layout": "nhwc", "allocator": "tcmalloc"}  # what a search finds


def machine(**changes: Any) -> Machine:
    """A small server without GPU."""
    fields: dict[str, Any] = {
        "id": "0123456789abcdef",
        "cpu_model": "Example CPU",
        "architecture": "x86_64",
        "sockets": 1,
        "physical_cores": 1,
        "logical_cpus": 2,
        "cpus": 2,
        "quota_cpus": None,
        "caches": {"L2": 1 << 20},
        "last_cache_bytes": 1 << 20,
        "cpu_flags": ["avx2"],
        "memory_bytes": 8 << 30,
        "memory_limit_bytes": None,
        "gpus": [],
        "driver": None,
        "cuda_driver": None,
        "os": "Example Linux",
        "kernel": "6.1",
        "container_runtime": {"engine": "fake"},
        "virtualization": None,
        "python": "3.11",
        "kit": "0.1.0",
    }
    return Machine(**fields | changes)


def gpu(**changes: Any) -> Gpu:
    """A GPU at its default power limit."""
    fields: dict[str, Any] = {
        "index": 0,
        "name": "NVIDIA H200",
        "memory_bytes": 150 << 30,
        "compute_capability": (9, 0),
        "power_limit_w": 700.0,
        "default_power_limit_w": 700.0,
    }
    return Gpu(**fields | changes)


def cell(scenario: str = "mnist-cnn", framework: str = "torch", device: str = "cpu", variant: str = "") -> Cell:
    """A stock fp32 cell of the catalogue at its own batch size."""
    batch = catalog.scenarios()[scenario][variant].batch
    return Cell(scenario, variant, framework, device, 1, "stock", "fp32", batch)  # type: ignore[arg-type]


def request(of: Cell | None = None, **changes: Any) -> Request:
    """A first launch of that cell (mnist-cnn with torch on the CPU) on synthetic data in the quick profile."""
    of = of or cell()
    base = Request(
        key=of.key,
        launch=1,
        spec=spec.digest(catalog.scenarios()[of.scenario][of.variant]),
        seed=0,
        threads=2,
        data="synthetic",
        budget=Budget(seconds=6, test_images=1000),
        **vars(of),
    )
    return replace(base, **changes)


def result(asked: Request, images_per_s: float = 1000.0, epochs: int = 0) -> Result:
    """The `ok` result of a worker that did as it was asked. epochs: whole ones, with a learning curve."""
    if asked.purpose == "probe":
        ceilings = [
            Ceiling("matmul", asked.precision, "FLOP/s", 1e11, [0.9e11, 1e11], "1024 x 1024"),
            Ceiling("memory", "", "B/s", 2e10, [2e10], "256 MiB"),
        ]
        return Result(key=asked.key, launch=asked.launch, status=Status.OK, ceilings=ceilings)
    if asked.purpose == "tune":
        tried = [Tried({}, [], [1000.0]), Tried(SETTINGS, [1.5, 1.5], [1500.0, 1500.0])]
        tuning = Tuning(SETTINGS, [Search("training", SETTINGS, tried, 50.0)])
        return Result(key=asked.key, launch=asked.launch, status=Status.OK, tuning=tuning)
    window = Window(start_at=1.0, seconds=64 / images_per_s, steps=1, images=64)
    published = spec.DATASETS[catalog.scenarios()[asked.scenario][asked.variant].dataset].train
    epoch_s = published / images_per_s
    accuracies = [min(0.8 + i / 100, 1.0) for i in range(epochs)]
    curve = [Epoch(i, epoch_s, published, 0.5, a, 0.4, a - 0.01) for i, a in enumerate(accuracies, start=1)]
    return Result(
        key=asked.key,
        launch=asked.launch,
        status=Status.OK,
        timings=Timings(1, 1, 1, 1, 1, 1, 1, 1, 8),
        training=Training([window, window], 1, images_per_s, epoch_s, not epochs, published, 2, 0.5, curve),
        inference=Inference([1.0, 2.0], 1.5, 2.0, 3.0, 256, [window], 5 * images_per_s, 1000, 0.5, 0.9),
        proof=Proof(True, [Check("logits", 1e-6, 5e-4, True)], "torch", asked.seed, 0.1, False),
        evidence=Evidence(
            placement=Placement(
                device=asked.device,
                device_name="Example",
                provider="example",
                layout="NHWC",
                tf32=None if asked.device == "cpu" else False,
                threads=asked.threads,
                training="example",
                loader="example",
                denormals="kept",
                nodes={asked.device: 4},
            ),
            versions={"python": "3.11", asked.framework: "1.0"},
            data_kind=asked.data,
            data_digest="da7a",
            train_images=published,
            test_images=1000,
            initial_weights_digest="1111",
            final_weights_digest="2222",
            environment=dict(asked.environment),
        ),
        telemetry=Telemetry(1.0, 11.0, 1 << 30, 19.0, 1.9, asked.threads, 0.0, None),
        step_timing=StepTiming(
            [StepTime(batch, [batch / images_per_s * 0.9]) for batch in (asked.batch // 2, asked.batch)]
        ),
    )


def record(asked: Request | None = None, images_per_s: float = 1000.0, epochs: int = 0, **changes: Any) -> Record:
    """The record of an `ok` launch."""
    asked = asked or request()
    fields: dict[str, Any] = {
        "key": asked.key,
        "launch": asked.launch,
        "status": Status.OK,
        "reason": None,
        "request": asked,
        "result": result(asked, images_per_s, epochs),
        "machine": machine(),
        "image": None,
        "engine": "fake",
        "profile": "quick",
        "data_note": "",
        "started_at": "2026-01-01T00:00:00+00:00",
        "seconds": 1.0,
        "warnings": [],
        "log_tail": "",
    }
    return Record(**fields | changes)


def failed(
    asked: Request | None = None,
    status: Status = Status.FAILED,
    code: Code = Code.WORKER_ERROR,
    message: str = "It failed.",
    remedy: str = "Look.",
) -> Record:
    """The record of a launch that ended otherwise and left no result."""
    return record(asked, status=status, reason=Reason(code, message, remedy), result=None)


def planned(launch: int = 1, **changes: Any) -> PlannedLaunch:
    """A planned launch of the example cell."""
    of = replace(cell(), **changes)
    return PlannedLaunch(key=of.key, launch=launch, named=False, **vars(of))


def plan(launches: Sequence[PlannedLaunch]) -> Plan:
    """A plan of exactly these launches."""
    return Plan(
        run="r1",
        created_at="2026-01-01T00:00:00+00:00",
        profile="quick",
        engine="fake",
        environment="",
        seed=0,
        data="auto",
        epochs=None,
        timeout_s=600,
        memory_bytes=None,
        threads=None,
        gpus=None,
        identify=False,
        launches=list(launches),
    )
