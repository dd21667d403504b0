"""Build complete example documents: machines, plans, requests, results, and records of every status."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from kit.analysis.pairing import Measure
from kit.model.machine import Gpu, Machine
from kit.model.plan import Plan, PlannedLaunch
from kit.model.record import Record
from kit.model.run import Run
from kit.planning import catalog
from scenarios import spec
from scenarios.catalog import scenario_of
from scenarios.contract.ceilings import Ceiling
from scenarios.contract.cell import CEILINGS, Cell
from scenarios.contract.evidence import BuildInfo, Evidence, Placement
from scenarios.contract.reasons import Code, Reason, Status
from scenarios.contract.request import Budget, Request
from scenarios.contract.result import (
    Check,
    Epoch,
    Inference,
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

SETTINGS = {"layout": "nhwc", "allocator": "tcmalloc"}  # the result of a search


def machine(**changes: Any) -> Machine:
    """Return a small server without a GPU."""
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
    """Return a GPU at its default power limit."""
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
    """Return a stock fp32 cell with the batch size of its scenario."""
    batch = catalog.scenarios()[scenario][variant].batch
    return Cell(scenario, variant, framework, device, 1, "stock", "fp32", batch)  # type: ignore[arg-type]


def probe_cell() -> Cell:
    """Return the cell of a ceilings probe with torch on the CPU."""
    return Cell(CEILINGS, "", "torch", "cpu", 1, "stock", "fp32", 1)


CELL_FIELDS = [field.name for field in fields(Cell)]


def request(of: Cell | None = None, **changes: Any) -> Request:
    """Return the request for the first launch of a cell on synthetic data in the quick profile.

    of: by default mnist-cnn with torch on the CPU. changes: fields of the request or of its cell.
    """
    of = of or cell()
    of_cell = {name: changes.pop(name) for name in CELL_FIELDS if name in changes}
    of = replace(of, **of_cell)
    scenario = scenario_of(of, catalog.scenarios())  # none has the cell of a probe
    digest = spec.digest(scenario) if scenario else ""
    return change(Request(of, 1, digest, 0, 2, "synthetic", Budget(seconds=6, test_images=1000)), **changes)


def change(launch_request: Request, **changes: Any) -> Request:
    """Return a copy of the request with changed fields. changes: fields of the request or of its cell."""
    of_cell = {name: changes.pop(name) for name in CELL_FIELDS if name in changes}
    return replace(launch_request, cell=replace(launch_request.cell, **of_cell), **changes)


def result(launch_request: Request, images_per_s: float = 1000.0, epochs: int = 0) -> Result:
    """Return the `ok` result for a request. epochs: number of whole epochs in the learning curve."""
    cell = launch_request.cell
    if launch_request.purpose == "probe":
        ceilings = [
            Ceiling("matmul", cell.precision, "FLOP/s", 1e11, [0.9e11, 1e11], "1024 x 1024"),
            Ceiling("memory", "", "B/s", 2e10, [2e10], "256 MiB"),
        ]
        return Result(cell=cell, launch=launch_request.launch, status=Status.OK, ceilings=ceilings)
    if launch_request.purpose == "tune":
        tried = [Tried({}, [], [1000.0]), Tried(SETTINGS, [1.5, 1.5], [1500.0, 1500.0])]
        tuning = Tuning(SETTINGS, [Search("training", SETTINGS, tried, 50.0)])
        return Result(cell=cell, launch=launch_request.launch, status=Status.OK, tuning=tuning)
    window = Window(start_at=1.0, seconds=64 / images_per_s, steps=1, images=64)
    published = spec.DATASETS[catalog.scenarios()[cell.scenario][cell.variant].dataset].train
    epoch_s = published / images_per_s
    accuracies = [min(0.8 + i / 100, 1.0) for i in range(epochs)]
    curve = [Epoch(i, epoch_s, published, 0.5, a, 0.4, a - 0.01) for i, a in enumerate(accuracies, start=1)]
    return Result(
        cell=cell,
        launch=launch_request.launch,
        status=Status.OK,
        timings=Timings(1, 1, 1, 1, 1, 1, 1, 1, 8),
        training=Training([window] * 6, 1, images_per_s, epoch_s, not epochs, 6, 0.5, curve),
        inference=Inference([1.0, 2.0], 1.5, 2.0, None, 256, [window], 5 * images_per_s, 1000, 0.5, 0.9),
        proof=Proof(True, [Check("logits", 1e-6, 5e-4, True)], "torch", 0.1, False),
        evidence=Evidence(
            placement=Placement(
                device=cell.device,
                device_name="Example",
                provider="example",
                layout="NHWC",
                tf32=None if cell.device == "cpu" else False,
                threads=launch_request.threads,
                training="example",
                loader="example",
                denormals="kept",
                nodes={cell.device: 4},
                workers=cell.workers,
                serving="example",
            ),
            versions={"python": "3.11", cell.framework: "1.0"},
            data_kind=launch_request.data,
            data_digest="da7a",
            test_images=1000,
            initial_weights_digest="1111",
            final_weights_digest="2222",
            environment=dict(launch_request.environment),
            build=BuildInfo([cell.device], {"is_example": "True"}),
        ),
        telemetry=Telemetry(1.0, 11.0, 1 << 30, 19.0, 1.9, launch_request.threads, 0.0, None),
        step_timing=StepTiming(
            [StepTime(batch, [batch / images_per_s * 0.9]) for batch in (cell.batch // 2, cell.batch)]
        ),
    )


def record(
    launch_request: Request | None = None, images_per_s: float = 1000.0, epochs: int = 0, **changes: Any
) -> Record:
    """Return the record of an `ok` launch."""
    launch_request = launch_request or request()
    fields: dict[str, Any] = {
        "cell": launch_request.cell,
        "launch": launch_request.launch,
        "purpose": launch_request.purpose,
        "status": Status.OK,
        "reason": None,
        "request": launch_request,
        "result": result(launch_request, images_per_s, epochs),
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


def with_speed(of: Record, measure: Measure, images_per_s: float) -> Record:
    """Return a copy of the record of an `ok` launch with another speed, even a bad one. Latency: in calls/s."""
    assert of.result
    if measure is Measure.LATENCY:
        assert of.result.inference
        p50_ms = 1000 / images_per_s if images_per_s else math.inf
        inference = replace(of.result.inference, p50_ms=p50_ms)
        return of.model_copy(update={"result": replace(of.result, inference=inference)})
    part = replace(getattr(of.result, measure), images_per_s=images_per_s)
    return of.model_copy(update={"result": replace(of.result, **{measure: part})})


def failed(
    launch_request: Request | None = None,
    status: Status = Status.FAILED,
    code: Code | None = None,
    message: str = "It failed.",
    remedy: str = "Look.",
) -> Record:
    """Return the record of a launch that is not `ok` and left no result. code: by default the first of the status."""
    code = code or next(code for code in Code if code.status is status)
    return record(launch_request, status=status, reason=Reason(code, message, remedy), result=None)


def planned(launch: int = 1, **changes: Any) -> PlannedLaunch:
    """Return a planned launch of the example cell."""
    of = replace(cell(), **changes)
    return PlannedLaunch(cell=of, launch=launch, named=False)


def plan(launches: Sequence[PlannedLaunch]) -> Plan:
    """Return a plan with exactly these launches."""
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
        budget_s=None,
        tune_s=60.0,
        pinned={},
    )


def run(records: Sequence[Record]) -> Run:
    """Return a run that has exactly these records and an empty plan."""
    return Run(plan([]), machine(), records)
