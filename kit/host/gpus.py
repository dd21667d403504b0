"""The NVIDIA GPUs of this machine, asked through NVML; a machine without NVIDIA's driver has none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pynvml

from kit.model.environment import Framework
from kit.model.machine import Gpu


def gpus(*, identify: bool = False) -> list[Gpu]:
    """The GPUs in the driver's order (PCI bus); none where NVML cannot be used. identify: with UUIDs."""
    with _nvml() as usable:
        if not usable:
            return []
        return [_describe(index, handle, identify) for index, handle in enumerate(_handles())]


def driver() -> tuple[str | None, str | None]:
    """Version of NVIDIA's driver and of the newest CUDA that it serves, as ("580.65.06", "13.0"); None, None where
    there is no driver."""
    with _nvml() as usable:
        if not usable:
            return None, None
        cuda = pynvml.nvmlSystemGetCudaDriverVersion_v2()
        return _text(pynvml.nvmlSystemGetDriverVersion()), f"{cuda // 1000}.{cuda % 1000 // 10}"


def busy() -> list[int]:
    """Indices of the GPUs on which a process computes now; none where NVML cannot be used."""
    with _nvml() as usable:
        return [index for index, handle in enumerate(_handles()) if _computes(handle)] if usable else []


@contextmanager
def opened(names: Sequence[str]) -> Iterator[dict[int, object]]:
    """NVML's handles of the GPUs with these indices or UUIDs, by index, usable inside the context; without those that
    do not answer. Where no GPU is named NVML is left alone."""
    if not names:
        yield {}
        return
    with _nvml() as usable:
        yield dict(found for name in names if (found := _find(name))) if usable else {}


def absence() -> str | None:
    """Why no launch can have a GPU here; None where there is one."""
    if gpus():
        return None
    return "No NVIDIA GPU is visible on this machine: NVIDIA's driver is absent, or shows no GPU to this user."


def refusal(framework: Framework) -> str | None:
    """Why no GPU of this machine can run the framework's cuda environment, with the remedy; None where one can."""
    if "cuda" not in framework.devices:
        return f"{framework.title} is not offered on cuda."
    return absence() or " ".join(lack(framework) or ()) or None


def lack(framework: Framework) -> tuple[str, str] | None:
    """What the GPUs that are here lack for the framework's cuda environment, and the remedy; None where one is fit."""
    found = gpus()
    version, _ = driver()
    least = framework.min_driver
    if least is not None and version is not None and int(version.split(".")[0]) < least:
        return (
            f"NVIDIA's driver is {version}; {framework.title} with CUDA {framework.cuda_major} needs {least} or newer.",
            "Update the driver.",
        )
    capability = framework.min_capability
    if capability is not None and all(gpu.compute_capability < capability for gpu in found):
        names = ", ".join(f"{gpu.name} ({_dotted(gpu.compute_capability)})" for gpu in found)
        return (
            f"{framework.title} needs a GPU of compute capability {_dotted(capability)} or newer; here is {names}.",
            f"Use --env with an interpreter whose {framework.title} was built for this GPU.",
        )
    return None


@contextmanager
def _nvml() -> Iterator[bool]:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:  # no driver, no permission, driver and library of different versions
        yield False
        return
    try:
        yield True
    finally:
        pynvml.nvmlShutdown()


def _handles() -> list[object]:
    return [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]


def _find(name: str) -> tuple[int, object] | None:
    try:
        if name.isdecimal():
            return int(name), pynvml.nvmlDeviceGetHandleByIndex(int(name))
        handle = pynvml.nvmlDeviceGetHandleByUUID(name)
        return pynvml.nvmlDeviceGetIndex(handle), handle
    except pynvml.NVMLError:  # fallen off the bus since it was chosen
        return None


def _computes(handle: object) -> bool:
    try:
        return bool(pynvml.nvmlDeviceGetComputeRunningProcesses(handle))
    except (pynvml.NVMLError, pynvml.NVMLLibraryMismatchError):  # parts of a GPU (MIG), virtual GPUs, old drivers
        return False


def _describe(index: int, handle: object, identify: bool) -> Gpu:
    major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
    return Gpu(
        index=index,
        name=_text(pynvml.nvmlDeviceGetName(handle)),
        memory_bytes=pynvml.nvmlDeviceGetMemoryInfo(handle).total,
        compute_capability=(major, minor),
        power_limit_w=_watts(pynvml.nvmlDeviceGetPowerManagementLimit, handle),
        default_power_limit_w=_watts(pynvml.nvmlDeviceGetPowerManagementDefaultLimit, handle),
        uuid=_text(pynvml.nvmlDeviceGetUUID(handle)) if identify else None,
    )


def _watts(query: Callable[[object], int], handle: object) -> float | None:
    try:
        return query(handle) / 1000  # milliwatts
    except pynvml.NVMLError:  # laptop and virtual GPUs often do not say
        return None


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _dotted(capability: tuple[int, int]) -> str:
    return ".".join(map(str, capability))
