"""What the tuner may change in TensorFlow."""

from __future__ import annotations

from scenarios.adapter import Axes, Options
from scenarios.contract import allocators
from scenarios.spec import DATASETS, Scenario

LIKELY = {
    allocators.AXIS: allocators.LIKELY,
    "loop": ("graph",),
    "feed": ("cached",),
    "optimizer": ("fused",),
}


def offered(options: Options, scenario: Scenario) -> Axes:
    """See `base.Adapter.axes`. Compiled is compiled by XLA."""
    on_cpu = options.device == "cpu"
    arrays = DATASETS[scenario.dataset].shape is not None
    ways = ["kernels", "compiled"] if on_cpu else ["compiled", "kernels"]
    training = {  # what gains most first: time may not last for all
        "loop": ["fit", "graph"] if arrays else [],
        "feed": [] if arrays else ["tf.data", "cached"],
        "optimizer": ["keras", "fused"],
        "network": ways,
        # After the likely one the others differ little, and each imports TensorFlow anew.
        **({allocators.AXIS: list(allocators.offered())} if on_cpu else {}),
        "threads": options.thread_counts,
    }
    return {"training": training, "latency": {"latency": ways}, "throughput": {"throughput": ways}}
