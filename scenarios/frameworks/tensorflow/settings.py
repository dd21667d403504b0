"""The settings that the tuner may change in TensorFlow."""

from scenarios.adapter import Axes, Options
from scenarios.contract import allocators
from scenarios.spec import DATASETS, Scenario

LIKELY = {
    allocators.AXIS: allocators.LIKELY,
    "loop": ("graph",),
    "feed": ("cached",),
    "optimizer": ("fused",),
}


def axes(options: Options, scenario: Scenario) -> Axes:
    """See `Adapter.axes`. "compiled" means compiled by XLA."""
    on_cpu = options.device == "cpu"
    arrays = DATASETS[scenario.dataset].shape is not None
    compilers = ["kernels", "compiled"] if on_cpu else ["compiled", "kernels"]
    training = {  # The largest gains come first: there may not be time for all.
        "loop": ["fit", "graph"] if arrays else [],
        "feed": [] if arrays else ["tf.data", "cached"],
        "optimizer": ["keras", "fused"],
        "network": compilers,
        # After the likely one the other allocators differ little, and each one imports TensorFlow again.
        **({allocators.AXIS: list(allocators.offered())} if on_cpu else {}),
        "threads": options.thread_counts,
    }
    return {"training": training, "latency": {"latency": compilers}, "throughput": {"throughput": compilers}}
