"""Run the kit's PyTorch loop and the plain loop in one process.

    python -m benchmarks.torch_pair SCENARIO --images 320 --threads 2 --first kit

In separate processes, two copies of the same loop differ by several percent for as long as they live, because of their
memory layout (T. Mytkowicz et al., Producing wrong data without doing anything obviously wrong, ASPLOS 2009). In one
process, the loop that was built first may still have an advantage. Therefore the driver changes `--first` from launch
to launch.
"""

from __future__ import annotations

from benchmarks import kit_side, side, torch_recipes
from scenarios import catalog
from scenarios.adapter import Arrays, Options

FRAMEWORK = "torch"


def main() -> None:
    """Build both loops, then train epochs on request."""
    parser = side.parser(torch_recipes.RECIPES)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--first", choices=("kit", "bare"), required=True, help="the loop that is built first")
    args = parser.parse_args()
    scenario = catalog.load()[args.scenario][""]
    data = Arrays(*side.random_set(scenario.image, args.images))
    adapter_options = Options(threads=args.threads, seed=kit_side.SEED)
    builders = {
        "kit": lambda: kit_side.prepare(scenario, FRAMEWORK, adapter_options, data),
        "bare": lambda: torch_recipes.prepare(args.scenario, args.images),
    }
    ordered = sorted(builders, key=lambda name: name != args.first)
    side.serve({name: builders[name]() for name in ordered})


if __name__ == "__main__":
    main()
