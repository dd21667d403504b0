"""Test that NVML may refuse any call: for MIG, virtual GPUs and WSL2, without permission, or with an old driver.

Each function that the host or a worker calls is refused alone. Then the launch is still ok, and only its figure is
missing.
"""

from __future__ import annotations

import os
import re
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from kit import assets
from kit.doctor import gather
from kit.doctor.facts import Docker, Gpus
from kit.doctor.gpu_checks import check_gpus
from kit.host import gpus, machine
from kit.model.errors import EngineError
from kit.model.machine import Machine
from kit.planning.selection import Selection
from scenarios.frameworks.onnxruntime.gpu_memory import process_bytes_on_gpu
from tests.campaigns import FRAMEWORKS, execute, new_run
from tests.fakes import FakeEngine
from tests.fakes_nvml import FakeGpu, install, refuse

CODES = (
    pynvml.NVML_ERROR_NOT_SUPPORTED,
    pynvml.NVML_ERROR_NO_PERMISSION,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    pynvml.NVML_ERROR_UNKNOWN,
)
ON_CUDA = Selection(scenarios=("mnist-cnn",), frameworks=("torch",), devices=("cuda",))

REASONS = {f"gpu0_{name}" for name in ("sw_power_cap", "hw_slowdown", "sw_thermal", "hw_thermal", "hw_power_brake")}
QUERIES = ("use", "memory_gib", "power_w", "energy_j", "temperature_c", "sm_mhz", "other_processes")
SERIES = {*REASONS, *(f"gpu0_{name}" for name in QUERIES)}
GPU = {"name", "memory_bytes", "compute_capability", "power_limit_w", "default_power_limit_w", "uuid"}
FOUND = {*SERIES, *GPU, "worker", "busy", "modes", "parts"}  # figures that need a handle
# The figures that are missing if NVML refuses a function. A refused UUID leaves the MIG instances without a name.
LOST: dict[str, set[str]] = {
    "nvmlInit": {*FOUND, "driver", "cuda_driver"},
    "nvmlShutdown": set(),
    "nvmlSystemGetDriverVersion": {"driver"},
    "nvmlSystemGetCudaDriverVersion_v2": {"cuda_driver"},
    "nvmlDeviceGetCount": FOUND,
    "nvmlDeviceGetHandleByIndex": FOUND,
    "nvmlDeviceGetHandleByUUID": set(),  # the launch names its GPU by index
    "nvmlDeviceGetIndex": set(),
    "nvmlDeviceGetDeviceHandleFromMigDeviceHandle": set(),
    "nvmlDeviceGetMaxMigDeviceCount": {"parts"},
    "nvmlDeviceGetMigDeviceHandleByIndex": {"parts"},
    "nvmlDeviceGetName": {"name"},
    "nvmlDeviceGetUUID": {"uuid", "parts"},
    "nvmlDeviceGetCudaComputeCapability": {"compute_capability"},
    "nvmlDeviceGetComputeMode": {"modes"},
    "nvmlDeviceGetPowerManagementLimit": {"power_limit_w"},
    "nvmlDeviceGetPowerManagementDefaultLimit": {"default_power_limit_w"},
    "nvmlDeviceGetMemoryInfo": {"memory_bytes", "gpu0_memory_gib"},
    "nvmlDeviceGetUtilizationRates": {"gpu0_use"},
    "nvmlDeviceGetPowerUsage": {"gpu0_power_w"},
    "nvmlDeviceGetTotalEnergyConsumption": {"gpu0_energy_j"},
    "nvmlDeviceGetTemperature": {"gpu0_temperature_c"},
    "nvmlDeviceGetClockInfo": {"gpu0_sm_mhz"},
    "nvmlDeviceGetComputeRunningProcesses_v3": {"gpu0_other_processes", "busy", "worker"},
    "nvmlDeviceGetCurrentClocksEventReasons": REASONS,
    "nvmlDeviceGetCurrentClocksThrottleReasons": set(),  # only old drivers need it
}


def figures(folder) -> dict[str, Any]:
    """Return all figures that NVML reports while a launch on cuda ends ok, without those that are missing."""
    (record,) = execute(new_run(folder, ON_CUDA), FakeEngine())
    assert (record.ok, record.warnings) == (True, [])
    described = machine.describe({"engine": "fake"}, identify=True)
    assert Machine.from_json(described.to_json(), "machine.json") == described
    gpu = described.gpus[0].model_dump(exclude={"index"}) if described.gpus else {}
    gpu = {name: value for name, value in gpu.items() if value != gpus.UNNAMED}
    facts = doctor_facts()
    found = {
        **{name: values for name, values in record.host_samples.series.items() if name.startswith("gpu")},
        **gpu,
        "driver": described.driver,
        "cuda_driver": described.cuda_driver,
        "worker": process_bytes_on_gpu(),
        "busy": facts.busy,
        "modes": facts.modes,
        "parts": gpus.mig_uuids(),
    }
    return {name: value for name, value in found.items() if value}


def doctor_facts() -> Gpus:
    """Return what doctor finds. All checks must be able to judge it."""
    frameworks = tuple(FRAMEWORKS.values())
    found = gather._gpus(frameworks)
    docker = Docker(EngineError("No Docker.", "Start it."))
    findings = list(check_gpus(SimpleNamespace(gpus=found, cards=1, frameworks=frameworks, docker=docker)))
    assert findings
    assert "None" not in str([finding.message for finding in findings])
    return found


@pytest.fixture
def gpu(monkeypatch):
    """Install a GPU that answers everything, in an exclusive compute mode, on which this process computes. Install
    another one in MIG mode."""
    gpu = FakeGpu(
        **dict.fromkeys(("use", "memory", "power", "energy", "temperature", "sm_clock"), (1 << 30,)),
        processes=((os.getpid(),),),
        reasons=(0xFF,),
        mode=pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS,
    )
    install(monkeypatch, [gpu, FakeGpu("GPU-1", processes=((os.getpid(),),), instances=[FakeGpu("MIG-1")])])


def test_every_function_of_nvml_that_is_called_is_refused_here():
    sources = [file for folder in ("kit", "scenarios") for file in (assets.ROOT / folder).rglob("*.py")]
    names = {name for file in sources for name in re.findall(r"pynvml\.(nvml\w+)", file.read_text())}
    assert {name for name in names if callable(getattr(pynvml, name))} == LOST.keys()


@pytest.mark.usefixtures("machine", "gpu")
@pytest.mark.parametrize("function", LOST)
def test_a_refused_call_costs_its_figure_and_nothing_else(monkeypatch, tmp_path, function):
    complete = figures(tmp_path / "complete")
    assert complete.keys() == {*FOUND, "driver", "cuda_driver"}
    for code in CODES:
        refuse(monkeypatch, function, code)
        assert figures(tmp_path / str(code)) == {n: value for n, value in complete.items() if n not in LOST[function]}
