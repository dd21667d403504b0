"""Train a scenario in the worker's own way, with adapter and meter: the kit's side of a comparison.

python -m benchmarks.kit_side SCENARIO --framework torch --threads 2 --images 12800

A scenario with photos uses its synthetic set, whatever --images says.
"""

from __future__ import annotations

import itertools
import json
import math
import tempfile
from pathlib import Path
from typing import Literal

from benchmarks import side
from scenarios import catalog, weights
from scenarios import data as data_sets
from scenarios.adapter import Arrays, Options, TrainSet
from scenarios.contract.request import Budget
from scenarios.measuring.window_meter import WindowMeter
from scenarios.prepare import load_adapter
from scenarios.spec import DATASETS, Scenario

SEED = 0


def main() -> None:
    """Build the model, then train epochs on request."""
    parser = side.parser(catalog.load())
    parser.add_argument("--framework", required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--precision", default="fp32")
    parser.add_argument(
        "--settings", type=json.loads, default={}, help="JSON settings of the tuned lane; default: the stock lane"
    )
    args = parser.parse_args()
    scenario = catalog.load()[args.scenario][""]
    lane: Literal["stock", "tuned"] = "tuned" if args.settings else "stock"
    options = Options(threads=args.threads, seed=SEED, lane=lane, precision=args.precision, settings=args.settings)
    with tempfile.TemporaryDirectory() as scratch:
        data = training_set(scenario, args.images, Path(scratch))
        side.serve({side.COMMAND: prepare(scenario, args.framework, options, data)})


def prepare(scenario: Scenario, framework: str, options: Options, data: TrainSet) -> side.Loop:
    """Return the loop over a training set."""
    adapter = load_adapter(framework)(options)
    initial = weights.initial_weights(scenario, SEED)
    model = adapter.build(scenario, initial)
    steps = math.ceil(len(data) / scenario.batch)
    meter = WindowMeter(Budget(epochs=1), steps)  # whole epochs; the driver decides how many
    epochs = itertools.count()
    return side.Loop(
        sum(values.size for values in initial.values()),
        len(data),
        lambda: model.load(initial),
        lambda: model.train_epoch(data, next(epochs), meter),
    )


def training_set(scenario: Scenario, images: int, scratch: Path) -> TrainSet:
    """Return random arrays, or synthetic photos that are written to `scratch`."""
    if DATASETS[scenario.dataset].shape:
        return Arrays(*side.random_set(scenario.image, images))
    return data_sets.load(scenario, "synthetic", None, scratch, test_images=1).train


if __name__ == "__main__":
    main()
