"""What the tuner may change in ONNX Runtime."""

from __future__ import annotations

from scenarios.adapter import Axes, Options
from scenarios.contract import allocators
from scenarios.spec import DATASETS, Scenario

LIKELY = {allocators.AXIS: allocators.LIKELY, "feed": ("cached",)}


def offered(options: Options, scenario: Scenario) -> Axes:
    """See `base.Adapter.axes`."""
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
