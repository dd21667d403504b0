"""A fake NVML: functions of `pynvml` that return scripted values in NVML's units and structures. No GPU is needed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NoReturn

import pynvml
import pytest

Answer = Any  # a value in NVML's unit, or a Refusal


@dataclass(frozen=True)
class Refusal:
    """The driver returns this error code."""

    code: int


UNSUPPORTED = Refusal(pynvml.NVML_ERROR_NOT_SUPPORTED)


@dataclass(eq=False)
class FakeGpu:
    """The scripted answers of one GPU. The last answer of each script is repeated.

    Units: use in percent, memory in bytes, power in milliwatts, energy in millijoules, temperature in degrees Celsius,
    sm_clock in MHz. processes: process ids. reasons: event reason bits. mode: compute mode. instances: its MIG
    instances. queries: number of queries so far by name.
    """

    uuid: str = "GPU-0"
    use: Sequence[Answer] = (0,)
    memory: Sequence[Answer] = (0,)
    power: Sequence[Answer] = (0,)
    energy: Sequence[Answer] = (0,)
    temperature: Sequence[Answer] = (30,)
    sm_clock: Sequence[Answer] = (345,)
    processes: Sequence[Answer] = ((),)
    reasons: Sequence[Answer] = (0,)
    mode: int = pynvml.NVML_COMPUTEMODE_DEFAULT
    instances: Sequence[FakeGpu] = ()
    queries: dict[str, int] = field(default_factory=dict)

    def answer(self, query: str) -> Any:
        """Return the next answer. Raise NVMLError if it is a Refusal."""
        script, position = getattr(self, query), self.queries.get(query, 0)
        self.queries[query] = position + 1
        answer = script[min(position, len(script) - 1)]
        if isinstance(answer, Refusal):
            fail(answer.code)
        return answer


def fail(code: int) -> NoReturn:
    raise pynvml.NVMLError(code)


def refuse(monkeypatch: pytest.MonkeyPatch, function: str, code: int) -> None:
    """Make one function of `pynvml` fail with this error code."""
    monkeypatch.setattr(pynvml, function, lambda *arguments: fail(code))


def install(monkeypatch: pytest.MonkeyPatch, gpus: Sequence[FakeGpu], *, old_driver: bool = False) -> list[str]:
    """Replace the functions of `pynvml` so that they answer for these GPUs.

    old_driver: the driver has the event reasons only under their former name, "throttle reasons". Return a list that
    records each initialization and shutdown of NVML.
    """
    calls: list[str] = []
    handles = [*gpus, *(instance for gpu in gpus for instance in gpu.instances)]

    def first(found: Iterable[Any]) -> Any:
        return next(iter(found), None) or fail(pynvml.NVML_ERROR_NOT_FOUND)

    def index_of(handle: FakeGpu) -> int:
        family = next((gpu.instances for gpu in gpus if handle in gpu.instances), gpus)
        return list(family).index(handle)

    def unknown(gpu: FakeGpu) -> int:
        fail(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)

    def reasons(gpu: FakeGpu) -> int:
        return int(gpu.answer("reasons"))

    answers = {
        "nvmlInit": lambda: calls.append("init"),
        "nvmlShutdown": lambda: calls.append("shutdown"),
        "nvmlSystemGetDriverVersion": lambda: "580.65.06",
        "nvmlSystemGetCudaDriverVersion_v2": lambda: 13000,
        "nvmlDeviceGetCount": lambda: len(gpus),
        "nvmlDeviceGetHandleByIndex": lambda index: first(gpus[index : index + 1]),
        "nvmlDeviceGetHandleByUUID": lambda uuid: first(gpu for gpu in handles if gpu.uuid == uuid),
        "nvmlDeviceGetIndex": index_of,
        "nvmlDeviceGetMaxMigDeviceCount": lambda gpu: len(gpu.instances),
        "nvmlDeviceGetMigDeviceHandleByIndex": lambda gpu, number: gpu.instances[number],
        "nvmlDeviceGetDeviceHandleFromMigDeviceHandle": lambda handle: first(g for g in gpus if handle in g.instances),
        "nvmlDeviceGetName": lambda gpu: "NVIDIA H200",
        "nvmlDeviceGetUUID": lambda gpu: gpu.uuid,
        "nvmlDeviceGetCudaComputeCapability": lambda gpu: (9, 0),
        "nvmlDeviceGetComputeMode": lambda gpu: gpu.mode,
        "nvmlDeviceGetPowerManagementLimit": lambda gpu: 700_000,
        "nvmlDeviceGetPowerManagementDefaultLimit": lambda gpu: 700_000,
        "nvmlDeviceGetUtilizationRates": lambda gpu: pynvml.c_nvmlUtilization_t(gpu=gpu.answer("use")),
        "nvmlDeviceGetMemoryInfo": lambda gpu: pynvml.c_nvmlMemory_t(total=150 << 30, used=gpu.answer("memory")),
        "nvmlDeviceGetPowerUsage": lambda gpu: gpu.answer("power"),
        "nvmlDeviceGetTotalEnergyConsumption": lambda gpu: gpu.answer("energy"),
        "nvmlDeviceGetTemperature": lambda gpu, sensor: gpu.answer("temperature"),
        "nvmlDeviceGetClockInfo": lambda gpu, kind: gpu.answer("sm_clock"),
        "nvmlDeviceGetComputeRunningProcesses_v3": lambda gpu: [
            SimpleNamespace(pid=pid, usedGpuMemory=1 << 30) for pid in gpu.answer("processes")
        ],
        "nvmlDeviceGetCurrentClocksEventReasons": unknown if old_driver else reasons,
        "nvmlDeviceGetCurrentClocksThrottleReasons": reasons if old_driver else unknown,
    }
    for name, answer in answers.items():
        assert hasattr(pynvml, name), f"pynvml has no {name}"
        monkeypatch.setattr(pynvml, name, answer)
    return calls
