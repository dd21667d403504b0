"""The settings that the tuner may change in TensorFlow."""

from scenarios.adapter import Axes, Options
from scenarios.contract import allocators
from scenarios.spec import DATASETS, Scenario

LIKELY = {
    allocators.AXIS: allocators.LIKELY,
    "loop": ("compiled", "graph"),
    "feed": ("cached",),
    "optimizer": ("fused",),
}


def axes(options: Options, scenario: Scenario) -> Axes:
    """See `Adapter.axes`. "compiled" means compiled by XLA.

    A compiled loop contains the network, so `network` then changes nothing, and a loop in the graph keeps the set on
    the device, so `feed` changes nothing. Loops are compiled on CUDA only: inside a loop on the CPU, XLA trained the
    convolutions of `mnist-cnn` 12 times slower than outside. Photos have no loop `graph`: they are bytes, and an
    operation without a kernel for bytes on CUDA would silently run on the CPU. A loop over photos on the device has no
    workers, so an explicit number of them excludes it.
    """
    on_cpu = options.device == "cpu"
    arrays = DATASETS[scenario.dataset].shape is not None
    compilers = ["kernels", "compiled"] if on_cpu else ["compiled", "kernels"]
    training = {  # The largest gains come first: there may not be time for all.
        "loop": ["fit", *([] if on_cpu or options.workers else ["compiled"]), *(["graph"] if arrays else [])],
        "feed": [] if arrays else ["tf.data", "cached"],
        "optimizer": ["keras", "fused"],
        "network": compilers,
        # After the likely one the other allocators differ little, and each one imports TensorFlow again.
        **({allocators.AXIS: list(allocators.offered())} if on_cpu else {}),
        "threads": options.thread_counts,
    }
    return {"training": training, "latency": {"latency": compilers}, "throughput": {"throughput": compilers}}
