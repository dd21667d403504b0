"""Complete example documents for tests: a machine, a plan, records of any status, from the contract's own types."""

from __future__ import annotations

from dataclasses import replace

from kit import catalog
from kit.model import Cell
from kit.records import Image, Machine, Plan, PlannedLaunch, Record
from scenarios import spec
from scenarios.contract import (
    Budget,
    Check,
    Code,
    Epoch,
    Evidence,
    Inference,
    Placement,
    Proof,
    Reason,
    Request,
    Result,
    Status,
    Telemetry,
    Timings,
    Training,
    Window,
)

MACHINE = Machine(
    id="0123456789abcdef",
    cpu_model="Example CPU 3000",
    architecture="x86_64",
    sockets=1,
    physical_cores=2,
    logical_cpus=4,
    cpus=4,
    quota_cpus=None,
    caches={"L1d": 32768, "L2": 1 << 20, "L3": 32 << 20},
    cpu_flags=["avx2", "avx512f"],
    memory_bytes=16 << 30,
    memory_limit_bytes=None,
    gpus=[],
    driver=None,
    cuda_driver=None,
    os="Debian GNU/Linux 12",
    kernel="6.1",
    container_runtime={"name": "docker", "version": "28.0"},
    virtualization=None,
    python="3.11.2",
    kit="0.1.0",
)


def cell(scenario: str = "mnist-cnn", framework: str = "torch", device: str = "cpu", variant: str = "") -> Cell:
    """A stock fp32 cell of the catalogue at its own batch size."""
    batch = catalog.scenarios()[scenario][variant].batch
    return Cell(scenario, variant, framework, device, 1, "stock", "fp32", batch)  # type: ignore[arg-type]


def request(of: Cell, launch: int = 1, data: str = "real", budget: Budget | None = None) -> Request:
    """The request of a launch of that cell, quick profile."""
    return Request(
        key=of.key,
        launch=launch,
        scenario=of.scenario,
        variant=of.variant,
        spec=spec.digest(catalog.scenarios()[of.scenario][of.variant]),
        framework=of.framework,
        device=of.device,
        devices=of.devices,
        lane="stock",
        precision="fp32",
        batch=of.batch,
        seed=0,
        threads=4,
        data=data,  # type: ignore[arg-type]
        budget=budget or Budget(seconds=6.0, test_images=1000),
    )


def result(of: Request, images_per_s: float = 1000.0, epochs: int = 0) -> Result:
    """What a worker writes when all went well: ten windows of 0.25 s, or whole epochs with a learning curve."""
    images = round(images_per_s * 0.25)
    windows = [Window(100 + i / 4, 0.25, 4, images) for i in range(10)]
    published = spec.DATASETS[catalog.scenarios()[of.scenario][of.variant].dataset]
    curve = [
        Epoch(i + 1, published.train / images_per_s, published.train, 0.5, 0.8 + i / 100, 0.4, 0.79 + i / 100)
        for i in range(epochs)
    ]
    return Result(
        key=of.key,
        launch=of.launch,
        status=Status.OK,
        timings=Timings(2.0, 0.5, 1.0, 0.2, 0.3, 0.8, 7.0, 2.0, 13.0),
        training=Training(
            windows=windows,
            steady_from=2,
            images_per_s=images_per_s,
            epoch_s=published.train / images_per_s,
            projected=not epochs,
            epoch_images=published.train,
            steps=40,
            final_loss=0.4,
            epochs=curve,
        ),
        inference=Inference(
            latency_ms=[0.5] * 20,
            p50_ms=0.5,
            p90_ms=0.6,
            p99_ms=0.9,
            batch=256,
            windows=windows,
            images_per_s=5 * images_per_s,
            test_images=1000,
            test_loss=0.4,
            test_accuracy=0.8,
        ),
        proof=Proof(True, [Check("logits", 1e-6, 5e-4, True)], "torch", 0, 0.7, False),
        evidence=Evidence(
            placement=Placement(
                of.device, "Example CPU 3000", "ATen", "NCHW", None, of.threads, "eager loop", "DataLoader"
            ),
            versions={"python": "3.11.2", of.framework: "1.2.3"},
            data_kind=of.data,
            data_digest="d" * 64,
            train_images=published.train,
            test_images=1000,
            initial_weights_digest="a" * 64,
            final_weights_digest="b" * 64,
            environment=dict(of.environment),
        ),
        telemetry=Telemetry(500 << 20, 12.0, 1.9, 0.0, None),
    )


def record(of: Request, status: Status = Status.OK, why: Reason | None = None, **numbers: float) -> Record:
    """The record of a launch; not ok: without a result, with a reason."""
    reason = why or Reason(Code.WORKER_ERROR, "It broke.", "Mend it.")
    return Record(
        key=of.key,
        launch=of.launch,
        status=status,
        reason=None if status is Status.OK else reason,
        request=of,
        result=result(of, **numbers) if status is Status.OK else None,  # type: ignore[arg-type]
        machine=MACHINE,
        image=Image(
            kind="image", reference=f"kit-{of.framework}:cpu-abc", digest="sha256:" + "c" * 64, size_bytes=1 << 30
        ),
        engine="docker",
        profile="quick",
        data_note="",
        started_at="2026-01-02T03:04:05Z",
        seconds=15.0,
        warnings=[],
        log_tail="",
    )


def plan(requests: list[Request]) -> Plan:
    """A plan of exactly these launches."""
    return Plan(
        run="20260102-030405-abcd",
        created_at="2026-01-02T03:04:05Z",
        profile="quick",
        engine="docker",
        environment="lock",
        seed=0,
        data="auto",
        epochs=None,
        timeout_s=600,
        memory_bytes=None,
        threads=None,
        gpus=None,
        identify=False,
        launches=[
            PlannedLaunch(
                key=r.key,
                launch=r.launch,
                scenario=r.scenario,
                variant=r.variant,
                framework=r.framework,
                device=r.device,
                devices=r.devices,
                lane=r.lane,
                precision=r.precision,
                batch=r.batch,
                named=False,
            )
            for r in requests
        ],
    )


def relaunch(of: Request, launch: int) -> Request:
    """The same request as a further launch."""
    return replace(of, launch=launch)
