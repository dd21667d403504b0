"""A fake NVML: functions of `pynvml` that return scripted values in NVML's units and structures. No GPU is needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

Answer = Any  # a value in NVML's unit, or a Refusal


@dataclass(frozen=True)
class Refusal:
    """The driver returns this error code."""

    code: int


UNSUPPORTED = Refusal(pynvml.NVML_ERROR_NOT_SUPPORTED)


@dataclass
class FakeGpu:
    """The scripted answers of one GPU. The last answer of each script is repeated.

    Units: use in percent, memory in bytes, power in milliwatts, energy in millijoules, temperature in degrees Celsius,
    sm_clock in MHz. processes: process ids. reasons: event reason bits. queries: number of queries so far by name.
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
    queries: dict[str, int] = field(default_factory=dict)

    def answer(self, query: str) -> Any:
        """Return the next answer. Raise NVMLError if it is a Refusal."""
        script, position = getattr(self, query), self.queries.get(query, 0)
        self.queries[query] = position + 1
        answer = script[min(position, len(script) - 1)]
        if isinstance(answer, Refusal):
            raise pynvml.NVMLError(answer.code)
        return answer


def install(monkeypatch: pytest.MonkeyPatch, gpus: Sequence[FakeGpu], *, old_driver: bool = False) -> list[str]:
    """Replace the functions of `pynvml` so that they answer for these GPUs.

    old_driver: the driver has the event reasons only under their former name, "throttle reasons". Return a list that
    records each initialization and shutdown of NVML.
    """
    calls: list[str] = []

    def by_index(index: int) -> FakeGpu:
        if index >= len(gpus):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return gpus[index]

    def unknown(gpu: FakeGpu) -> int:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)

    def reasons(gpu: FakeGpu) -> int:
        return int(gpu.answer("reasons"))

    answers = {
        "nvmlInit": lambda: calls.append("init"),
        "nvmlShutdown": lambda: calls.append("shutdown"),
        "nvmlDeviceGetCount": lambda: len(gpus),
        "nvmlDeviceGetHandleByIndex": by_index,
        "nvmlDeviceGetHandleByUUID": lambda uuid: next(gpu for gpu in gpus if gpu.uuid == uuid),
        "nvmlDeviceGetIndex": gpus.index,
        "nvmlDeviceGetUtilizationRates": lambda gpu: pynvml.c_nvmlUtilization_t(gpu=gpu.answer("use")),
        "nvmlDeviceGetMemoryInfo": lambda gpu: pynvml.c_nvmlMemory_t(used=gpu.answer("memory")),
        "nvmlDeviceGetPowerUsage": lambda gpu: gpu.answer("power"),
        "nvmlDeviceGetTotalEnergyConsumption": lambda gpu: gpu.answer("energy"),
        "nvmlDeviceGetTemperature": lambda gpu, sensor: gpu.answer("temperature"),
        "nvmlDeviceGetClockInfo": lambda gpu, kind: gpu.answer("sm_clock"),
        "nvmlDeviceGetComputeRunningProcesses_v3": lambda gpu: [
            SimpleNamespace(pid=pid) for pid in gpu.answer("processes")
        ],
        "nvmlDeviceGetCurrentClocksEventReasons": unknown if old_driver else reasons,
        "nvmlDeviceGetCurrentClocksThrottleReasons": reasons if old_driver else unknown,
    }
    for name, answer in answers.items():
        assert hasattr(pynvml, name), f"pynvml has no {name}"
        monkeypatch.setattr(pynvml, name, answer)
    return calls
