"""Sample a launch's GPUs through NVML. Any GPU may refuse any query. That series is then missing, never zero."""

from collections.abc import Callable, Mapping

import pynvml

from kit.host.gpus import ask, processes

# From NVML's API reference. Utilization: share of the last 1/6 to 1 s in which a kernel ran. Power: milliwatts; from
# Ampere on (except A100) the mean of the last second. Energy: millijoules since the driver was loaded; from Volta on.
QUERIES: dict[str, Callable[[object], float]] = {
    "use": lambda gpu: pynvml.nvmlDeviceGetUtilizationRates(gpu).gpu / 100,
    "memory_gib": lambda gpu: pynvml.nvmlDeviceGetMemoryInfo(gpu).used / 2**30,
    "power_w": lambda gpu: pynvml.nvmlDeviceGetPowerUsage(gpu) / 1000,
    "energy_j": lambda gpu: pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu) / 1000,
    "temperature_c": lambda gpu: pynvml.nvmlDeviceGetTemperature(gpu, pynvml.NVML_TEMPERATURE_GPU),
    "sm_mhz": lambda gpu: pynvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_SM),
}

# Why the clocks are lower than they could be, as 0 or 1. hw_slowdown is set for every cause in hardware; hw_thermal and
# hw_power_brake name two of these causes.
REASONS = {
    "sw_power_cap": pynvml.nvmlClocksEventReasonSwPowerCap,
    "hw_slowdown": pynvml.nvmlClocksEventReasonHwSlowdown,
    "sw_thermal": pynvml.nvmlClocksEventReasonSwThermalSlowdown,
    "hw_thermal": pynvml.nvmlClocksEventReasonHwThermalSlowdown,
    "hw_power_brake": pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown,
}


class Gpus:
    """Series `gpu<index>_...`, with NVML's index as in Machine.gpus.

    Create this before the launch begins. A process that computes on a GPU at that time is not part of the launch, and
    is counted in `other_processes` until it ends. Later processes cannot be distinguished from those of the
    launch, because a process has another number inside a container.
    """

    def __init__(self, handles: Mapping[int, object]) -> None:
        self._handles = handles
        self._others = {index: ask(processes, gpu) for index, gpu in handles.items()}

    def read(self) -> dict[str, float]:
        """Return every series that the GPUs report now."""
        found: dict[str, float] = {}
        for index, gpu in self._handles.items():
            name = f"gpu{index}"
            answers = {series: ask(query, gpu) for series, query in QUERIES.items()}
            answers["other_processes"] = self._staying(index, gpu)
            found |= {f"{name}_{series}": answer for series, answer in answers.items() if answer is not None}
            reasons = ask(_reasons, gpu)
            if reasons is not None:
                found |= {f"{name}_{reason}": float(bool(reasons & bit)) for reason, bit in REASONS.items()}
        return found

    def _staying(self, index: int, gpu: object) -> int | None:
        before = self._others[index]
        now = ask(processes, gpu)
        return None if before is None or now is None else len(before & now)


def _reasons(gpu: object) -> int:
    try:
        return int(pynvml.nvmlDeviceGetCurrentClocksEventReasons(gpu))
    except pynvml.NVMLError_FunctionNotFound:  # its name before driver 535
        return int(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu))
