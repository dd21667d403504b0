"""Measure the overhead of the kit's training loop against plain scripts in the same environment.

`python -m benchmarks.overhead` prints one line of JSON for each scenario and framework, and one for all scenarios of a
framework. Keras has two lines each. `overhead` compares with a whole `fit`. `overhead-steps` compares with its steps
only: `fit` prepares before them and waits for a timer after them, and that wait would hide the kit's overhead.
"""

from __future__ import annotations

import argparse
import functools
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.pairs import Subject, exit_code, figures, print_line
from benchmarks.processes import Command, Extent, compare, compare_in_one_process, exclusive_machine, on_host
from kit.analysis.intervals import t_interval
from kit.cli.console import show_progress
from kit.engines.local import LocalEngine
from kit.environments.package_sources import Sources
from kit.host.machine import usable_cpus
from kit.model.environment import Environment
from kit.model.progress import Progress
from kit.planning import catalog

BENCH = "overhead"
# What is timed in Keras: the suffix of the benchmark's name, and the options of `keras_recipes`.
KERAS_TIMINGS = {"keras": ("", ()), "keras-steps": ("-steps", ("--steps-only",))}
BASELINES = {"tensorflow": "benchmarks.keras_recipes", "torch": "benchmarks.torch_recipes"}
TORCH_LOOPS = ("kit", "bare")  # in one process, which Keras does not allow: its `fit` runs a whole epoch
SCENARIOS = ("mnist-cnn", "mnist-cnn-dropout", "cifar-cnn", "cifar-mlp", "fashion-mlp")

Comparison = tuple[Subject, Callable[..., float]]  # the function takes subject, extent and progress


def options(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="benchmarks.overhead", description=__doc__)
    parser.add_argument("--scenario", action="append", choices=SCENARIOS, help="default: all")
    parser.add_argument("--framework", action="append", choices=BASELINES, help="default: both")
    Extent.add_options(parser)
    return parser.parse_args(arguments)


def main() -> None:
    """Make the environments, then measure. Hold the machine lock."""
    args = options()
    engine, frameworks = LocalEngine(Sources.from_environment()), catalog.frameworks()
    with show_progress() as progress:
        names = dict.fromkeys(args.framework or BASELINES)
        with exclusive_machine():
            environments = {name: engine.prepare(frameworks[name], "cpu", progress) for name in names}
            measure(environments, args, progress)


def measure(environments: Mapping[str, Environment], args: argparse.Namespace, progress: Progress) -> None:
    """Print one line for each scenario and framework, and one for all scenarios of a framework."""
    extent = Extent.from_options(args)
    with tempfile.TemporaryDirectory() as home:
        for framework, environment in environments.items():
            medians: dict[str, list[float]] = {}
            side = functools.partial(on_host, environment, Path(home))
            for scenario in dict.fromkeys(args.scenario or SCENARIOS):
                for subject, compare_sides in comparisons(scenario, framework, args.images, side):
                    median = compare_sides(subject, extent=extent, progress=progress)
                    medians.setdefault(subject.bench, []).append(median)
            for bench, values in medians.items():
                if len(values) > 1:
                    print_line(Subject(bench, "pooled", framework).line(pooled(values)))


def comparisons(scenario: str, framework: str, images: int, side: Callable[..., Command]) -> Iterator[Comparison]:
    """Yield the comparisons of a scenario. side: `on_host` for the framework's environment."""
    work = (scenario, "--images", str(images))
    kit_work = (*work, "--threads", str(len(usable_cpus())))
    if framework == "torch":
        both = [side("benchmarks.torch_pair", *kit_work, "--first", first) for first in TORCH_LOOPS]
        compare_loops = functools.partial(compare_in_one_process, commands=both, names=TORCH_LOOPS)
        yield Subject(BENCH, scenario, framework), compare_loops
        return
    ours = side("benchmarks.kit_side", *kit_work, "--framework", framework)
    for suffix, timing in KERAS_TIMINGS.values():
        baseline = side(BASELINES[framework], *work, *timing)
        yield Subject(BENCH + suffix, scenario, framework), functools.partial(compare, ours=ours, baseline=baseline)


def pooled(medians: Sequence[float]) -> dict[str, object]:
    """Return the fields of the line over scenarios: the geometric mean of their medians, Student's 95% interval over
    the scenarios, and n, their number. Raise ValueError for fewer than two."""
    interval = t_interval(medians)
    if interval is None:
        raise ValueError("one scenario has no mean over scenarios")
    return figures(interval, len(medians))


if __name__ == "__main__":
    sys.exit(exit_code(main))
