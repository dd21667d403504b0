"""The kit's side: a scenario trained by the worker's own path, adapter and meter included.

python -m benchmarks.kit_side SCENARIO --framework torch --threads 2 --images 12800

Scenarios of photos have their synthetic set, whatever --images says.
"""

from __future__ import annotations

import importlib
import itertools
import json
import math
import tempfile
from pathlib import Path
from typing import Literal

from benchmarks import side
from scenarios import catalog, weights
from scenarios import data as data_sets
from scenarios.adapter import Adapter, Arrays, Options, TrainSet
from scenarios.contract.request import Budget
from scenarios.measuring.measure import WindowMeter
from scenarios.spec import DATASETS, Scenario

SEED = 0


def main() -> None:
    """Build the model and train epochs of it as they are asked for."""
    parser = side.parser(catalog.load())
    parser.add_argument("--framework", required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--settings", type=json.loads, default={}, help="of the tuned lane; default: the stock lane")
    options = parser.parse_args()
    scenario = catalog.load()[options.scenario][""]
    lane: Literal["stock", "tuned"] = "tuned" if options.settings else "stock"
    how = Options(threads=options.threads, seed=SEED, lane=lane, precision=options.precision, settings=options.settings)
    with tempfile.TemporaryDirectory() as scratch:
        data = training_set(scenario, options.images, Path(scratch))
        side.serve({side.COMMAND: prepare(scenario, options.framework, how, data)})


def prepare(scenario: Scenario, framework: str, how: Options, data: TrainSet) -> side.Loop:
    """The loop over a set."""
    adapter: Adapter = importlib.import_module(f"scenarios.frameworks.{framework}").ADAPTER(how)
    initial = weights.initial_weights(scenario, SEED)
    model = adapter.build(scenario, initial)
    steps = math.ceil(len(data) / scenario.batch)
    meter = WindowMeter(Budget(epochs=1), steps)  # whole epochs; how many, the driver says
    epochs = itertools.count()
    return side.Loop(
        sum(values.size for values in initial.values()),
        len(data),
        lambda: model.load(initial),
        lambda: model.train_epoch(data, next(epochs), meter),
    )


def training_set(scenario: Scenario, images: int, scratch: Path) -> TrainSet:
    """Random arrays, or the synthetic photos, written to `scratch`."""
    if DATASETS[scenario.dataset].shape:
        return Arrays(*side.random_set(scenario.image, images))
    return data_sets.load(scenario, "synthetic", None, scratch, test_images=1).train


if __name__ == "__main__":
    main()
