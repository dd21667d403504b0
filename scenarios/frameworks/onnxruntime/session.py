"""Sessions on one device: options, execution provider, and the evidence of where the nodes went."""

from __future__ import annotations

import ctypes
import os
from collections import Counter

import numpy as np
import onnxruntime as ort
from onnxruntime.capi.onnxruntime_pybind11_state import EPFail, Fail, RuntimeException
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NoKernel

from scenarios.adapter import DeviceUnavailable, Options
from scenarios.frameworks.onnxruntime.graph import Graph

PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
WARNING = 2  # log severity
UNSAFE = "EliminateDropout"  # removes Dropout in training mode too, where no node uses its mask


class Runtime:
    """Opens sessions for one device. Raises DeviceUnavailable where ONNX Runtime cannot use it."""

    def __init__(self, options: Options) -> None:
        self.device = options.device
        self._provider = PROVIDERS[options.device]
        self._threads = options.intra_op_threads
        self._settings = options.settings
        self._provider_options: dict[str, str] = {}
        if options.device == "cuda":
            self._provider_options = {"device_id": "0", "use_tf32": str(int(options.precision == "tf32"))}
            self._find_cuda()

    def open(self, model: bytes, *, plan_memory: bool = False) -> ort.InferenceSession:
        """A session that runs every node of the model on this device; raises where one would run elsewhere.

        plan_memory: ONNX Runtime's default, by which the second run at a batch size lays all tensors out in one new
        block while the first run's memory is kept. A training step of the deep net then held 2.85 GB instead of
        1.5 GB, and no network was more than 3 % faster for it.
        """
        settings = ort.SessionOptions()
        settings.intra_op_num_threads = self._threads
        settings.inter_op_num_threads = 1
        settings.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
        settings.enable_mem_pattern = plan_memory or self._settings.get("memory") == "planned"
        settings.enable_cpu_mem_arena = self._settings.get("memory") != "no arena"
        settings.log_severity_level = WARNING
        settings.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
        settings.add_session_config_entry(
            "session.intra_op.allow_spinning", str(int(self._settings.get("idle") != "sleep"))
        )
        if self._settings.get("denormals") == "flushed":
            settings.add_session_config_entry("session.set_denormal_as_zero", "1")
        if self.device != "cpu":
            settings.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        providers = [(self._provider, self._provider_options)]
        session = ort.InferenceSession(
            model,
            settings,
            providers=providers,
            enable_fallback=0,
            disabled_optimizers=[UNSAFE],
        )
        if (found := nodes_by_provider(session)).keys() != {self._provider}:
            raise RuntimeError(f"nodes were to run on {self._provider} alone and went to {sorted(found)}")
        return session

    def value(self, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> ort.OrtValue:
        """An uninitialised tensor on the device."""
        return ort.OrtValue.ortvalue_from_shape_and_type(shape, dtype.type, self.device)

    def rounds_to_tf32(self) -> bool:
        """Whether this device multiplies float32 matrices in TF32 now.

        1.0001 lies between two TF32 numbers, 1 and 1 + 2^-10, so 1024 such products by 1 sum up to 1024.0 instead
        of 1024.1.
        """
        values = np.full((1024, 1024), 1.0001, np.float32)
        (product,) = self.open(_product(1024)).run(None, {"left": values, "right": np.ones_like(values)})
        return abs(float(np.mean(product)) - 1024) < 0.05

    def device_name(self) -> str:
        """The GPU's name as its driver tells it; on the CPU, the instruction set architecture."""
        if self.device == "cpu":
            return f"CPU, {os.uname().machine}"
        driver = ctypes.CDLL("libcuda.so.1")
        device, name = ctypes.c_int(), ctypes.create_string_buffer(256)
        failed = driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), 0)
        if failed or driver.cuDeviceGetName(name, len(name), device):
            raise RuntimeError("the CUDA driver does not name device 0")
        return name.value.decode()

    def _find_cuda(self) -> None:
        if self._provider not in ort.get_available_providers():
            raise DeviceUnavailable(f"onnxruntime {ort.__version__} is built without CUDA; install onnxruntime-gpu.")
        ort.preload_dlls()  # CUDA and cuDNN from their wheels
        try:
            self.open(_product(8))
        except (RuntimeError, EPFail, Fail, NoKernel, RuntimeException) as error:
            raise DeviceUnavailable(f"ONNX Runtime cannot use CUDA here: {error}") from error


def nodes_by_provider(session: ort.InferenceSession) -> dict[str, int]:
    """How many nodes of the session's graph were assigned to each execution provider, before those fused any."""
    counts: Counter[str] = Counter()
    for part in session.get_provider_graph_assignment_info():
        counts[part.ep_name] += len(part.get_nodes())
    return dict(counts)


def process_bytes_on_gpu() -> int | None:
    """Memory that this process holds on all GPUs, as NVML tells it: ONNX Runtime's arena never shrinks, so at the end
    this is its peak, with the CUDA context. None where NVML does not know this process (another PID namespace)."""
    import pynvml

    pynvml.nvmlInit()
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        processes = [p for handle in handles for p in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)]
    finally:
        pynvml.nvmlShutdown()
    used = [p.usedGpuMemory for p in processes if p.pid == os.getpid() and p.usedGpuMemory is not None]
    return int(sum(used)) if used else None


def _product(size: int) -> bytes:
    graph = Graph("matrix product")
    left, right = (graph.input(name, np.float32, (size, size)) for name in ("left", "right"))
    graph.output(graph.node("MatMul", left, right), np.float32, (size, size))
    return graph.serialize()
