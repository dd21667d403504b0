"""ONNX Runtime: the process configuration and the versions.

How training works: the stock inference package runs one graph that is a whole training step (forward, loss, backward,
optimizer update). Parameters and optimizer state stay on the device, and the outputs of one step are the inputs of the
next. See docs/decisions/0002.

`network.py` turns a scenario into operations of `layers.py`, and into the two inference graphs. `step_graph.py` adds
the loss, the backward pass and the updates of `optimizers.py`. `graph.py` writes the nodes, `session.py` opens
sessions, `trainer.py` runs the step graph, and `model.py` combines all of them. `settings.py` lists the settings of the
tuned lane, and `capture.py` replays runs as CUDA graphs. `gpu_memory.py` reads the process' GPU memory.
"""

import importlib.metadata
import platform
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Literal

import cv2
import onnxruntime as ort

from scenarios.adapter import Images, KernelName, NotOffered, Options, Photos, require_offered
from scenarios.contract.evidence import BuildInfo
from scenarios.data.photos import read_photos
from scenarios.frameworks import cuda_libraries
from scenarios.frameworks.onnxruntime import settings
from scenarios.frameworks.onnxruntime.kernels import make_kernel
from scenarios.frameworks.onnxruntime.model import OnnxRuntimeModel
from scenarios.frameworks.onnxruntime.session import Runtime
from scenarios.spec import Scenario
from scenarios.weights import Weights


class OnnxRuntimeAdapter:
    """Implements `scenarios.adapter.Adapter`."""

    name: ClassVar[str] = "onnxruntime"
    optimizer_form: ClassVar[Literal["keras", "torch"]] = "keras"

    likely: ClassVar[Mapping[str, Sequence[str]]] = settings.LIKELY
    axes = staticmethod(settings.axes)

    def __init__(self, options: Options) -> None:
        if options.precision == "bf16":
            raise NotOffered("The ONNX Runtime adapter builds its graphs in float32.")
        self._options = options
        self._runtime = Runtime(options)

    def versions(self) -> dict[str, str]:
        # ONNX Runtime is built without oneDNN and has its own CPU kernels. onnx only writes the graphs.
        return {
            "python": platform.python_version(),
            "onnxruntime": ort.__version__,
            "opencv": cv2.__version__,
            **cuda_libraries.loaded_versions(),
            **{name: importlib.metadata.version(name) for name in ("onnx", "numpy", "pillow")},
        }

    def build_info(self) -> BuildInfo:
        # ONNX Runtime lists no devices, but the execution providers that it may use.
        return BuildInfo(
            devices=list(ort.get_available_providers()),
            flags={"get_device": ort.get_device(), "get_build_info": ort.get_build_info()},
        )

    def build(self, scenario: Scenario, weights: Weights) -> OnnxRuntimeModel:
        require_offered(self.axes, self._options, scenario)
        return OnnxRuntimeModel(self._options, self._runtime, scenario, weights)

    def kernel(self, name: KernelName, size: int) -> Callable[[int], None]:
        return make_kernel(self._runtime, name, size)

    def read_photos(self, photos: Photos) -> Images:
        return read_photos(photos, self._options.threads)


ADAPTER = OnnxRuntimeAdapter
