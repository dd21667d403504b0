"""The settings that the tuner may change in ONNX Runtime. `Runtime.open` applies all of them except for `feed`, which
`model.py` applies, and the memory allocator, which the launcher chooses."""

from scenarios.adapter import Axes, Options
from scenarios.contract import allocators
from scenarios.spec import DATASETS, Scenario

LIKELY = {allocators.AXIS: allocators.LIKELY, "feed": ("cached",)}


def axes(options: Options, scenario: Scenario) -> Axes:
    """See `Adapter.axes`."""
    memory = ["as needed", "planned"]
    feed = [] if DATASETS[scenario.dataset].shape else ["decoded", "cached"]
    if options.device != "cpu":
        return {"training": {"memory": memory, "feed": feed}}
    training = {
        allocators.AXIS: list(allocators.offered()),
        "memory": [*memory, "no arena"],
        "idle": ["spin", "sleep"],
        "denormals": ["kept", "flushed"],
        "feed": feed,
        "threads": options.thread_counts,
    }
    return {"training": training}
