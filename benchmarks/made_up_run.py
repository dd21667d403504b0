"""Write run folders of any length, with made-up records that are as large as real ones."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from statistics import median

import numpy as np

from kit.model.machine import Machine
from kit.model.plan import PlannedLaunch
from kit.model.record import HostSamples, Image, Record
from kit.storage.run_folder import MACHINE_FILE, PLAN_FILE, RECORDS, RunFolder, file_stem
from scenarios.contract.cell import Cell
from scenarios.contract.request import Budget, Request
from scenarios.contract.result import MIN_P99_SAMPLES, Check, Inference, Result, Window, within_epochs
from tests import examples

SCENARIOS = ("mnist-cnn", "mnist-cnn-dropout", "fashion-mlp", "cifar-cnn", "cifar-mlp", "catdog-cnn")
FRAMEWORKS = ("torch", "tensorflow", "onnxruntime")
# Calls that a launch times one by one. On the CPU, this is the mean over a quick run of all studies.
CALLS = {"cpu": 1300, "cuda": 2000}
SPEEDS = {"cpu": 2000.0, "cuda": 40_000.0}  # images/s
WARMUP = [2.0**power / 256 for power in range(6)]  # s, of the windows until they have their full length
WINDOW_S, INFERENCE_WINDOW_S, SAMPLE_S = 0.25, 0.05, 0.5
OTHER_S = 8.0  # of a launch, besides its training windows
EPOCH_WINDOWS = 9  # from one epoch boundary to the next
FULL_CHECKS, CHECKS = 14, 5
CPU_SERIES = {"cpu_busy": 2.0, "cpu_steal": 0.02, "cpu_mhz": 2500.0}
GPU_SERIES = {
    "gpu0_use": 0.9,
    "gpu0_memory_gib": 4.0,
    "gpu0_power_w": 400.0,
    "gpu0_temperature_c": 60.0,
    "gpu0_sm_mhz": 1900,
    **dict.fromkeys(("gpu0_other_processes", "gpu0_sw_power_cap", "gpu0_hw_slowdown", "gpu0_sw_thermal"), 0.0),
    **dict.fromkeys(("gpu0_hw_thermal", "gpu0_hw_power_brake"), 0.0),
}


def cells() -> list[Cell]:
    """Return 36 cells: 18 on the CPU and 18 on the GPU."""
    on_cpu = [examples.cell(name, framework) for name in SCENARIOS for framework in FRAMEWORKS]
    return on_cpu + [replace(cell, device="cuda") for cell in on_cpu]


def write_run(folder: Path, size: int, seconds: float) -> int:
    """Make a run of `size` records, or make a shorter run longer. Return the bytes of all records.

    seconds: of steady training per launch.
    """
    all_cells, machine = cells(), _machine()
    launches = [
        PlannedLaunch(cell=all_cells[index % len(all_cells)], launch=1 + index // len(all_cells), named=False)
        for index in range(size)
    ]
    plan = examples.plan(launches).model_copy(update={"run": folder.name})
    for name in (PLAN_FILE, MACHINE_FILE):
        (folder / name).unlink(missing_ok=True)
    records = RunFolder.create(folder, plan, machine).path / RECORDS["measure"]
    for launch in launches:
        file = records / f"{file_stem(launch.key, launch.launch)}.json"
        if not file.exists():
            file.write_text(_record(launch, machine, seconds).to_json())  # RunFolder.save would wait for the disk
    return sum(file.stat().st_size for file in records.iterdir())


def _machine() -> Machine:
    flags = [f"flag{number}" for number in range(100)]
    return examples.machine(gpus=[examples.gpu()], driver="580.1", cuda_driver="13.0", cpu_flags=flags)


def _record(launch: PlannedLaunch, machine: Machine, seconds: float) -> Record:
    noise = random.Random(f"{launch.key} {launch.launch}")
    request = replace(
        examples.request(launch.cell, launch=launch.launch),
        budget=Budget(seconds=seconds, test_images=1000),
        full_proof=launch.launch == 1,
    )
    result = _result(request, seconds, noise)
    assert result.telemetry
    samples = _samples(launch.cell, result.telemetry.to_at + OTHER_S / 4, noise)
    image = Image(kind="image", reference="kit/example:1", digest=f"sha256:{'0' * 64}", size_bytes=3 << 30)
    return examples.record(
        request,
        machine=machine,
        result=result,
        image=image,
        host_samples=samples,
        seconds=15.0,
        log_tail='A warning of a framework about "something" \\ in quotes\n',
    )


def _result(request: Request, seconds: float, noise: random.Random) -> Result:
    """Return a result with values that vary between launches and between windows."""
    cell, full = request.cell, request.full_proof
    speed = SPEEDS[cell.device] * (1 + FRAMEWORKS.index(cell.framework) / 10) * noise.gauss(1, 0.02)
    windows = [
        replace(window, boundaries=int(index % EPOCH_WINDOWS == 0 and index > 0))
        for index, window in enumerate(_windows(WARMUP + [WINDOW_S] * round(seconds / WINDOW_S), cell, speed, noise))
    ]
    steady = [w.images / w.seconds for w in within_epochs(windows[len(WARMUP) :])]
    base = examples.result(request, median(steady))
    assert base.training
    assert base.proof
    assert base.telemetry
    end = windows[-1].start_at + windows[-1].seconds
    checks = [
        Check(f"check {n}", noise.random() * 1e-6, 5e-4, passed=True) for n in range(FULL_CHECKS if full else CHECKS)
    ]
    return replace(
        base,
        training=replace(base.training, windows=windows, steady_from=len(WARMUP)),
        inference=_inference(cell, speed, noise),
        proof=replace(base.proof, checks=checks),
        telemetry=replace(
            base.telemetry, from_at=windows[0].start_at, to_at=end, cpu_s=1.9 * (end - windows[0].start_at)
        ),
        step_timing=base.step_timing if full else None,
    )


def _windows(durations: list[float], cell: Cell, speed: float, noise: random.Random) -> Iterator[Window]:
    steps = [max(1, round(duration * speed / cell.batch)) for duration in durations]
    seconds = [count * cell.batch / speed * noise.gauss(1, 0.01) for count in steps]
    starts = accumulate(seconds, initial=1000 + OTHER_S / 2)
    for start, duration, count in zip(starts, seconds, steps, strict=False):
        yield Window(round(start, 9), round(duration, 9), count, count * cell.batch)  # in ns, as a worker does


def _inference(cell: Cell, speed: float, noise: random.Random) -> Inference:
    calls = CALLS[cell.device]
    latency_ms = [round(noise.gauss(1, 0.05) * 1000 / calls, 6) for _ in range(calls)]
    p50, p90, p99 = (float(np.percentile(latency_ms, q)) for q in (50, 90, 99))
    assert len(latency_ms) >= MIN_P99_SAMPLES
    windows = [*_windows([INFERENCE_WINDOW_S] * round(1 / INFERENCE_WINDOW_S), cell, 5 * speed, noise)]
    rate = median(window.images / window.seconds for window in windows)
    return Inference(latency_ms, p50, p90, p99, 256, windows, rate, 1000, 0.5, 0.9)


def _samples(cell: Cell, until: float, noise: random.Random) -> HostSamples:
    at = [round(float(second), 4) for second in np.arange(1000, until, SAMPLE_S)]
    means = CPU_SERIES | (GPU_SERIES if cell.device == "cuda" else {})
    series: dict[str, list[float | None]] = {
        name: [round(mean * noise.gauss(1, 0.02), 4) for _ in at] for name, mean in means.items()
    }
    counters = {"cpu_energy_j": 100.0} | ({"gpu0_energy_j": 400.0} if cell.device == "cuda" else {})
    for name, watts in counters.items():
        series[name] = [round(watts * (second - at[0]), 4) for second in at]
    return HostSamples(at=at, series=series, core_busy=[0.9, 0.9], cost_s=0.01)
