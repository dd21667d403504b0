"""Sessions on one device: options, execution provider, and the evidence of where the nodes ran."""

import ctypes
import os
from collections import Counter
from typing import Literal

import numpy as np
import onnxruntime as ort
from onnxruntime.capi.onnxruntime_pybind11_state import EPFail, Fail, RuntimeException
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NoKernel

from scenarios.adapter import DeviceUnavailable, NotOffered, Options
from scenarios.frameworks import cuda_libraries
from scenarios.frameworks.onnxruntime.graph import Graph

PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
NHWC_DOMAIN = "com.ms.internal.nhwc"
SESSION_ERRORS = (RuntimeError, EPFail, Fail, NoKernel, RuntimeException)  # what opening or running a session raises
LOG_WARNINGS = 2  # log severity
UNSAFE_OPTIMIZER = "EliminateDropout"  # also removes a Dropout in training mode if no node uses its mask


class Runtime:
    """Opens sessions on one device.

    Raises DeviceUnavailable if ONNX Runtime cannot use the device, and NotOffered for a version before 1.24.
    """

    def __init__(self, options: Options) -> None:
        if not hasattr(ort.InferenceSession, "get_provider_graph_assignment_info"):
            raise NotOffered(
                f"onnxruntime {ort.__version__} does not report on which device its nodes run. Install 1.24 or newer."
            )
        self.device = options.device
        self._provider = PROVIDERS[options.device]
        self._threads, self._settings = options.intra_op_threads, options.settings
        self._provider_options: dict[str, str] = {}
        if options.device == "cuda":
            self._provider_options = {
                "device_id": "0",
                "use_tf32": str(int(options.precision == "tf32")),
                "prefer_nhwc": str(int(self._settings.get("layout") == "nhwc")),
                "cudnn_conv_algo_search": self._settings.get("plans", "exhaustive").upper(),
            }
            self._require_cuda()

    def open(
        self, model: bytes, *, plan_memory: bool = False, captured: bool = False, prefer_nhwc: bool = False
    ) -> ort.InferenceSession:
        """Return a session that runs every node of the model on this device.

        Raise RuntimeError (on CUDA ONNX Runtime's own Fail) if a node would run elsewhere.

        plan_memory: ONNX Runtime's default. The second run at a batch size then lays out all tensors in one new block,
        and the memory of the first run is kept. With it, a training step of the deep network held 2.85 GB instead of
        1.5 GB, and no network was more than 3% faster.
        captured: whether runs with a `gpu_graph_id` become CUDA graphs (see `capture.py`). Without effect on the CPU.
        prefer_nhwc: whether convolutions and pooling use the layout NHWC, whatever the settings say. Without effect on
        the CPU.
        """
        settings = ort.SessionOptions()
        settings.intra_op_num_threads = self._threads
        settings.inter_op_num_threads = 1
        settings.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
        settings.enable_mem_pattern = plan_memory or self._settings.get("memory") == "planned"
        settings.enable_cpu_mem_arena = self._settings.get("memory") != "no arena"
        settings.log_severity_level = LOG_WARNINGS
        entries = {
            "session.record_ep_graph_assignment_info": "1",
            "session.intra_op.allow_spinning": "0" if self._settings.get("idle") == "sleep" else "1",
        }
        if self._settings.get("denormals") == "flushed":
            entries["session.set_denormal_as_zero"] = "1"
        if self.device != "cpu":
            entries["session.disable_cpu_ep_fallback"] = "1"
        for entry in entries.items():
            settings.add_session_config_entry(*entry)
        provider_options = dict(self._provider_options)
        if captured and self.device == "cuda":
            provider_options["enable_cuda_graph"] = "1"
        if prefer_nhwc and self.device == "cuda":
            provider_options["prefer_nhwc"] = "1"
        session = ort.InferenceSession(
            model,
            settings,
            providers=[(self._provider, provider_options)],
            enable_fallback=0,
            disabled_optimizers=[UNSAFE_OPTIMIZER],
        )
        if (found := nodes_by_provider(session)).keys() != {self._provider}:
            raise RuntimeError(f"All nodes must run on {self._provider}, but they were assigned to {sorted(found)}.")
        return session

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> ort.OrtValue:
        """Return an uninitialized tensor on the device."""
        return ort.OrtValue.ortvalue_from_shape_and_type(shape, dtype.type, self.device)

    def device_name(self) -> str:
        """Return the GPU's name as its driver reports it. On the CPU, return the instruction set architecture."""
        if self.device == "cpu":
            return f"CPU, {os.uname().machine}"
        driver = ctypes.CDLL("libcuda.so.1")
        device, name = ctypes.c_int(), ctypes.create_string_buffer(256)
        failed = driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), 0)
        if failed or driver.cuDeviceGetName(name, len(name), device):
            raise RuntimeError("The CUDA driver does not report the name of device 0.")
        return name.value.decode()

    def _require_cuda(self) -> None:
        """Raise DeviceUnavailable if the package has no CUDA, or cannot run a node with it."""
        if self._provider not in ort.get_available_providers():
            raise DeviceUnavailable(f"onnxruntime {ort.__version__} is built without CUDA; install onnxruntime-gpu.")
        ort.preload_dlls()  # CUDA and cuDNN from their wheels
        cuda_libraries.load_from_wheels("libnvrtc-builtins.so.*")  # NVRTC 13.0 does not find it in its own folder
        try:
            ctypes.CDLL("libcuda.so.1")  # ONNX Runtime names this cause only in the log
        except OSError as error:
            raise DeviceUnavailable(f"ONNX Runtime cannot use CUDA here: {error}") from error
        graph = Graph("matrix product")
        left, right = (graph.input(name, np.float32, (8, 8)) for name in ("left", "right"))
        graph.output(graph.node("MatMul", left, right), np.float32, (8, 8))
        try:
            self.open(graph.serialize())
        except SESSION_ERRORS as error:
            raise DeviceUnavailable(f"ONNX Runtime cannot use CUDA here: {error}") from error


def layout(session: ort.InferenceSession) -> Literal["NCHW", "NHWC"]:
    """Return the layout of the feature maps. ONNX Runtime moves the operators to another domain for NHWC."""
    nodes = (node for part in session.get_provider_graph_assignment_info() for node in part.get_nodes())
    return "NHWC" if any(node.domain == NHWC_DOMAIN for node in nodes) else "NCHW"


def nodes_by_provider(session: ort.InferenceSession) -> dict[str, int]:
    """Return the number of graph nodes that were assigned to each execution provider, before any were fused."""
    counts: Counter[str] = Counter()
    for part in session.get_provider_graph_assignment_info():
        counts[part.ep_name] += len(part.get_nodes())
    return dict(counts)
