"""PyTorch's adapter: configuration of the process, versions, and the choice of the lane's model."""

import importlib.metadata
import importlib.util
import platform
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Literal

import cv2
import numpy as np
import torch

from scenarios.adapter import DeviceUnavailable, Images, KernelName, Options, Photos, require_offered
from scenarios.contract.evidence import BuildInfo
from scenarios.frameworks import cuda_libraries
from scenarios.frameworks.torch import compilers, kernels, model, settings, tuned
from scenarios.frameworks.torch.photos import MAX_WORKERS, photo_loader
from scenarios.spec import Scenario
from scenarios.weights import Weights

EVALUATION_BATCH = 256
FLAGS = ("BLAS_INFO", "USE_CUDA", "USE_CUDNN", "USE_MKL", "USE_MKLDNN", "USE_OPENMP")  # of all that PyTorch reports


class TorchAdapter:
    """Implements `scenarios.adapter.Adapter`."""

    name: ClassVar[str] = "torch"
    optimizer_form: ClassVar[Literal["keras", "torch"]] = "torch"

    likely: ClassVar[Mapping[str, Sequence[str]]] = settings.LIKELY
    axes = staticmethod(settings.offered)

    def __init__(self, options: Options) -> None:
        if options.device == "cuda" and not torch.cuda.is_available():
            raise DeviceUnavailable(f"PyTorch {torch.__version__} sees no CUDA device: {cuda_failure()}")
        torch.set_num_threads(options.intra_op_threads)
        if torch.get_num_interop_threads() != 1:  # can be set only once in a process
            torch.set_num_interop_threads(1)
        set_float32_rounding("tf32" if options.precision == "tf32" else "ieee")
        torch.manual_seed(options.seed)
        # cuDNN measures its kernels at the first computation of each shape, instead of guessing the fastest one.
        torch.backends.cudnn.benchmark = options.settings.get("convolutions") == "benchmarked"
        torch.set_flush_denormal(options.settings.get("denormals") == "flushed")  # threads inherit it when they start
        self._options = options

    def versions(self) -> dict[str, str]:
        onednn = re.search(r"(?:MKL-DNN|oneDNN) v([\d.]+)", torch.__config__.show())
        exporters = [name for name in compilers.EXPORT_MODULES if importlib.util.find_spec(name)]
        versions = {
            "python": platform.python_version(),
            "torch": str(torch.__version__),
            "onednn": onednn and onednn[1],
            "opencv": cv2.__version__,
            **cuda_libraries.loaded_versions(),
            **{name: importlib.metadata.version(name) for name in ("numpy", "pillow", *exporters)},
        }
        return {name: version for name, version in versions.items() if version}

    def build_info(self) -> BuildInfo:
        gpus = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
        flags = dict(re.findall(rf"\b({'|'.join(FLAGS)})=([^,\s]+)", torch.__config__.show()))
        return BuildInfo(["cpu", *gpus], {"torch.version.cuda": str(torch.version.cuda), **flags})

    def build(self, scenario: Scenario, weights: Weights) -> model.TorchModel:
        require_offered(self.axes, self._options, scenario)
        lane_model = tuned.TunedModel if self._options.lane == "tuned" else model.TorchModel
        return lane_model(self._options, scenario, weights)

    def kernel(self, name: KernelName, size: int) -> Callable[[int], None]:
        # The operands of matmul and convolution are bfloat16 at precision bf16, as in training.
        dtype = torch.bfloat16 if self._options.precision == "bf16" else torch.float32
        return kernels.make_kernel(name, size, torch.device(self._options.device), dtype)

    def read_photos(self, photos: Photos) -> Images:
        loader = photo_loader(replace(photos, augment=None), EVALUATION_BATCH, min(MAX_WORKERS, self._options.threads))
        return np.ascontiguousarray(np.concatenate([images.permute(0, 2, 3, 1).numpy() for images, _ in loader]))


ADAPTER = TorchAdapter


def cuda_failure() -> str:
    """Return PyTorch's own explanation of why there is no CUDA device."""
    try:
        torch.cuda.init()
    except (AssertionError, RuntimeError) as error:
        return str(error)
    return "torch.cuda.is_available() is False"


def set_float32_rounding(mode: Literal["ieee", "tf32"]) -> None:
    """Set how the GPU rounds float32 products in this process. oneDNN on the CPU always computes in IEEE float32.

    Since 2.9 PyTorch has one switch per library. Parts of it still read the older booleans, and raise an error if these
    disagree with the switches.
    """
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = mode == "tf32"
    if hasattr(torch.backends.cuda.matmul, "fp32_precision"):
        for switch in (torch.backends, torch.backends.cuda.matmul, torch.backends.cudnn.conv, torch.backends.cudnn.rnn):
            switch.fp32_precision = mode
        for switch in (torch.backends.mkldnn.matmul, torch.backends.mkldnn.conv, torch.backends.mkldnn.rnn):
            switch.fp32_precision = "ieee"
