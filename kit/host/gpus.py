"""Query the NVIDIA GPUs of this machine through NVML. Without NVIDIA's driver there are none.

NVML may refuse any query: for MIG instances, virtual GPUs and WSL2, without permission, or if the driver is old. The
answer is then missing.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import pynvml

from kit.model.environment import Framework
from kit.model.machine import Gpu

T = TypeVar("T")

UNNAMED = "NVIDIA GPU"
# In these modes the driver refuses processes (NVML API reference, nvmlComputeMode_t).
RESTRICTED = {
    pynvml.NVML_COMPUTEMODE_PROHIBITED: "PROHIBITED",
    pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS: "EXCLUSIVE_PROCESS",
}


def ask(query: Callable[..., T], *arguments: object) -> T | None:
    """Return NVML's answer, None if it refuses the query."""
    try:
        return query(*arguments)
    except pynvml.NVMLError:  # not supported here, not permitted, unknown to the driver, or the GPU is lost
        return None


def gpus(*, identify: bool = False) -> list[Gpu]:
    """Return the GPUs that answer in the driver's order (PCI bus), none if NVML cannot be used. identify: include
    UUIDs."""
    with _nvml() as usable:
        return [_describe(index, handle, identify) for index, handle in _handles()] if usable else []


def silent() -> int:
    """Return the number of GPUs that NVML counts, but that do not answer: they are lost, or not permitted."""
    with _nvml() as usable:
        return _count() - len(_handles()) if usable else 0


def mig_uuids() -> dict[int, list[str]]:
    """Return the UUIDs of the MIG instances of each GPU that is divided into some, by its index."""
    with _nvml() as usable:
        found = {index: _instances(gpu) for index, gpu in _handles()} if usable else {}
    return {index: uuids for index, uuids in found.items() if uuids}


def restricted() -> dict[int, str]:
    """Return index and compute mode of each GPU on which the driver refuses processes: EXCLUSIVE_PROCESS (more than
    one) or PROHIBITED (all)."""
    with _nvml() as usable:
        modes = {i: ask(pynvml.nvmlDeviceGetComputeMode, handle) for i, handle in _handles()} if usable else {}
    return {index: RESTRICTED[mode] for index, mode in modes.items() if mode in RESTRICTED}


def named(name: str) -> Gpu | None:
    """Return the GPU or MIG instance with this index or UUID, None if it is not visible.

    An instance has the index and the compute capability of its GPU.
    """
    found = {gpu.index: gpu for gpu in gpus(identify=True)}
    for gpu in found.values():
        if name in (str(gpu.index), gpu.uuid):
            return gpu
    with opened([name]) as handles:
        for index, handle in handles.items():
            if index in found:
                own = found[index].compute_capability
                return _describe(index, handle, identify=True).model_copy(update={"compute_capability": own})
    return None


def driver() -> tuple[str | None, str | None]:
    """Return the version of NVIDIA's driver and of the newest CUDA that it supports, for example ("580.65.06", "13.0").
    Return None for what NVML does not report."""
    with _nvml() as usable:
        if not usable:
            return None, None
        version, cuda = ask(pynvml.nvmlSystemGetDriverVersion), ask(pynvml.nvmlSystemGetCudaDriverVersion_v2)
    return version, f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda is not None else None


def busy() -> list[int]:
    """Return the indices of the GPUs on which a process computes now. A GPU that does not list its processes counts as
    idle."""
    with _nvml() as usable:
        return [index for index, handle in _handles() if ask(processes, handle)] if usable else []


def processes(handle: object) -> set[int]:
    """Return the ids of the processes that compute on a GPU. Raise NVMLError."""
    # Use the versioned name. With the plain name, a driver without the function causes an error other than NVMLError.
    return {process.pid for process in pynvml.nvmlDeviceGetComputeRunningProcesses_v3(handle)}


@contextmanager
def opened(names: Sequence[str]) -> Iterator[dict[int, object]]:
    """Yield NVML's handles of the GPUs with these indices or UUIDs, by index. They are valid inside the context. GPUs
    that do not answer are missing. If no GPU is named, NVML is not used.

    A MIG instance has the index of its GPU. If several instances of one GPU are named, the first counts, because CUDA
    uses only one.
    """
    if not names:
        yield {}
        return
    handles: dict[int, object] = {}
    with _nvml() as usable:
        for name in names if usable else ():
            index, handle = _find(name)
            if index is not None and handle is not None:
                handles.setdefault(index, handle)
        yield handles


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
    """Return why the framework's CUDA environment cannot run on this GPU, and the remedy. Return None if it can, or
    if NVML does not report its compute capability.

    cuda: newest CUDA version that the driver supports, for example "13.0"; None if it is unknown.
    """
    own = gpu.compute_capability
    if own is None:
        return None
    has = f"GPU {gpu.index} ({gpu.name}) has compute capability {_dotted(own)}"
    remedy = f"Use --env with an interpreter whose {framework.title} was built for this GPU."
    newest = framework.max_capability
    if newest is not None and own > newest:
        return f"{has}, but {framework.title} compiles only for {_dotted(newest)} and older.", remedy
    for library, codes in (framework.device_code or {}).items():
        package = library.partition("/")[0]
        if not codes:  # nobody has read the library yet
            continue
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
        ask(pynvml.nvmlShutdown)


def _count() -> int:
    return ask(pynvml.nvmlDeviceGetCount) or 0


def _handles() -> list[tuple[int, object]]:
    """Return index and handle of each GPU that answers. NVML also counts GPUs that this user may not use."""
    handles = [(index, ask(pynvml.nvmlDeviceGetHandleByIndex, index)) for index in range(_count())]
    return [(index, handle) for index, handle in handles if handle is not None]


def _instances(gpu: object) -> list[str]:
    numbers = range(ask(pynvml.nvmlDeviceGetMaxMigDeviceCount, gpu) or 0)
    handles = [ask(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, gpu, number) for number in numbers]
    uuids = [ask(pynvml.nvmlDeviceGetUUID, handle) for handle in handles if handle is not None]
    return [uuid for uuid in uuids if uuid is not None]


def _find(name: str) -> tuple[int | None, object | None]:
    if name.isdecimal():
        return int(name), ask(pynvml.nvmlDeviceGetHandleByIndex, int(name))
    handle = ask(pynvml.nvmlDeviceGetHandleByUUID, name)
    # The index of a MIG instance counts within its GPU. NVML refuses this query for a whole GPU.
    gpu = ask(pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle, handle) or handle
    return ask(pynvml.nvmlDeviceGetIndex, gpu), handle


def _describe(index: int, handle: object, identify: bool) -> Gpu:
    memory = ask(pynvml.nvmlDeviceGetMemoryInfo, handle)
    return Gpu(
        index=index,
        name=ask(pynvml.nvmlDeviceGetName, handle) or UNNAMED,
        memory_bytes=memory.total if memory is not None else None,
        compute_capability=ask(pynvml.nvmlDeviceGetCudaComputeCapability, handle),
        power_limit_w=_watts(pynvml.nvmlDeviceGetPowerManagementLimit, handle),
        default_power_limit_w=_watts(pynvml.nvmlDeviceGetPowerManagementDefaultLimit, handle),
        uuid=ask(pynvml.nvmlDeviceGetUUID, handle) if identify else None,
    )


def _watts(query: Callable[[object], int], handle: object) -> float | None:
    milliwatts = ask(query, handle)
    return milliwatts / 1000 if milliwatts is not None else None


def _dotted(capability: tuple[int, int]) -> str:
    return ".".join(map(str, capability))
