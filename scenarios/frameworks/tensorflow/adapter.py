"""TensorFlow through Keras: the process configuration and the versions.

`model.py` is the stock lane, written like a Keras tutorial. The tuned lane adds `tuned.py`, `graph_loop.py` and
`fused_optimizers.py`, and `settings.py` lists its settings. `kernels.py` finds out what really ran.
"""

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Literal

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")  # keep warnings, drop the list of what TensorFlow was built with
os.environ["KERAS_BACKEND"] = "tensorflow"

import cv2
import numpy as np
import tensorflow as tf
from tensorflow import keras

from scenarios.adapter import DeviceUnavailable, Images, KernelName, Options, Photos, require_offered
from scenarios.contract.evidence import BuildInfo
from scenarios.frameworks import cuda_libraries
from scenarios.frameworks.tensorflow import kernels, pipelines, settings
from scenarios.frameworks.tensorflow.graph_loop import GraphLoopModel
from scenarios.frameworks.tensorflow.model import KerasModel
from scenarios.frameworks.tensorflow.tuned import TunedModel
from scenarios.spec import Scenario
from scenarios.weights import Weights

# Keras' loader also runs on these threads and should not wait for a step, so one is too few. More would compete with
# the intra-op threads, which already use all cores.
INTER_OP_THREADS = 2
COMPILER = "cpu_compiler"  # a path on the machine that built TensorFlow


class TensorFlowAdapter:
    """Implements `scenarios.adapter.Adapter`."""

    name: ClassVar[str] = "tensorflow"
    optimizer_form: ClassVar[Literal["keras", "torch"]] = "keras"

    likely: ClassVar[Mapping[str, Sequence[str]]] = settings.LIKELY
    axes = staticmethod(settings.axes)

    def __init__(self, options: Options) -> None:
        if options.device == "cuda":
            # TensorFlow registers no GPU unless it can open cuSOLVER. In release 2.21, the search path of the library
            # that opens it (libtensorflow_framework.so.2) lacks the folder of its wheel.
            cuda_libraries.load_from_wheels("libcusolver.so.*")
        gpus = tf.config.list_physical_devices("GPU")
        if options.device == "cuda" and not gpus:
            built = "was built with CUDA" if tf.test.is_built_with_cuda() else "was built without CUDA"
            raise DeviceUnavailable(f"TensorFlow {tf.__version__} sees no GPU; it {built}.")
        visible = gpus[:1] if options.device == "cuda" else []
        # RuntimeError if TensorFlow already runs with other GPUs in this process: one process serves one device.
        tf.config.set_visible_devices(visible, "GPU")
        for gpu in visible:
            tf.config.experimental.set_memory_growth(gpu, True)  # allocate memory as it is needed
        set_threads(options.intra_op_threads)
        tf.config.experimental.enable_tensor_float_32_execution(options.precision == "tf32")
        keras.config.set_image_data_format("channels_last")
        keras.config.set_floatx("float32")
        keras.config.set_epsilon(1e-7)
        self._options = options

    def versions(self) -> dict[str, str]:
        libraries = cuda_libraries.loaded_versions()
        if version := kernels.onednn_version():
            libraries["onednn"] = version
        return {
            "python": platform.python_version(),
            "tensorflow": str(tf.__version__),
            "keras": str(keras.__version__),
            "numpy": np.__version__,
            "opencv": cv2.__version__,
            **libraries,
        }

    def build_info(self) -> BuildInfo:
        flags = {name: str(value) for name, value in tf.sysconfig.get_build_info().items() if name != COMPILER}
        return BuildInfo([device.name for device in tf.config.list_physical_devices()], flags)

    def build(self, scenario: Scenario, weights: Weights) -> KerasModel:
        require_offered(self.axes, self._options, scenario)
        lane = TunedModel if self._options.lane == "tuned" else KerasModel
        model = GraphLoopModel if self._options.settings.get("loop", "fit") != "fit" else lane
        return model(self._options, scenario, weights)

    def kernel(self, name: KernelName, size: int) -> Callable[[int], None]:
        # The operands of matmul and convolution are bfloat16 at precision bf16, as in training.
        dtype = tf.bfloat16 if self._options.precision == "bf16" else tf.float32
        return kernels.make_kernel(name, size, "GPU:0" if self._options.device == "cuda" else "CPU:0", dtype)

    def read_photos(self, photos: Photos) -> Images:
        return pipelines.read_photos(photos, self._options.threads)


ADAPTER = TensorFlowAdapter


def set_threads(threads: int) -> None:
    """Set the thread counts. Raise RuntimeError if TensorFlow already runs with others."""
    try:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(INTER_OP_THREADS)
    except RuntimeError as error:
        running = tf.config.threading.get_intra_op_parallelism_threads()
        raise RuntimeError(
            f"TensorFlow already runs with {running} intra-op threads in this process and cannot change to {threads}; "
            "start a new process."
        ) from error
