"""What the tuned lane's settings do to a net's accuracy: real data, several seeds, against stock from the same seeds.

`python -m benchmarks.accuracy` prints one line of JSON a scenario, framework and precision: mean test accuracies in
per cent, the standard deviation of stock's over seeds, and the mean of the differences, tuned less stock, with its
interval. Settings are searched with the first seed, and taken with the others.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from scipy import stats

from benchmarks.pairs import Subject, at_least, exit_code, say
from kit.analysis.intervals import CONFIDENCE
from kit.analysis.summaries import summarise
from kit.cli.console import show_progress
from kit.environments.package_sources import Sources
from kit.execution import workflow
from kit.model.progress import Progress
from kit.model.record import tuning_of
from kit.planning import catalog
from kit.planning.plan import Options
from kit.planning.selection import Selection
from kit.storage.run_folder import RunFolder
from scenarios.contract.reasons import Status

SCENARIOS = ("mnist-cnn", "cifar-cnn")
PRECISIONS = ("fp32", "bf16")

Lane = tuple[str, tuple[str, ...]]  # and its precisions
Settings = dict[str, dict[str, str]]  # by cell
Trained = tuple[str, str, str, str]  # scenario, framework, lane, precision


def options(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="benchmarks.accuracy", description=__doc__)
    known = list(catalog.scenarios())
    parser.add_argument("--scenario", action="append", choices=known, help=f"default: {' and '.join(SCENARIOS)}")
    parser.add_argument("--framework", action="append", choices=list(catalog.frameworks()), help="default: all")
    parser.add_argument("--precision", action="append", choices=PRECISIONS, help="of the tuned lane; default: both")
    parser.add_argument("--seeds", type=at_least(2), default=5, help="default: %(default)s")
    parser.add_argument("--epochs", type=at_least(1), default=5, help="default: %(default)s")
    parser.add_argument("--out", type=Path, default=Path("reports"), help="folder for the runs; default: reports")
    return parser.parse_args(arguments)


def main() -> None:
    """Train with each seed in both lanes, then print."""
    asked = options()
    accuracies: dict[Trained, dict[int, float]] = {}
    settings: Settings = {}
    with show_progress() as progress:
        for seed in range(asked.seeds):
            for lane in (("stock", ("fp32",)), ("tuned", tuple(asked.precision or PRECISIONS))):
                for cell, accuracy in trained(asked, lane, seed, settings, progress):
                    accuracies.setdefault(cell, {})[seed] = accuracy
    for subject, found, stock in comparisons(accuracies):
        say(subject.line(difference(found, stock)))


def trained(
    asked: argparse.Namespace, lane: Lane, seed: int, settings: Settings, progress: Progress
) -> Iterator[tuple[Trained, float]]:
    """Each cell of a lane, with its test accuracy (0 to 1) after the last epoch. settings: of the tuned cells that have
    some; what is found for the others is added."""
    selection = Selection(
        scenarios=tuple(asked.scenario or SCENARIOS),
        frameworks=tuple(asked.framework) if asked.framework else None,
        devices=("cpu",),
        lanes=lane[:1],
        precisions=lane[1],
    )
    pinned = settings if lane[0] == "tuned" else {}
    wishes = Options("local", profile="full", epochs=asked.epochs, seed=seed, data="real", pinned=pinned)
    outcome = workflow.start(workflow.prepare(selection, wishes, Sources.from_environment()), asked.out, progress)
    folder = RunFolder.open(outcome.folder)
    broken = {search.key for search in folder.tunings() if search.status is not Status.OK or tuning_of(search).broken}
    settings |= {search.key: tuning_of(search).settings for search in folder.tunings() if search.key not in broken}
    for cell in summarise(folder.records()):
        if cell.test_accuracy is not None and cell.key not in broken:  # else it would be stock against stock
            yield (cell.scenario, cell.framework, cell.lane, cell.precision), cell.test_accuracy


def comparisons(
    accuracies: Mapping[Trained, Mapping[int, float]],
) -> Iterator[tuple[Subject, list[float], list[float]]]:
    """What each tuned cell is held against, both by the seeds that both have."""
    for (scenario, framework, lane, precision), found in accuracies.items():
        stock = accuracies.get((scenario, framework, "stock", "fp32"), {})
        seeds = sorted(found.keys() & stock.keys())
        if lane == "tuned" and len(seeds) > 1:
            subject = Subject("accuracy", scenario, framework, precision)
            yield subject, [found[seed] for seed in seeds], [stock[seed] for seed in seeds]


def difference(tuned: Sequence[float], stock: Sequence[float]) -> dict[str, object]:
    """The fields of a line. tuned, stock: accuracies (0 to 1) by seed. interval: of the mean difference, Student's for
    pairs, 95 %; all in per cent."""
    differences = [new - old for new, old in zip(tuned, stock, strict=True)]
    spread = stats.t.ppf((1 + CONFIDENCE) / 2, len(stock) - 1) * stats.sem(differences)
    means = {"tuned": statistics.mean(tuned), "stock": statistics.mean(stock), "stock_sd": statistics.stdev(stock)}
    means["difference"] = difference = statistics.mean(differences)
    return {
        **{name: round(100 * value, 3) for name, value in means.items()},
        "interval": [round(100 * float(end), 3) for end in (difference - spread, difference + spread)],
        "n": len(stock),
    }


if __name__ == "__main__":
    sys.exit(exit_code(main))
