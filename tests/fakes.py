"""An engine without containers, and example documents, for unit tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kit.model import Cell, Completion, Device, Environment, Framework, LaunchFolder, Limits
from kit.progress import Progress
from kit.records import Machine, PlannedLaunch, Record
from scenarios import contract
from scenarios.contract import (
    REQUEST_FILE,
    RESULT_FILE,
    Check,
    Evidence,
    Inference,
    Placement,
    Proof,
    Request,
    Result,
    Status,
    Telemetry,
    Timings,
    Training,
    Window,
    from_json,
)

Worker = Callable[[Request, LaunchFolder], Completion]


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


def request(**changes: Any) -> Request:
    """A launch of mnist-cnn with torch on the CPU."""
    cell = Cell("mnist-cnn", "", "torch", "cpu", 1, "stock", "fp32", 64)
    base = Request(
        key=cell.key,
        launch=1,
        scenario=cell.scenario,
        variant=cell.variant,
        spec="5bec",
        framework=cell.framework,
        device="cpu",
        devices=1,
        lane="stock",
        precision="fp32",
        batch=cell.batch,
        seed=0,
        threads=2,
        data="synthetic",
        budget=contract.Budget(seconds=6, test_images=1000),
    )
    return replace(base, **changes)


def result(asked: Request, images_per_s: float = 1000.0) -> Result:
    """The `ok` result of a worker that did as it was asked."""
    window = Window(start_at=1.0, seconds=64 / images_per_s, steps=1, images=64)
    return Result(
        key=asked.key,
        launch=asked.launch,
        status=Status.OK,
        timings=Timings(1, 1, 1, 1, 1, 1, 1, 1, 8),
        training=Training([window, window], 1, images_per_s, 60_000 / images_per_s, True, 60_000, 2, 0.5, []),
        inference=Inference([1.0, 2.0], 1.5, 2.0, 2.0, 256, [window], 5000.0, 1000, 0.5, 0.9),
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
            ),
            versions={"python": "3.11", asked.framework: "1.0"},
            data_kind=asked.data,
            data_digest="da7a",
            train_images=60_000,
            test_images=1000,
            initial_weights_digest="1111",
            final_weights_digest="2222",
            environment=dict(asked.environment),
        ),
        telemetry=Telemetry(1 << 30, 1.0, 1.9, 0.0, None),
    )


def record(asked: Request | None = None, **changes: Any) -> Record:
    """The record of an `ok` launch."""
    asked = asked or request()
    fields: dict[str, Any] = {
        "key": asked.key,
        "launch": asked.launch,
        "status": Status.OK,
        "reason": None,
        "request": asked,
        "result": result(asked),
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


def planned(launch: int = 1, **changes: Any) -> PlannedLaunch:
    """A planned launch of the example cell."""
    cell = replace(Cell("mnist-cnn", "", "torch", "cpu", 1, "stock", "fp32", 64), **changes)
    return PlannedLaunch(key=cell.key, launch=launch, named=False, **vars(cell))


def works(asked: Request, folder: LaunchFolder) -> Completion:
    """A worker that does as it was asked."""
    folder.log.write_text("working\n")
    contract.write(folder.scratch / RESULT_FILE, result(asked))
    return Completion(exit_code=0, seconds=1.0)


@dataclass
class FakeEngine:
    """Meets `kit.engines.base.Engine`. worker: what a launch does. on_call: told of each call, and may raise.

    refused: (framework, device) to the reason. running: run ids of containers that exist; a launch that is killed
    leaves one there.
    """

    worker: Worker = works
    on_call: Callable[[str], None] = lambda name: None
    refused: Mapping[tuple[str, Device], str] = field(default_factory=dict)
    name: str = "fake"
    calls: list[str] = field(default_factory=list)
    running: list[str] = field(default_factory=list)
    launched: list[tuple[str, int]] = field(default_factory=list)
    limits: list[Limits] = field(default_factory=list)

    def _called(self, name: str) -> None:
        self.calls.append(name)
        self.on_call(name)

    def describe(self) -> dict[str, str]:
        self._called("describe")
        return {"engine": "fake"}

    def refusal(self, framework: Framework, device: Device) -> str | None:
        return self.refused.get((framework.name, device))

    def ready(self, framework: Framework, device: Device) -> bool:
        return False

    def prepare(self, framework: Framework, device: Device, progress: Progress) -> Environment:
        self._called(f"prepare {framework.name} {device}")
        return Environment(framework.name, device, "image", f"kit-{framework.name}:{device}", "sha256:0")

    def launch(
        self,
        environment: Environment,
        folder: LaunchFolder,
        limits: Limits,
        variables: Mapping[str, str],
        labels: Mapping[str, str],
        stopped: Callable[[], bool],
    ) -> Completion:
        self.running.append(labels["run"])
        self.limits.append(limits)
        self._called("launch")
        asked = from_json(Request, (folder.scratch / REQUEST_FILE).read_bytes())
        completion = self.worker(asked, folder)
        self._called("launched")
        self.launched.append((asked.key, asked.launch))
        self.running.remove(labels["run"])
        return completion

    def sweep(self, alive: Callable[[str], bool]) -> list[str]:
        self._called("sweep")
        dead = [run for run in self.running if not alive(run)]
        self.running = [run for run in self.running if run not in dead]
        return dead
