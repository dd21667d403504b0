"""The kit's PyTorch loop and the bare one, both in one process.

    python -m benchmarks.torch_pair SCENARIO --images 320 --threads 2 --first kit

In processes of their own, two runs of one and the same loop differ by several per cent for as long as they live, by
where their memory lies (T. Mytkowicz et al., Producing wrong data without doing anything obviously wrong, ASPLOS 2009).
In one process the loop that was built first may still have such an advantage; so who is first changes from launch to
launch.
"""

from __future__ import annotations

from benchmarks import kit_side, side, torch_recipes
from scenarios import catalog
from scenarios.adapter import Arrays, Options

FRAMEWORK = "torch"


def main() -> None:
    """Build both, then train epochs of the one that is asked for."""
    parser = side.parser(torch_recipes.RECIPES)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--first", choices=("kit", "bare"), required=True, help="what is built first")
    options = parser.parse_args()
    scenario = catalog.load()[options.scenario][""]
    data = Arrays(*side.random_set(scenario.image, options.images))
    how = Options(threads=options.threads, seed=kit_side.SEED)
    makers = {
        "kit": lambda: kit_side.prepare(scenario, FRAMEWORK, how, data),
        "bare": lambda: torch_recipes.prepare(options.scenario, options.images),
    }
    ordered = sorted(makers, key=lambda name: name != options.first)
    side.serve({name: makers[name]() for name in ordered})


if __name__ == "__main__":
    main()
