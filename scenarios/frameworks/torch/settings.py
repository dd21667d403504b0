"""The settings that the tuner may try in PyTorch."""

import importlib.util
import shutil

from scenarios.adapter import Axes, Options
from scenarios.contract import allocators
from scenarios.frameworks.torch import compilers, layers
from scenarios.spec import DATASETS, Adadelta, Conv, Dropout, MaxPool, Scenario, Sgd

LIKELY = {
    allocators.AXIS: allocators.LIKELY,
    "kernels": ("stepped backward",),
    "layout": ("blocked", "nhwc"),
    "convolutions": ("benchmarked",),
    "optimizer": ("fused",),
    "relu": ("after pooling",),
    "dropout": ("bytes",),
    "feed": ("cached", "resident"),
    "step": ("captured",),
}


def offered(options: Options, scenario: Scenario) -> Axes:
    """Return the settings of `Adapter.axes`."""
    on_cpu = options.device == "cpu"
    compiled = ["compiled"] if shutil.which("g++") or not on_cpu else []
    has_planes = any(isinstance(layer, Conv | MaxPool) for layer in scenario.layers)
    has_convolutions = any(isinstance(layer, Conv) for layer in scenario.layers)
    has_pooling = any(isinstance(layer, MaxPool) for layer in scenario.layers)
    has_blocked = (
        on_cpu and layers.Blocked.offered(options.precision) and isinstance(scenario.layers[0], Conv | MaxPool)
    )
    default, other = ("loop", "foreach") if on_cpu else ("foreach", "loop")
    has_onednn = on_cpu and options.precision == "fp32" and layers.has_onednn_linear()  # oneDNN computes bf16 anyway
    rates = [layer.rate for layer in scenario.layers if isinstance(layer, Dropout)]
    has_bytes = on_cpu and rates and all(map(layers.ByteDropout.supports, rates))
    is_photos = not DATASETS[scenario.dataset].shape
    own_feeds = ["resident", "pinned"] if not on_cpu else [*(["cached"] if is_photos else []), "resident"]
    if is_photos and options.workers:
        own_feeds.remove("resident")  # it has no workers
    # The largest gains come first, because time may not suffice for all. The slowest to try comes last.
    training = {
        **({allocators.AXIS: list(allocators.offered())} if on_cpu else {}),
        "kernels": ["stepped apart", "stepped backward"] if isinstance(scenario.optimizer, Sgd) else [],
        "dense": ["linear", "onednn"] if has_onednn else [],
        "layout": ["nchw", "nhwc", *(["blocked"] if has_blocked else [])] if has_planes else [],
        "convolutions": ["heuristic", "benchmarked"] if not on_cpu and has_convolutions else [],
        # PyTorch has no fused Adadelta.
        "optimizer": [default, *([] if isinstance(scenario.optimizer, Adadelta) else ["fused"]), other],
        "relu": ["apart", *(["after pooling"] if has_pooling else []), "in place"],
        "dropout": ["doubles", "bytes"] if has_bytes else [],
        "feed": ["loader", *own_feeds],
        **({"denormals": ["kept", "flushed"]} if on_cpu else {"step": ["launched", "captured"]}),
        "threads": options.thread_counts if on_cpu else [],
        "network": ["eager", *compiled],
    }
    # Only the CPU package of ONNX Runtime, and only float32: its CUDA package brings libraries that PyTorch does not
    # use.
    exports = on_cpu and options.precision == "fp32" and all(map(importlib.util.find_spec, compilers.EXPORT_MODULES))
    inference = ["eager", "frozen", *(["exported"] if exports else []), *compiled]
    return {"training": training, "latency": {"latency": inference}, "throughput": {"throughput": inference}}
