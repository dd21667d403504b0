"""Compare two runs of the same cells: unchanged (A/A), or with the second run slowed down on purpose.

`python -m benchmarks.against_itself` makes two runs of unchanged cells. It prints how many cells `kit compare` calls a
tie, and the exit code of `kit gate`. With `--slowed`, the second run's workers lose 10% of their speed, and each cell
has a line. The launches of both runs are interleaved. The run folders are kept for `kit compare` and `kit report`.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from benchmarks import slow_meter
from benchmarks.interleave import Half, half_of, half_plan, half_records, interleaved
from benchmarks.pairs import exit_code, print_line
from kit import assets
from kit.analysis.comparison import compare
from kit.analysis.gate import gate
from kit.analysis.intervals import MIN_LAUNCHES, Verdict
from kit.analysis.pairing import COMPARED, Measure
from kit.cli.compare import MAX_REGRESSION
from kit.cli.console import show_progress
from kit.engines.local import LocalEngine
from kit.environments.package_sources import Sources
from kit.execution import workflow
from kit.model.environment import Environment
from kit.model.launch import Completion, LaunchFolder, Limits
from kit.model.run import Run
from kit.planning.plan import Options
from kit.planning.selection import Selection
from kit.storage.run_folder import RunFolder

PROFILES = ("standard", "quick")
SLOWING = "\nfrom scenarios import slow_meter\n\nslow_meter.slow(WindowMeter)\n"


class HalfSlowed(LocalEngine):
    """The local engine, except that run B's launches use the `scenarios` of another folder."""

    def __init__(self, sources: Sources, slowed: Path) -> None:
        super().__init__(sources)
        self._slowed = LocalEngine(sources, root=slowed)

    def launch(
        self,
        environment: Environment,
        folder: LaunchFolder,
        limits: Limits,
        variables: Mapping[str, str],
        labels: Mapping[str, str],
        stopped: Callable[[], bool],
    ) -> Completion:
        """See kit.engines.base.Engine."""
        run = self._slowed.launch if half_of(int(labels["launch"])) == "b" else super().launch
        return run(environment, folder, limits, variables, labels, stopped)


@contextmanager
def slowed_copy() -> Iterator[Path]:
    """Yield a temporary folder with a copy of `scenarios` whose meter waits after each step."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "scenarios"
        shutil.copytree(assets.ROOT / "scenarios", copy, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(slow_meter.__file__, copy)
        with open(copy / "measuring" / "window_meter.py", "a", encoding="utf-8") as file:
            file.write(SLOWING)
        yield Path(folder)


def options(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="benchmarks.against_itself", description=__doc__)
    parser.add_argument("--slowed", action="store_true", help="slow the second run's workers down by 10%%")
    parser.add_argument("--scenario", action="append", help="default: all")
    parser.add_argument("--framework", action="append", help="default: all")
    parser.add_argument("--profile", choices=PROFILES, default=PROFILES[0], help="quick: shorter launches")
    parser.add_argument("--rounds", type=int, default=MIN_LAUNCHES, help="launches of each cell in each run")
    parser.add_argument("--tries", type=int, default=1, help="repeat everything this often")
    parser.add_argument("--out", type=Path, default=Path("reports"), help="folder for the runs; default: reports")
    return parser.parse_args(arguments)


def main() -> None:
    """Measure, split the records into two runs, and compare these."""
    args = options()
    sources = Sources.from_environment()
    with slowed_copy() as slowed:
        engine = HalfSlowed(sources, slowed) if args.slowed else LocalEngine(sources)
        for _ in range(args.tries):
            folder = measure(args, engine, sources)
            base, new = (split(folder, half) for half in ("a", "b"))
            for line in slowed_lines(base, new) if args.slowed else unchanged_lines(base, new):
                print_line(line)


def measure(args: argparse.Namespace, engine: LocalEngine, sources: Sources) -> RunFolder:
    """Run the interleaved plan on synthetic data, which needs no download and is the same on all machines."""
    names = {"scenarios": args.scenario, "frameworks": args.framework}
    selection = Selection(devices=("cpu",), **{name: tuple(wanted) for name, wanted in names.items() if wanted})
    run_options = Options("local", profile=args.profile, data="synthetic")
    prepared = workflow.prepare(selection, run_options, sources)
    plan = interleaved(prepared.plan, args.rounds)
    with show_progress() as progress:
        outcome = workflow.start(replace(prepared, plan=plan, engine=engine), args.out, progress)
    return RunFolder.open(outcome.folder)


def split(folder: RunFolder, half: Half) -> Run:
    """Write run A or B of an interleaved run to its own folder, next to the interleaved one."""
    plan = half_plan(folder.plan, half)
    half_folder = RunFolder.create(folder.path.with_name(plan.run), plan, folder.machine)
    for record in (*half_records(folder.records(), half), *folder.records("probe")):  # both runs share the ceilings
        half_folder.save(record)
    return Run(half_folder.plan, half_folder.machine, half_folder.records())


def unchanged_lines(base: Run, new: Run) -> list[dict[str, object]]:
    """Return a line for training and one for inference, for two runs with no change between them."""
    compared = {measure: compare(base, new, measure) for measure in COMPARED}
    return [
        {
            "bench": "a-a",
            "profile": base.plan.profile,
            "measure": measure,
            "cells": len(cells),
            "ties": sum(cell.verdict is Verdict.TIE for cell in cells),
            "gate": gate(base, new, MAX_REGRESSION, measure).exit_code,
        }
        for measure, cells in compared.items()
    ]


def slowed_lines(base: Run, new: Run) -> list[dict[str, object]]:
    """Return one line for each cell of a slowed run. gate: exit code of `kit gate` for the whole run."""
    judged = gate(base, new, MAX_REGRESSION, Measure.TRAINING)
    return [
        {
            "bench": "slowed",
            "profile": base.plan.profile,
            "cell": cell.key,
            "ratio": cell.ratio and round(cell.ratio, 4),
            "interval": cell.interval and [round(cell.interval.low, 4), round(cell.interval.high, 4)],
            "compare": cell.verdict,
            "gate": judged.exit_code,
        }
        for cell in compare(base, new, Measure.TRAINING)
    ]


if __name__ == "__main__":
    sys.exit(exit_code(main))
