"""Query the NVIDIA GPUs of this machine through NVML. Without NVIDIA's driver there are none."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pynvml

from kit.model.environment import Framework
from kit.model.machine import Gpu


def gpus(*, identify: bool = False) -> list[Gpu]:
    """Return the GPUs in the driver's order (PCI bus), none if NVML cannot be used. identify: include UUIDs."""
    with _nvml() as usable:
        if not usable:
            return []
        return [_describe(index, handle, identify) for index, handle in enumerate(_handles())]


def named(name: str) -> Gpu | None:
    """Return the GPU with this index or UUID, None if it is not visible."""
    return next((gpu for gpu in gpus(identify=True) if name in (str(gpu.index), gpu.uuid)), None)


def driver() -> tuple[str | None, str | None]:
    """Return the version of NVIDIA's driver and of the newest CUDA that it supports, for example ("580.65.06", "13.0").
    Return None, None if there is no driver."""
    with _nvml() as usable:
        if not usable:
            return None, None
        cuda = pynvml.nvmlSystemGetCudaDriverVersion_v2()
        return pynvml.nvmlSystemGetDriverVersion(), f"{cuda // 1000}.{cuda % 1000 // 10}"


def busy() -> list[int]:
    """Return the indices of the GPUs on which a process computes now, none if NVML cannot be used."""
    with _nvml() as usable:
        return [index for index, handle in enumerate(_handles()) if _computes(handle)] if usable else []


@contextmanager
def opened(names: Sequence[str]) -> Iterator[dict[int, object]]:
    """Yield NVML's handles of the GPUs with these indices or UUIDs, by index. They are valid inside the context. GPUs
    that do not answer are missing. If no GPU is named, NVML is not used."""
    if not names:
        yield {}
        return
    with _nvml() as usable:
        yield dict(found for name in names if (found := _find(name))) if usable else {}


def absence() -> str | None:
    """Return why no launch can have a GPU here, None if there is a GPU."""
    if gpus():
        return None
    return "No NVIDIA GPU is visible on this machine: NVIDIA's driver is missing, or shows no GPU to this user."


def refusal(framework: Framework) -> str | None:
    """Return why no GPU of this machine can run the framework's CUDA environment, with the remedy. Return None if one
    can."""
    return absence() or " ".join(lack(framework) or ()) or None


def lack(framework: Framework) -> tuple[str, str] | None:
    """Return what this machine's GPUs lack for the framework's CUDA environment, and the remedy. Return None if one is
    suitable."""
    found = gpus()
    version, cuda = driver()
    needed = framework.min_driver
    if needed is not None and version is not None and int(version.split(".")[0]) < needed:
        return (
            f"NVIDIA's driver is {version}. {framework.title} on CUDA {framework.cuda_major} needs {needed} or newer.",
            "Update the driver.",
        )
    lacks = [lack_of(gpu, framework, cuda) for gpu in found]
    return lacks[0] if lacks and all(lacks) else None


def lack_of(gpu: Gpu, framework: Framework, cuda: str | None) -> tuple[str, str] | None:
    """Return why the framework's CUDA environment cannot run on this GPU, and the remedy. Return None if it can.

    cuda: newest CUDA version that the driver supports, for example "13.0"; None if it is unknown.
    """
    own = gpu.compute_capability
    has = f"GPU {gpu.index} ({gpu.name}) has compute capability {_dotted(own)}"
    remedy = f"Use --env with an interpreter whose {framework.title} was built for this GPU."
    newest = framework.max_capability
    if newest is not None and own > newest:
        return f"{has}, but {framework.title} compiles only for {_dotted(newest)} and older.", remedy
    for library, codes in (framework.device_code or {}).items():
        package = library.partition("/")[0]
        suitable = [code for code in codes if code.runs_on(own)]
        if not suitable:
            return f"{has}, for which {package} has no code. It has {', '.join(map(str, codes))}.", remedy
        needed = min(code.min_cuda for code in suitable)
        if cuda is not None and tuple(map(int, cuda.split("."))) < needed:
            needs = f"To compile it, the driver must support CUDA {_dotted(needed)}, but it supports only {cuda}."
            return f"{has}, for which {package} has only PTX. {needs}", "Update the driver."
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
    except pynvml.NVMLError:  # it fell off the bus since it was chosen
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
        name=pynvml.nvmlDeviceGetName(handle),
        memory_bytes=pynvml.nvmlDeviceGetMemoryInfo(handle).total,
        compute_capability=(major, minor),
        power_limit_w=_watts(pynvml.nvmlDeviceGetPowerManagementLimit, handle),
        default_power_limit_w=_watts(pynvml.nvmlDeviceGetPowerManagementDefaultLimit, handle),
        uuid=pynvml.nvmlDeviceGetUUID(handle) if identify else None,
    )


def _watts(query: Callable[[object], int], handle: object) -> float | None:
    try:
        return query(handle) / 1000  # milliwatts
    except pynvml.NVMLError:  # laptop and virtual GPUs often do not report it
        return None


def _dotted(capability: tuple[int, int]) -> str:
    return ".".join(map(str, capability))
