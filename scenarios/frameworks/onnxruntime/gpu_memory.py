"""Read this process' GPU memory from NVML, because ONNX Runtime does not report the peak of its arena."""

import os
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def process_bytes_on_gpu() -> int | None:
    """Return the memory, in bytes, that NVML reports for this process on all GPUs.

    ONNX Runtime's arena never shrinks, so at the end this is the peak, with the CUDA context. Return None if it was not
    measured: NVML does not know this process (another PID namespace), refuses a query (MIG, virtual GPUs, WSL2), or the
    user's interpreter lacks nvidia-ml-py.
    """
    try:
        import pynvml
    except ImportError:
        return None

    def ask(query: Callable[..., T], *arguments: object) -> T | None:
        try:
            return query(*arguments)
        except pynvml.NVMLError:
            return None

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    handles = [ask(pynvml.nvmlDeviceGetHandleByIndex, index) for index in range(ask(pynvml.nvmlDeviceGetCount) or 0)]
    # Use the versioned name. With the plain name, a driver without the function causes an error other than NVMLError.
    lists = [ask(pynvml.nvmlDeviceGetComputeRunningProcesses_v3, handle) for handle in handles if handle is not None]
    ask(pynvml.nvmlShutdown)
    own = [process for processes in lists for process in processes or () if process.pid == os.getpid()]
    used = [process.usedGpuMemory for process in own if process.usedGpuMemory is not None]
    return sum(used) if used else None
