"""The settings that the tuner may change in ONNX Runtime.

`Runtime.open` applies all of them except for `step`, `feed`, `latency` and `throughput`, which `model.py` applies, and
the memory allocator, which the launcher chooses.
"""

from scenarios.adapter import Axes, Options
from scenarios.contract import allocators
from scenarios.spec import DATASETS, Conv, Dropout, MaxPool, Scenario

MAX_RECORDED_CONCAT = 32  # inputs of a Concat in a CUDA graph (ONNX Runtime's cuda/tensor/concat.cc)

LIKELY = {allocators.AXIS: allocators.LIKELY, "step": ("captured",), "feed": ("cached",)}


def axes(options: Options, scenario: Scenario) -> Axes:
    """See `Adapter.axes`."""
    memory = ["as needed", "planned"]
    feed = [] if DATASETS[scenario.dataset].shape else ["decoded", "cached"]
    if options.device == "cpu":
        training = {
            allocators.AXIS: list(allocators.offered()),
            "memory": [*memory, "no arena"],
            "idle": ["spin", "sleep"],
            "denormals": ["kept", "flushed"],
            "feed": feed,
            "threads": options.thread_counts,
        }
        return {"training": training}
    runs = ["launched", "captured"]
    # A replay would repeat the masks of Dropout: see `CapturedTrainer`. Concat joins the taps of a kernel.
    draws_masks = any(isinstance(layer, Dropout) and layer.rate > 0 for layer in scenario.layers)
    kernels = [layer.kernel for layer in scenario.layers if isinstance(layer, Conv)]
    can_replay = not draws_masks and all(kernel**2 <= MAX_RECORDED_CONCAT for kernel in kernels)
    has_planes = any(isinstance(layer, Conv | MaxPool) for layer in scenario.layers)
    training = {
        "step": runs if can_replay else [],
        "feed": feed,
        # ONNX Runtime's names. It measures no plans: "exhaustive", the default, is cuDNN's heuristic B, the other is A
        # (cuda/nn/conv.cc).
        "plans": ["exhaustive", "heuristic"] if kernels else [],
        "layout": ["nchw", "nhwc"] if has_planes else [],
        "memory": memory,
    }
    return {"training": training, "latency": {"latency": runs}, "throughput": {"throughput": runs}}
