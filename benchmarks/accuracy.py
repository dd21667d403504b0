"""Compare the test accuracy of the tuned lane's settings with the stock lane's, on real data, from the same seeds.

`python -m benchmarks.accuracy` prints one line of JSON for each scenario, framework and precision. It holds the mean
test accuracies in percent, the standard deviation of stock's accuracy over the seeds, and the mean difference (tuned -
stock) with its 95% interval. The settings are searched with the first seed and used with the others.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from scipy import stats

from benchmarks.pairs import Subject, exit_code, print_line, whole_number
from kit.analysis.intervals import CONFIDENCE
from kit.analysis.summaries import summarize
from kit.cli.console import show_progress
from kit.environments.package_sources import Sources
from kit.execution import workflow
from kit.model.progress import Progress
from kit.planning import catalog
from kit.planning.plan import Options
from kit.planning.selection import Selection
from kit.storage.run_folder import RunFolder
from scenarios.contract.reasons import Status

SCENARIOS = ("mnist-cnn", "cifar-cnn")
PRECISIONS = ("fp32", "bf16")

Lane = tuple[str, tuple[str, ...]]  # name, precisions
Settings = dict[str, dict[str, str]]  # by cell
Trained = tuple[str, str, str, str]  # scenario, framework, lane, precision


def options(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="benchmarks.accuracy", description=__doc__)
    known = list(catalog.scenarios())
    parser.add_argument("--scenario", action="append", choices=known, help=f"default: {' and '.join(SCENARIOS)}")
    parser.add_argument("--framework", action="append", choices=list(catalog.frameworks()), help="default: all")
    parser.add_argument("--precision", action="append", choices=PRECISIONS, help="of the tuned lane; default: both")
    parser.add_argument("--seeds", type=whole_number(2), default=5, help="number of seeds; default: %(default)s")
    parser.add_argument("--epochs", type=whole_number(1), default=5, help="epochs per launch; default: %(default)s")
    parser.add_argument("--out", type=Path, default=Path("reports"), help="folder for the runs; default: reports")
    return parser.parse_args(arguments)


def main() -> None:
    """Train with each seed in both lanes, then print the lines."""
    args = options()
    accuracies: dict[Trained, dict[int, float]] = {}
    settings: Settings = {}
    with show_progress() as progress:
        for seed in range(args.seeds):
            for lane in (("stock", ("fp32",)), ("tuned", tuple(args.precision or PRECISIONS))):
                for cell, accuracy in train(args, lane, seed, settings, progress):
                    accuracies.setdefault(cell, {})[seed] = accuracy
    for subject, tuned, stock in comparisons(accuracies):
        print_line(subject.line(difference(tuned, stock)))


def train(
    args: argparse.Namespace, lane: Lane, seed: int, settings: Settings, progress: Progress
) -> Iterator[tuple[Trained, float]]:
    """Train the cells of a lane, and yield each with its test accuracy (0 to 1) after the last epoch. settings: known
    settings of tuned cells; newly found ones are added."""
    selection = Selection(
        scenarios=tuple(args.scenario or SCENARIOS),
        frameworks=tuple(args.framework) if args.framework else None,
        devices=("cpu",),
        lanes=lane[:1],
        precisions=lane[1],
    )
    pinned = settings if lane[0] == "tuned" else {}
    run_options = Options("local", profile="full", epochs=args.epochs, seed=seed, data="real", pinned=pinned)
    outcome = workflow.start(workflow.prepare(selection, run_options, Sources.from_environment()), args.out, progress)
    folder = RunFolder.open(outcome.folder)
    searches = folder.records("tune")
    broken = {search.key for search in searches if search.status is not Status.OK or search.tuning.broken}
    settings |= {search.key: search.tuning.settings for search in searches if search.key not in broken}
    for summary in summarize(folder.read()):
        # A cell without a completed search trains with stock settings.
        if summary.test_accuracy is not None and summary.key not in broken:
            cell = summary.cell
            yield (cell.scenario, cell.framework, cell.lane, cell.precision), summary.test_accuracy


def comparisons(
    accuracies: Mapping[Trained, Mapping[int, float]],
) -> Iterator[tuple[Subject, list[float], list[float]]]:
    """Yield the accuracies of each tuned cell and of its stock cell, for the seeds that both have."""
    for (scenario, framework, lane, precision), tuned in accuracies.items():
        stock = accuracies.get((scenario, framework, "stock", "fp32"), {})
        seeds = sorted(tuned.keys() & stock.keys())
        if lane == "tuned" and len(seeds) > 1:
            subject = Subject("accuracy", scenario, framework, precision)
            yield subject, [tuned[seed] for seed in seeds], [stock[seed] for seed in seeds]


def difference(tuned: Sequence[float], stock: Sequence[float]) -> dict[str, object]:
    """Return the fields of a line, in percent. tuned, stock: accuracies (0 to 1) by seed. interval: Student's 95%
    interval of the mean paired difference."""
    differences = [new - old for new, old in zip(tuned, stock, strict=True)]
    half_width = stats.t.ppf((1 + CONFIDENCE) / 2, len(stock) - 1) * stats.sem(differences)
    means = {"tuned": statistics.mean(tuned), "stock": statistics.mean(stock), "stock_sd": statistics.stdev(stock)}
    means["difference"] = mean = statistics.mean(differences)
    return {
        **{name: round(100 * value, 3) for name, value in means.items()},
        "interval": [round(100 * float(end), 3) for end in (mean - half_width, mean + half_width)],
        "n": len(stock),
    }


if __name__ == "__main__":
    sys.exit(exit_code(main))
