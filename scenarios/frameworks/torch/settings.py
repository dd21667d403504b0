"""What the tuner may change in PyTorch, and the parts that it changes."""

from __future__ import annotations

import importlib.util
import shutil
from typing import Any

import torch
import torch._dynamo  # the first optimizer would import it, a second later, in each candidate of a search
from torch import nn

from scenarios.adapter import Axes, Options
from scenarios.contract import allocators
from scenarios.frameworks.torch.layers import Blocked, ByteDropout, Network, has_onednn_product
from scenarios.spec import DATASETS, Adadelta, Conv, Dropout, MaxPool, Scenario, Sgd

GRAPHS = 64  # a launch needs about ten: for each batch size, in training and for prediction; PyTorch's own limit is 8
EXPORT_NEEDS = ("onnxruntime", "onnxscript")

LIKELY = {
    allocators.AXIS: allocators.LIKELY,
    "kernels": ("stepped backward",),
    "layout": ("blocked", "nhwc"),
    "optimizer": ("fused",),
    "relu": ("after pooling",),
    "dropout": ("bytes",),
    "feed": ("cached", "resident"),
    "step": ("captured",),
}


def offered(options: Options, scenario: Scenario) -> Axes:
    """See `base.Adapter.axes`."""
    on_cpu = options.device == "cpu"
    compiled = ["compiled"] if shutil.which("g++") or not on_cpu else []
    planes = any(isinstance(layer, Conv | MaxPool) for layer in scenario.layers)
    blocks = on_cpu and Blocked.offered(options.precision) and isinstance(scenario.layers[0], Conv | MaxPool)
    pooled = any(isinstance(layer, MaxPool) for layer in scenario.layers)
    own, other = ("loop", "foreach") if on_cpu else ("foreach", "loop")
    fused = [] if isinstance(scenario.optimizer, Adadelta) else ["fused"]  # PyTorch has none of it
    onednn = on_cpu and options.precision == "fp32" and has_onednn_product()  # bf16 is its work anyway
    rates = [layer.rate for layer in scenario.layers if isinstance(layer, Dropout)]
    bytes_do = on_cpu and rates and all(map(ByteDropout.has, rates))
    training = {  # what gains most first: time may not last for all
        **({allocators.AXIS: list(allocators.offered())} if on_cpu else {}),
        "kernels": ["stepped apart", "stepped backward"] if isinstance(scenario.optimizer, Sgd) else [],
        "dense": ["linear", "onednn"] if onednn else [],
        "layout": ["nchw", "nhwc", *(["blocked"] if blocks else [])] if planes else [],
        "optimizer": [own, *fused, other],
        "relu": ["apart", *(["after pooling"] if pooled else []), "in place"],
        "dropout": ["doubles", "bytes"] if bytes_do else [],
        "feed": ["loader", *([] if DATASETS[scenario.dataset].shape else ["cached"]), "resident"],
        **({"denormals": ["kept", "flushed"]} if on_cpu else {"step": ["launched", "captured"]}),
        "threads": options.thread_counts if on_cpu else [],
        "network": ["eager", *compiled],  # the dearest last
    }
    # ONNX Runtime for the CPU alone: that for CUDA brings libraries which are not PyTorch's. It computes in float32.
    exports = on_cpu and options.precision == "fp32" and all(map(importlib.util.find_spec, EXPORT_NEEDS))
    ways = ["eager", "frozen", *(["exported"] if exports else []), *compiled]
    return {"training": training, "latency": {"latency": ways}, "throughput": {"throughput": ways}}


def compiled(net: Network) -> Network:
    """The network by `torch.compile`, anew for each batch size. More than GRAPHS of them in a process are an error:
    PyTorch would go on without."""
    config = torch._dynamo.config  # noqa: SLF001 - its documented place
    config.fail_on_recompile_limit_hit = True
    config.recompile_limit = GRAPHS
    made: Network = torch.compile(net, dynamic=False)
    return made


def for_inference(net: nn.Module, example: torch.Tensor, how: str, options: Options) -> Network:
    """The network for inference at the example's batch size: by `torch.compile` (`compiled`), by ONNX Runtime
    (`exported`), or traced with its weights as constants and its layers fused (`frozen`). net: in evaluation mode."""
    if how == "compiled":
        return compiled(net)
    if how == "exported":
        from scenarios.frameworks.torch.export import exported

        return exported(net, example, options)
    traced: Any = torch.jit.freeze(torch.jit.trace(net, example, check_trace=False))
    fused: Network = torch.jit.optimize_for_inference(traced)
    return fused
