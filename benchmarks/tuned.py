"""Compare each framework's tuned lane with plain Keras, and with its own stock lane.

`python -m benchmarks.tuned` prints up to three lines of JSON for each scenario and framework. `tuned` compares with
whole epochs of plain Keras, each a `fit`. `tuned-steps` compares with the steps of such epochs only: `fit` prepares
before them and waits for a timer after them. Both need a recipe in `keras_recipes`. `tuned-stock` compares with the
stock lane. The batch size is always the scenario's. Settings are searched as in `kit run --lane tuned`, and settings
that an earlier search on this machine found are used again.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks.overhead import BASELINES, KERAS_TIMINGS, SCENARIOS
from benchmarks.pairs import Subject, exit_code, print_line
from benchmarks.processes import Command, Extent, compare, exclusive_machine, on_host
from kit.cli.console import show_progress
from kit.engines.local import LocalEngine
from kit.environments.package_sources import Sources
from kit.execution import workflow
from kit.host.machine import usable_cpus
from kit.model.environment import Environment
from kit.model.progress import Progress
from kit.model.record import Record
from kit.planning import catalog
from kit.planning.plan import Options
from kit.planning.profiles import TUNE_S
from kit.planning.selection import Selection
from kit.storage.run_folder import RunFolder
from scenarios.contract import allocators

TUNED = "tuned"
STOCK = "stock"
STEPS = 150  # per epoch
KERAS = "tensorflow"  # the framework whose environment runs plain Keras


def options(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    known = list(catalog.scenarios())
    parser = argparse.ArgumentParser(prog="benchmarks.tuned", description=__doc__)
    parser.add_argument("--scenario", action="append", choices=known, help="default: all")
    parser.add_argument("--framework", action="append", choices=list(catalog.frameworks()), help="default: all")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32", help="of the tuned lane")
    parser.add_argument("--against", action="append", choices=(*KERAS_TIMINGS, STOCK), help="default: all")
    parser.add_argument("--tune", type=float, default=TUNE_S, help="seconds per search; default: %(default)s")
    parser.add_argument("--out", type=Path, default=Path("reports"), help="folder for the searches; default: reports")
    Extent.add_options(parser, images=None, images_text=f"those of {STEPS} steps")
    args = parser.parse_args(arguments)
    args.against = args.against or [*KERAS_TIMINGS, STOCK]
    if STOCK not in args.against and (missing := set(args.scenario or ()) - set(SCENARIOS)):
        parser.error(f"there is no plain Keras recipe of {', '.join(sorted(missing))}; use --against {STOCK}")
    return args


def main() -> None:
    """Search for settings, then measure while holding the machine lock."""
    args = options()
    sources, frameworks = Sources.from_environment(), catalog.frameworks()
    engine = LocalEngine(sources)
    with show_progress() as progress, tempfile.TemporaryDirectory() as home:
        searches = search(args, sources, progress)
        names = {record.cell.framework for record in searches} | {KERAS}
        with exclusive_machine():
            environments = {name: engine.prepare(frameworks[name], "cpu", progress) for name in sorted(names)}
            for subject, ours, baseline in comparisons(args, searches, environments, Path(home)):
                compare(subject, ours, baseline, Extent.from_options(args), progress)


def search(args: argparse.Namespace, sources: Sources, progress: Progress) -> list[Record]:
    """Search for the settings of each cell, and return the records of the completed searches. Each search is followed
    by a short launch with its settings. Print a line for each search that was not completed."""
    selection = Selection(
        scenarios=tuple(args.scenario or catalog.scenarios()),
        frameworks=tuple(args.framework) if args.framework else None,
        devices=("cpu",),
        lanes=("tuned",),
        precisions=(args.precision,),
    )
    run_options = Options("local", profile="smoke", data="synthetic", tune_s=args.tune)
    outcome = workflow.start(workflow.prepare(selection, run_options, sources), args.out, progress)
    completed = []
    for record in RunFolder.open(outcome.folder).records("tune"):
        if problem := record.reason.message if record.reason else record.tuning.broken:
            cell = record.cell
            subject = Subject(TUNED, cell.scenario, cell.framework, cell.precision)
            print_line(subject.line({"skipped": problem}))
        else:
            completed.append(record)
    return completed


def comparisons(
    args: argparse.Namespace, searches: list[Record], environments: Mapping[str, Environment], home: Path
) -> Iterator[tuple[Subject, Command, Command]]:
    """Yield each subject with the commands of our side and of the baseline."""
    for record in searches:
        cell = record.cell
        images = args.images or STEPS * cell.batch
        work = (cell.scenario, "--images", str(images))
        ours = kit_side(record, environments, home, *work, settings=record.tuning.settings)
        subject = cell.scenario, cell.framework, cell.precision
        for against, (suffix, timing) in KERAS_TIMINGS.items():
            if against in args.against and cell.scenario in SCENARIOS:
                baseline = on_host(environments[KERAS], home, BASELINES[KERAS], *work, *timing)
                yield Subject(TUNED + suffix, *subject), ours, baseline
        if STOCK in args.against:
            yield Subject("tuned-stock", *subject), ours, kit_side(record, environments, home, *work)


def kit_side(
    record: Record,
    environments: Mapping[str, Environment],
    home: Path,
    *work: str,
    settings: Mapping[str, str] | None = None,
) -> Command:
    """Return the command of the kit's training loop for the record's cell. settings: of the tuned lane; None: the stock
    lane."""
    cell = record.cell
    options = ("--framework", cell.framework, "--threads", str(len(usable_cpus())), "--precision", cell.precision)
    tuned = ("--settings", json.dumps(settings)) if settings else ()
    environment, variables = environments[cell.framework], allocators.variables(settings or {})
    return on_host(environment, home, "benchmarks.kit_side", *work, *options, *tuned, variables=variables)


if __name__ == "__main__":
    sys.exit(exit_code(main))
