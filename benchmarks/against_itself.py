"""Two runs of the same cells against each other, where nothing changed, and where one worker is slower on purpose.

`python -m benchmarks.against_itself` makes two runs of unchanged cells and prints how many `kit compare` calls a tie,
and what `kit gate` ends with. With `--slowed`, the second run's workers lose a tenth of their speed, and each cell has
a line. The launches of both runs are interleaved; the runs stay as folders, for `kit compare` and `kit report`.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from benchmarks import slow_meter
from benchmarks.interleave import Half, half_of, half_plan, half_records, interleaved
from benchmarks.pairs import exit_code, say
from kit import assets
from kit.analysis.comparison import Run, Verdict, compare, gate
from kit.analysis.intervals import MIN_LAUNCHES
from kit.cli.console import show_progress
from kit.engines.local import LocalEngine
from kit.environments.package_sources import Sources
from kit.execution import workflow
from kit.model.environment import Environment
from kit.model.launch import Completion, LaunchFolder, Limits
from kit.planning.plan import Options
from kit.planning.selection import Selection
from kit.storage.run_folder import RunFolder

PROFILES = ("standard", "quick")
MAX_REGRESSION = 0.05  # the default of `kit gate`
SLOWING = "\nfrom scenarios import slow_meter\n\nslow_meter.slow(WindowMeter)\n"


class HalfSlowed(LocalEngine):
    """The local engine, but run B's launches find their `scenarios` in another folder."""

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
    """A folder with a copy of `scenarios` whose meter waits after each step."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "scenarios"
        shutil.copytree(assets.ROOT / "scenarios", copy, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(slow_meter.__file__, copy)
        with open(copy / "measuring" / "measure.py", "a", encoding="utf-8") as measure:
            measure.write(SLOWING)
        yield Path(folder)


def options(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="benchmarks.against_itself", description=__doc__)
    parser.add_argument("--slowed", action="store_true", help="slow the second run's workers down by a tenth")
    parser.add_argument("--scenario", action="append", help="default: all of them")
    parser.add_argument("--framework", action="append", help="default: all of them")
    parser.add_argument("--profile", choices=PROFILES, default=PROFILES[0], help="quick: to try it out")
    parser.add_argument("--out", type=Path, default=Path("reports"), help="folder for the runs; default: reports")
    return parser.parse_args(arguments)


def main() -> None:
    """Measure, part the runs, compare them."""
    asked = options()
    sources = Sources.from_environment()
    with slowed_copy() as slowed:
        engine = HalfSlowed(sources, slowed) if asked.slowed else LocalEngine(sources)
        folder = measure(asked, engine, sources)
    base, new = (part(folder, half) for half in ("a", "b"))
    lines = slowed_lines(base, new) if asked.slowed else [unchanged_line(base, new)]
    for line in lines:
        say(json.dumps(line))


def measure(asked: argparse.Namespace, engine: LocalEngine, sources: Sources) -> RunFolder:
    """Run the interleaved plan. Synthetic data: the same everywhere, and nothing to download."""
    names = {"scenarios": asked.scenario, "frameworks": asked.framework}
    selection = Selection(devices=("cpu",), **{name: tuple(wanted) for name, wanted in names.items() if wanted})
    wishes = Options("local", profile=asked.profile, data="synthetic")
    prepared = workflow.prepare(selection, wishes, sources)
    plan = interleaved(prepared.plan, MIN_LAUNCHES)
    with show_progress() as progress:
        outcome = workflow.start(replace(prepared, plan=plan, engine=engine), asked.out, progress)
    return RunFolder.open(outcome.folder)


def part(folder: RunFolder, half: Half) -> Run:
    """Write run A or B of an interleaved run into a folder of its own, beside it."""
    plan = half_plan(folder.plan, half)
    own = RunFolder.create(folder.path.with_name(plan.run), plan, folder.machine)
    for record in (*half_records(folder.records(), half), *folder.probes()):  # both had these ceilings
        own.save(record)
    return Run(own.plan, own.machine, own.records())


def unchanged_line(base: Run, new: Run) -> dict[str, object]:
    """What is said of two runs between which nothing changed."""
    found = compare(base, new)
    return {
        "bench": "a-a",
        "profile": base.plan.profile,
        "cells": len(found),
        "ties": sum(cell.verdict is Verdict.TIE for cell in found),
        "gate": gate(base, new, MAX_REGRESSION).exit_code,
    }


def slowed_lines(base: Run, new: Run) -> list[dict[str, object]]:
    """What is said of each cell, where the new run was slowed down. gate: of the run."""
    judged = gate(base, new, MAX_REGRESSION)
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
        for cell in compare(base, new)
    ]


if __name__ == "__main__":
    sys.exit(exit_code(main))
