"""What NVML tells of a launch's GPUs. Any GPU may refuse any question: that series is then absent, never zero."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import pynvml

T = TypeVar("T")

# NVML's API reference: use is the share of the last sixth of a second to second in which a kernel ran; power is in
# milliwatts, since Ampere (A100 excepted) the mean of the last second; energy in millijoules since the driver was
# loaded, since Volta.
QUERIES: dict[str, Callable[[object], float]] = {
    "use": lambda gpu: pynvml.nvmlDeviceGetUtilizationRates(gpu).gpu / 100,
    "memory_gib": lambda gpu: pynvml.nvmlDeviceGetMemoryInfo(gpu).used / 2**30,
    "power_w": lambda gpu: pynvml.nvmlDeviceGetPowerUsage(gpu) / 1000,
    "energy_j": lambda gpu: pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu) / 1000,
    "temperature_c": lambda gpu: pynvml.nvmlDeviceGetTemperature(gpu, pynvml.NVML_TEMPERATURE_GPU),
    "sm_mhz": lambda gpu: pynvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_SM),
}

# Why its clocks are lower than they could be, as 0 or 1. hw_slowdown is set for whatever cause; hw_thermal and
# hw_power_brake tell two of them.
REASONS = {
    "sw_power_cap": pynvml.nvmlClocksEventReasonSwPowerCap,
    "hw_slowdown": pynvml.nvmlClocksEventReasonHwSlowdown,
    "sw_thermal": pynvml.nvmlClocksEventReasonSwThermalSlowdown,
    "hw_thermal": pynvml.nvmlClocksEventReasonHwThermalSlowdown,
    "hw_power_brake": pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown,
}


class Gpus:
    """Series `gpu<index>_...`, by NVML's index as in Machine.gpus. Made before the launch begins: what computes on a
    GPU then is another's, and counts in `other_processes` for as long as it stays. Who comes later cannot be told
    from the launch, whose processes have numbers of their own inside a container."""

    def __init__(self, handles: Mapping[int, object]) -> None:
        self._handles = handles
        self._others = {index: _answer(_processes, gpu) for index, gpu in handles.items()}

    def read(self) -> dict[str, float]:
        """All that the GPUs answer now."""
        found: dict[str, float] = {}
        for index, gpu in self._handles.items():
            name = f"gpu{index}"
            answers = {series: _answer(query, gpu) for series, query in QUERIES.items()}
            answers["other_processes"] = self._staying(index, gpu)
            found |= {f"{name}_{series}": answer for series, answer in answers.items() if answer is not None}
            reasons = _answer(_reasons, gpu)
            if reasons is not None:
                found |= {f"{name}_{reason}": float(bool(reasons & bit)) for reason, bit in REASONS.items()}
        return found

    def _staying(self, index: int, gpu: object) -> int | None:
        before = self._others[index]
        now = _answer(_processes, gpu)
        return None if before is None or now is None else len(before & now)


def _answer(query: Callable[[object], T], gpu: object) -> T | None:
    try:
        return query(gpu)
    except pynvml.NVMLError:  # not supported by this GPU, not permitted, or lost
        return None


def _processes(gpu: object) -> set[int]:
    # By its version: the name without one hides a driver that lacks it behind an error that is no NVMLError.
    return {process.pid for process in pynvml.nvmlDeviceGetComputeRunningProcesses_v3(gpu)}


def _reasons(gpu: object) -> int:
    try:
        return int(pynvml.nvmlDeviceGetCurrentClocksEventReasons(gpu))
    except pynvml.NVMLError_FunctionNotFound:  # the name before driver 535
        return int(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu))
