"""What the kit's training loop costs against the same training as a person would type it, in the same environment.

`python -m benchmarks.overhead` prints one line of JSON a scenario and framework, and one over all scenarios of each;
two of Keras: against a whole `fit` (`overhead`), and against the steps in it alone (`overhead-steps`: before them `fit`
prepares, after them it waits for a timer, which would hide what the kit costs).
"""

from __future__ import annotations

import argparse
import functools
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.pairs import Subject, exit_code, figures, say
from benchmarks.processes import Command, Extent, alone, compare, compare_in_one, on_host
from kit.analysis.intervals import t_interval
from kit.cli.console import show_progress
from kit.engines.local import LocalEngine
from kit.environments.package_sources import Sources
from kit.host.machine import usable_cpus
from kit.model.environment import Environment
from kit.model.progress import Progress
from kit.planning import catalog

BENCH = "overhead"
# What Keras is measured as, of each bench against it: the end of its name, and the options of Keras' side.
OF_KERAS = {"keras": ("", ()), "keras-steps": ("-steps", ("--steps-alone",))}
BARE = {"tensorflow": "benchmarks.keras_recipes", "torch": "benchmarks.torch_recipes"}
TORCH_LOOPS = ("kit", "bare")  # in one process; Keras' `fit` lets nobody in between its epochs
SCENARIOS = ("mnist-cnn", "mnist-cnn-dropout", "cifar-cnn", "cifar-mlp", "fashion-mlp")

Comparison = tuple[Subject, Callable[..., float]]  # and what measures it, given subject, extent and progress


def options(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="benchmarks.overhead", description=__doc__)
    parser.add_argument("--scenario", action="append", choices=SCENARIOS, help="default: all of them")
    parser.add_argument("--framework", action="append", choices=BARE, help="default: both")
    Extent.offer(parser)
    return parser.parse_args(arguments)


def main() -> None:
    """Make the environments, then measure with the machine to ourselves."""
    asked = options()
    engine, frameworks = LocalEngine(Sources.from_environment()), catalog.frameworks()
    with show_progress() as progress:
        names = dict.fromkeys(asked.framework or BARE)
        environments = {name: engine.prepare(frameworks[name], "cpu", progress) for name in names}
        with alone():
            measure(environments, asked, progress)


def measure(environments: Mapping[str, Environment], asked: argparse.Namespace, progress: Progress) -> None:
    """Print a line for each scenario in each environment's framework, and one for all scenarios of a framework."""
    extent = Extent.asked(asked)
    with tempfile.TemporaryDirectory() as home:
        for framework, environment in environments.items():
            medians: dict[str, list[float]] = {}
            side = functools.partial(on_host, environment, Path(home))
            for scenario in dict.fromkeys(asked.scenario or SCENARIOS):
                for subject, compared in comparisons(scenario, framework, asked.images, side):
                    medians.setdefault(subject.bench, []).append(compared(subject, extent=extent, progress=progress))
            for bench, found in medians.items():
                if len(found) > 1:
                    say(Subject(bench, "pooled", framework).line(pooled(found)))


def comparisons(scenario: str, framework: str, images: int, side: Callable[..., Command]) -> Iterator[Comparison]:
    """What is measured against what. side: `on_host` of the framework's environment."""
    work = (scenario, "--images", str(images))
    kits = (*work, "--threads", str(len(usable_cpus())))
    if framework == "torch":
        both = [side("benchmarks.torch_pair", *kits, "--first", first) for first in TORCH_LOOPS]
        yield Subject(BENCH, scenario, framework), functools.partial(compare_in_one, commands=both, names=TORCH_LOOPS)
        return
    ours = side("benchmarks.kit_side", *kits, "--framework", framework)
    for ending, how in OF_KERAS.values():
        baseline = side(BARE[framework], *work, *how)
        yield Subject(BENCH + ending, scenario, framework), functools.partial(compare, ours=ours, baseline=baseline)


def pooled(medians: Sequence[float]) -> dict[str, object]:
    """The geometric mean over scenarios, of which none can hide behind the others; interval: Student's, 95 %, over the
    scenarios, and so wide where they differ; n: scenarios."""
    interval = t_interval(medians)
    if interval is None:
        raise ValueError("one scenario has no mean over scenarios")
    return figures(interval, len(medians))


if __name__ == "__main__":
    sys.exit(exit_code(main))
