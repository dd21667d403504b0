"""Where the steps of a run's tuned cells of PyTorch on the CPU spend their time, with the settings found for them.

`python -m benchmarks.profile RUN` prints a line of JSON for each: `step_ms`, of a step on a batch in memory;
`needed_ms`, of its products, convolutions and its fused Adam alone, by turns with it: what would be left if all else
were free; `cast_ms`, of the same and what autocast casts; `profiled_ms`, of a step while it is profiled, and
`kernels_ms`, what takes longest of that by itself.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.pairs import Subject, exit_code, say
from benchmarks.processes import Command, alone, on_host
from kit import catalog
from kit.console import show_progress
from kit.engines.local import LocalEngine
from kit.errors import KitError, UsageError
from kit.machine import usable_cpus
from kit.model import Environment
from kit.records import Record, tuning_of
from kit.runs import find_run
from kit.sources import Sources
from kit.store import RunFolder
from scenarios import allocators
from scenarios.contract import Status

FRAMEWORK = "torch"


def main() -> None:
    """Make the environment, then profile with the machine to ourselves."""
    parser = argparse.ArgumentParser(prog="benchmarks.profile", description=__doc__)
    parser.add_argument("run", help="the run's folder, or its id below reports/")
    records = cells(RunFolder.open(find_run(parser.parse_args().run, Path("reports"))))
    with show_progress() as progress, tempfile.TemporaryDirectory() as home:
        environment = LocalEngine(Sources.from_environment()).prepare(catalog.frameworks()[FRAMEWORK], "cpu", progress)
        with alone():
            for record in records:
                request = record.request
                found = figures(request.key, profiled(record, environment, Path(home)))
                say(Subject("profile", request.scenario, FRAMEWORK, request.precision).line(found))


def cells(folder: RunFolder) -> list[Record]:
    """The searches of PyTorch's cells on the CPU that came to their end, without variants. Raises UsageError where
    there is none."""
    ended = [record for record in folder.tunings() if record.status is Status.OK and not tuning_of(record).broken]
    searched = [record for record in ended if not record.request.variant]
    found = [record for record in searched if (record.request.framework, record.request.device) == (FRAMEWORK, "cpu")]
    if not found:
        raise UsageError(
            f"{folder.path} has no cell of {FRAMEWORK} on the CPU whose settings were searched.",
            "Make a run with --lane tuned, without --settings.",
        )
    return found


def profiled(record: Record, environment: Environment, home: Path) -> Command:
    """How to profile one cell."""
    request, settings = record.request, tuning_of(record).settings
    work = (request.scenario, "--threads", str(len(usable_cpus())), "--precision", request.precision)
    how = ("--settings", json.dumps(settings))
    return on_host(environment, home, "benchmarks.torch_profile", *work, *how, variables=allocators.variables(settings))


def figures(key: str, command: Command) -> dict[str, object]:
    """What a cell's profile says. Raises KitError where it fails, whose cause it has written to standard error."""
    done = subprocess.run(command.arguments, env=command.variables, stdout=subprocess.PIPE, check=False)
    if done.returncode:
        raise KitError(f"{key} could not be profiled.", "What is written above names the cause.")
    found: dict[str, object] = json.loads(done.stdout)
    return found


if __name__ == "__main__":
    sys.exit(exit_code(main))
