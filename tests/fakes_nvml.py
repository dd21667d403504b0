"""NVML without a GPU: functions of `pynvml` that answer from a script in NVML's own units and structures."""

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
    """The driver's answer is this error code."""

    code: int


UNSUPPORTED = Refusal(pynvml.NVML_ERROR_NOT_SUPPORTED)


@dataclass
class FakeGpu:
    """Answers to each query in turn, the last one for ever: percent, bytes, milliwatts, millijoules, degrees Celsius,
    MHz, process ids, event reason bits."""

    uuid: str = "GPU-0"
    use: Sequence[Answer] = (0,)
    memory: Sequence[Answer] = (0,)
    power: Sequence[Answer] = (0,)
    energy: Sequence[Answer] = (0,)
    temperature: Sequence[Answer] = (30,)
    sm_clock: Sequence[Answer] = (345,)
    processes: Sequence[Answer] = ((),)
    reasons: Sequence[Answer] = (0,)
    asked: dict[str, int] = field(default_factory=dict)

    def answer(self, query: str) -> Any:
        """The next answer. Raises NVMLError where that is a refusal."""
        script, turn = getattr(self, query), self.asked.get(query, 0)
        self.asked[query] = turn + 1
        answer = script[min(turn, len(script) - 1)]
        if isinstance(answer, Refusal):
            raise pynvml.NVMLError(answer.code)
        return answer


def install(monkeypatch: pytest.MonkeyPatch, gpus: Sequence[FakeGpu], *, old_driver: bool = False) -> list[str]:
    """Have `pynvml` answer for these GPUs. old_driver: it knows event reasons by their former name only. Returns a list
    to which each opening and closing of NVML is added."""
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
