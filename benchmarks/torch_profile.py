"""In PyTorch's environment: where a training step on a batch in memory spends its time, by `torch.profiler`.

python -m benchmarks.torch_profile SCENARIO --threads 2 --precision fp32 --settings '{"optimizer": "fused"}'
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
import sys
import time
from collections.abc import Callable, Collection
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks import side
from scenarios import catalog, weights
from scenarios.adapter import Options
from scenarios.frameworks.torch.adapter import ADAPTER
from scenarios.measuring.measure import time_by_turns

STEPS, SHOWN = 20, 10
STRETCH_S, SECONDS = 0.1, 5.0
NEEDED = {  # what no rearrangement of a step does without: products, and the optimizer where it is one kernel
    "aten::addmm",
    "aten::addmm_",
    "aten::convolution",
    "aten::convolution_backward",
    "aten::mm",
    "aten::_fused_adam_",
    "aten::_fused_sgd_",
    "mkldnn::_linear_pointwise",
}
CASTS = {"aten::_to_copy"}  # conversions of dtype: autocast's of weights and activations, of gradients and logits back


def main() -> None:
    """Print one object: `step_ms`; `needed_ms`, of the step's NEEDED operators alone, and `cast_ms`, of these and its
    CASTS, both by turns with it; `profiled_ms`, of a step while it was profiled; `kernels_ms`, what of that takes
    longest by itself."""
    parser = argparse.ArgumentParser()
    parser.add_argument("scenario", choices=list(catalog.load()))
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--precision", required=True)
    parser.add_argument("--settings", type=json.loads, required=True)
    asked = parser.parse_args()
    how = Options(threads=asked.threads, lane="tuned", precision=asked.precision, settings=asked.settings)
    scenario = catalog.load()[asked.scenario][""]

    def made() -> Callable[[int], None]:
        model = ADAPTER(how).build(scenario, weights.initial_weights(scenario, 0))
        work = model.resident_steps(*side.random_set(scenario.image, scenario.batch))
        work(STEPS)
        return work

    work, replayed = made(), made()  # a net of its own: done again, updates lead it nowhere
    needed, cast = Replay(NEEDED), Replay(NEEDED | CASTS)
    with needed, cast:
        replayed(1)
    if not needed.calls:
        sys.exit(f"None of {', '.join(sorted(NEEDED))} was called: PyTorch has other names for them.")
    turns = time_by_turns([work, needed.again, cast.again], STRETCH_S, SECONDS)
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        began = time.perf_counter()
        work(STEPS)
        profiled = (time.perf_counter() - began) / STEPS
    found: list[Any] = sorted(seen.key_averages(), key=lambda event: -event.self_cpu_time_total)[:SHOWN]
    kernels = {event.key: round(event.self_cpu_time_total / 1e3 / STEPS, 3) for event in found}
    times = [*map(statistics.median, turns), profiled]
    names = ("step_ms", "needed_ms", "cast_ms", "profiled_ms")
    found_ms = {name: round(1e3 * each, 3) for name, each in zip(names, times, strict=True)}
    json.dump({**found_ms, "kernels_ms": kernels}, sys.stdout)


class Replay(TorchDispatchMode):  # type: ignore[misc]
    """Notes calls of some operators while it is entered, and what they work on, which stays in memory."""

    def __init__(self, names: Collection[str]) -> None:
        super().__init__()
        self._names = names
        self.calls: list[Callable[[], object]] = []

    def __torch_dispatch__(self, operator: Any, _: object, arguments: Any = (), named: Any = None) -> Any:
        """What PyTorch calls for each operator, below autograd."""
        call = functools.partial(operator, *arguments, **(named or {}))
        if operator.name().split(".")[0] in self._names:
            self.calls.append(call)
        return call()

    def again(self, times: int) -> None:
        """Do what was noted, in the same order, on the same tensors."""
        with torch.no_grad():
            for _ in range(times):
                for call in self.calls:
                    call()


if __name__ == "__main__":
    main()
