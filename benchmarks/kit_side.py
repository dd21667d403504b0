"""The kit's side: a scenario trained by the worker's own path, adapter and meter included.

python -m benchmarks.kit_side SCENARIO --framework torch --threads 2 --images 19200
"""

from __future__ import annotations

import importlib
import itertools
import math

from benchmarks import side
from scenarios import catalog, weights
from scenarios.contract import Budget
from scenarios.frameworks.base import Adapter, Arrays, Options
from scenarios.measure import WindowMeter

SEED = 0


def main() -> None:
    """Build the model and train epochs of it as they are asked for."""
    parser = side.parser(catalog.load())
    parser.add_argument("--framework", required=True)
    parser.add_argument("--threads", type=int, required=True)
    options = parser.parse_args()
    made = prepare(options.scenario, options.framework, options.threads, options.images)
    side.serve({side.COMMAND: made})


def prepare(name: str, framework: str, threads: int, images: int) -> side.Loop:
    """The loop over so many random images of a scenario."""
    scenario = catalog.load()[name][""]
    adapters = importlib.import_module(f"scenarios.frameworks.{framework}")
    adapter: Adapter = adapters.ADAPTER(Options(threads=threads, seed=SEED))
    initial = weights.initial_weights(scenario, SEED)
    model = adapter.build(scenario, initial)
    data = Arrays(*side.random_set(scenario.image, images))
    steps = math.ceil(len(data) / scenario.batch)
    meter = WindowMeter(Budget(epochs=1), steps)  # whole epochs; how many, the driver says
    epochs = itertools.count()
    return side.Loop(
        sum(values.size for values in initial.values()),
        len(data),
        lambda: model.load(initial),
        lambda: model.train_epoch(data, next(epochs), meter),
    )


if __name__ == "__main__":
    main()
