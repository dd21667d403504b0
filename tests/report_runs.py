"""Build whole runs for tests of the report. All figures are made up, and the machine's name says so."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from kit.model.machine import Machine
from kit.model.plan import Plan, PlannedLaunch
from kit.model.record import HostSamples, Record
from kit.model.run import Run
from kit.planning import catalog
from scenarios.contract.ceilings import Ceiling
from scenarios.contract.cell import CEILINGS, Cell, Device
from scenarios.contract.reasons import Code, Status
from scenarios.contract.request import Request
from scenarios.contract.result import Result, StepTime, StepTiming, Telemetry, Window
from tests import examples

FRAMEWORKS = {"onnxruntime": 0.8, "tensorflow": 0.97, "torch": 1.0}  # relative speed on the CPU
CPU_IMAGES_PER_S = {
    "catdog-cnn": 400.0,
    "cifar-cnn": 250.0,
    "cifar-mlp": 500.0,
    "fashion-mlp": 6000.0,
    "mnist-cnn": 2300.0,
    "mnist-cnn-dropout": 310.0,
}
GPU_GAIN = {"catdog-cnn": 3.2, "cifar-cnn": 35.0, "cifar-mlp": 22.0, "fashion-mlp": 0.7, "mnist-cnn": 1.4}
OTHER_GAIN = 12.0
STARVED = "catdog-cnn"  # its photos are decoded on the CPU, so the GPU waits for them
STARVED_USE = 0.14
WINDOWS = 30
LAUNCH_S = 12.0


def cuda() -> Run:
    """Return a run of all networks on a CPU and a GPU, two launches each."""
    return _measured(_cells(("cpu", "cuda")), 2)


def three_launches() -> Run:
    """Return a run of 18 cells on the CPU, three launches each."""
    return _measured(_cells(("cpu",)), 3)


def large(launches: int) -> Run:
    """Return a run of 36 cells, half of them on a GPU, with this many launches each."""
    return _measured(_cells(("cpu", "cuda")), launches)


def sweeps(launches: int) -> Run:
    """Return a run with batch sizes on both devices, loader workers, and hidden layers, which flatten differently."""
    cells = [
        replace(examples.cell(scenario, framework, device), **{field: value})
        for scenario, field, values in (
            ("mnist-cnn-dropout", "batch", (32, 64, 128, 256, 512, 1024, 2048)),
            ("catdog-cnn", "workers", (1, 2, 4)),
            ("fashion-mlp", "hidden_layers", (1, 3, None)),
        )
        for framework in FRAMEWORKS
        for device in (("cpu", "cuda") if field == "batch" else ("cpu",))
        for value in values
    ]
    return _measured(cells, launches)


def failed() -> Run:
    """Return a run in which nothing was measured, for several reasons."""
    causes = [
        (
            Status.FAILED,
            None,
            "The worker ended with exit code 1: ImportError: libexample.so.6 is missing.",
            "Install it.",
        ),
        (Status.OUT_OF_MEMORY, None, "The launch ran out of memory.", "Allow more memory with --memory."),
        (Status.TIMEOUT, None, "The launch did not end within 90 s.", "Allow more time with --timeout."),
    ]
    records = []
    for index, of in enumerate(_cells(("cpu",))):
        status, code, message, remedy = causes[index % len(causes)]
        record = examples.failed(_request(of, 1), status, code, message, remedy)
        records.append(record.model_copy(update={"log_tail": "Traceback (most recent call last):\n" + "x" * 500}))
    skipped: Code = next(code for code in Code if code.status is Status.SKIPPED)
    records += [
        examples.failed(_request(of, 1), Status.SKIPPED, skipped, "No NVIDIA GPU is visible.", "")
        for of in _cells(("cuda",))
    ]
    return Run(_plan(records), _machine(gpu=False), records)


def _cells(devices: Sequence[Device]) -> list[Cell]:
    return [
        examples.cell(scenario, framework, device)
        for scenario in CPU_IMAGES_PER_S
        for framework in FRAMEWORKS
        for device in devices
    ]


def _measured(cells: Sequence[Cell], launches: int) -> Run:
    gpu = any(of.device == "cuda" for of in cells)
    records = [_record(of, launch, _machine(gpu)) for of in cells for launch in range(1, launches + 1)]
    records.sort(key=lambda record: (record.key, record.launch))
    probes = [_probe(framework, device) for framework in FRAMEWORKS for device in sorted({of.device for of in cells})]
    return Run(_plan(records), _machine(gpu), records, probes)


def _plan(records: Iterable[Record]) -> Plan:
    return examples.plan([PlannedLaunch(cell=r.cell, launch=r.launch, named=False) for r in records])


def _machine(gpu: bool) -> Machine:
    gpus = [examples.gpu(name="Made-up GPU")] * gpu
    drivers = {"driver": "580.1", "cuda_driver": "13.0"} if gpu else {}
    return examples.machine(cpu_model="Made-up CPU of a test", gpus=gpus, physical_cores=2, **drivers)


def _request(of: Cell, launch: int) -> Request:
    return examples.request(of, launch=launch, data="synthetic")


def _speed(of: Cell, launch: int) -> float:
    """Return images/s. On the GPU the order of the frameworks is another one, and launches differ less."""
    factor = FRAMEWORKS[of.framework]
    speed = CPU_IMAGES_PER_S[of.scenario] * (factor if of.device == "cpu" else 1.8 - factor)
    speed *= _swept(of)
    return speed * _gain(of) * (1 + (0.01 if of.device == "cpu" else 0.003) * _noise(launch, of))


def _swept(of: Cell) -> float:
    """Return the factor of the values that `sweeps` varies. A batch has a fixed cost, which is higher on the GPU."""
    fixed, usual = 12 if of.device == "cpu" else 400, catalog.scenarios()[of.scenario][of.variant].batch
    batch = of.batch / (of.batch + fixed) * (usual + fixed) / usual
    return batch * min(of.workers or 2, 2) / 2 * 5 / (of.hidden_layers or 5)


def _gain(of: Cell) -> float:
    return GPU_GAIN.get(of.scenario, OTHER_GAIN) if of.device == "cuda" else 1.0


def _starved(of: Cell) -> bool:
    return of.device == "cuda" and of.scenario == STARVED


def _noise(index: int, of: Cell) -> float:
    """Return a fixed number between -1 and 1 that looks random."""
    return math.sin(12.9 * index**2 + sum(map(ord, of.key)))


def _windows(of: Cell, speed: float, launch: int) -> list[Window]:
    """Return windows with a slow warm-up. In one cell of six the speed falls in the middle of the first launch."""
    found, at = [], 1.0
    jumps = launch == 1 and of.framework == "onnxruntime" and of.scenario.startswith("mnist")
    for index in range(WINDOWS):
        slow = (2.5 if index == 0 else 1.2 if index == 1 else 1.0) * (1.3 if jumps and index > WINDOWS // 2 else 1.0)
        seconds = LAUNCH_S / WINDOWS * slow * (1 + 0.02 * _noise(launch * WINDOWS + index, of))
        found.append(Window(start_at=at, seconds=seconds, steps=4, images=round(speed * seconds / slow)))
        at += seconds
    return found


def _result(request: Request, speed: float) -> Result:
    of = request.cell
    result = examples.result(request, speed)
    assert result.training
    assert result.inference
    windows = _windows(of, speed, request.launch)
    step_s = of.batch / speed
    share = max(0.1, 0.75 - 0.28 * math.log10(_gain(of))) if of.device == "cuda" else 0.1  # the same for each batch
    batches = [of.batch // 4, of.batch // 2, of.batch]
    computing = STARVED_USE if _starved(of) else 0.92  # share of a step
    resident = [
        StepTime(
            batch, [step_s * computing * (share + (1 - share) * batch / of.batch * (1 + 0.01 * i)) for i in range(3)]
        )
        for batch in batches
    ]
    latency_ms = 1000 / speed * 0.4 + (0.15 if of.device == "cuda" else 0.05)
    calls = [latency_ms * (1 + 0.1 * abs(_noise(index, of))) for index in range(200)]
    end_at = windows[-1].start_at + windows[-1].seconds
    on_gpu = of.device == "cuda"
    cores = 1.0 if on_gpu else 1.9
    return replace(
        result,
        training=replace(result.training, windows=windows, steady_from=2, steps=4 * WINDOWS),
        inference=replace(
            result.inference,
            latency_ms=calls,
            p50_ms=latency_ms * 1.05,
            p90_ms=latency_ms * 1.1,
            windows=windows[:10],
        ),
        telemetry=Telemetry(
            *(1.0, end_at, 1 << 30, cores * (end_at - 1), cores, 2, 0.0, (2 << 30) if on_gpu else None)
        ),
        step_timing=StepTiming(resident),
    )


def _samples(of: Cell) -> HostSamples:
    """Return samples of the host, one per second."""
    at = [float(second) for second in range(1, round(LAUNCH_S) + 3)]
    busy = 1.1 if of.device == "cuda" else 2.0
    series: dict[str, list[float | None]] = {
        "cpu_busy": [busy for _ in at],
        "cpu_steal": [0.0 for _ in at],
        "cpu_mhz": [2900.0 + 50 * _noise(index, of) for index, _ in enumerate(at)],
    }
    if of.device == "cuda":
        use = (
            STARVED_USE
            if _starved(of)
            else min(0.95, 0.1 + math.log10(CPU_IMAGES_PER_S["fashion-mlp"] / CPU_IMAGES_PER_S[of.scenario]) / 3)
        )
        series |= {
            "gpu0_use": [use for _ in at],
            "gpu0_power_w": [120 + 500 * use + 10 * _noise(index, of) for index, _ in enumerate(at)],
            "gpu0_temperature_c": [40 + 20 * use + index / 10 for index, _ in enumerate(at)],
            "gpu0_sm_mhz": [1900.0 for _ in at],
        }
    return HostSamples(at=at, series=series, core_busy=[1.0, 0.9], cost_s=0.002)


def _record(of: Cell, launch: int, machine: Machine) -> Record:
    request = _request(of, launch)
    started_at = f"2026-01-01T{launch % 24:02}:00:00+00:00"
    result = _result(request, _speed(of, launch))
    return examples.record(
        request, result=result, machine=machine, host_samples=_samples(of), seconds=LAUNCH_S + 8, started_at=started_at
    )


def _probe(framework: str, device: Device) -> Record:
    request = examples.request(scenario=CEILINGS, purpose="probe", batch=1, framework=framework, device=device)
    flops, memory = (1.2e11, 2e10) if device == "cpu" else (5e13, 3e12)
    ceilings = [
        Ceiling("matmul", "fp32", "FLOP/s", flops, [0.98 * flops, flops], "4096 x 4096"),
        Ceiling("convolution", "fp32", "FLOP/s", 0.8 * flops, [0.8 * flops], "3 x 3, 64 channels, NHWC"),
        Ceiling("memory", "", "B/s", memory, [memory], "256 MiB"),
    ]
    return examples.record(request, result=replace(examples.result(request), ceilings=ceilings))
