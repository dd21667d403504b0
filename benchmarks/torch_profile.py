"""In PyTorch's environment: where a training step on a batch in memory spends its time, by `torch.profiler`.

python -m benchmarks.torch_profile SCENARIO --threads 2 --precision fp32 --settings '{"optimizer": "fused"}'
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from typing import Any

from torch.profiler import ProfilerActivity, profile

from benchmarks import side
from scenarios import catalog, weights
from scenarios.frameworks.base import Options
from scenarios.frameworks.torch import ADAPTER

STEPS, ROUNDS, SHOWN = 20, 20, 10


def main() -> None:
    """Print one object: `step_ms`, the median of rounds; `profiled_ms`, of a step while it was profiled; `kernels_ms`,
    what of that takes longest by itself."""
    parser = argparse.ArgumentParser()
    parser.add_argument("scenario", choices=list(catalog.load()))
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--precision", required=True)
    parser.add_argument("--settings", type=json.loads, required=True)
    asked = parser.parse_args()
    how = Options(threads=asked.threads, lane="tuned", precision=asked.precision, settings=asked.settings)
    scenario = catalog.load()[asked.scenario][""]
    model = ADAPTER(how).build(scenario, weights.initial_weights(scenario, 0))
    work = model.resident_steps(*side.random_set(scenario.image, scenario.batch))
    work(STEPS)
    rounds = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        work(STEPS)
        rounds.append((time.perf_counter() - began) / STEPS)
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        began = time.perf_counter()
        work(STEPS)
        profiled = (time.perf_counter() - began) / STEPS
    found: list[Any] = sorted(seen.key_averages(), key=lambda event: -event.self_cpu_time_total)[:SHOWN]
    kernels = {event.key: round(event.self_cpu_time_total / 1e3 / STEPS, 3) for event in found}
    steps = {"step_ms": statistics.median(rounds), "profiled_ms": profiled}
    json.dump({**{name: round(1e3 * each, 3) for name, each in steps.items()}, "kernels_ms": kernels}, sys.stdout)


if __name__ == "__main__":
    main()
