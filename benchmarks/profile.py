"""Where the steps of a run's tuned cells of PyTorch on the CPU spend their time, with the settings they were given.

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
from collections.abc import Mapping
from pathlib import Path

from benchmarks.pairs import Subject, exit_code, say
from benchmarks.processes import Command, alone, on_host
from kit.cli.console import show_progress
from kit.engines.local import LocalEngine
from kit.environments.package_sources import Sources
from kit.host.machine import usable_cpus
from kit.model.environment import Environment
from kit.model.errors import KitError, UsageError
from kit.model.plan import PlannedLaunch
from kit.planning import catalog
from kit.planning.catalog import find_scenario
from kit.storage.pins import pins
from kit.storage.run_folder import RunFolder
from kit.storage.run_names import find_run
from scenarios.contract import allocators

FRAMEWORK = "torch"


def main() -> None:
    """Make the environment, then profile with the machine to ourselves."""
    parser = argparse.ArgumentParser(prog="benchmarks.profile", description=__doc__)
    parser.add_argument("run", help="the run's folder, or its id below reports/")
    found = cells(RunFolder.open(find_run(parser.parse_args().run, Path("reports"))))
    with show_progress() as progress, tempfile.TemporaryDirectory() as home:
        environment = LocalEngine(Sources.from_environment()).prepare(catalog.frameworks()[FRAMEWORK], "cpu", progress)
        with alone():
            for cell, settings in found:
                line = figures(cell.key, profiled(cell, settings, environment, Path(home)))
                say(Subject("profile", cell.scenario, FRAMEWORK, cell.precision).line(line))


def cells(folder: RunFolder) -> list[tuple[PlannedLaunch, Mapping[str, str]]]:
    """PyTorch's tuned cells on the CPU, without variants and at the published batch size, with their settings. Raises
    UsageError where there is none."""
    settings, published = pins(folder).cells, catalog.scenarios()
    launches = {launch.key: launch for launch in folder.plan.launches if launch.key in settings}
    found: list[tuple[PlannedLaunch, Mapping[str, str]]] = [
        (launch, settings[key])
        for key, launch in launches.items()
        if (launch.framework, launch.device, launch.variant) == (FRAMEWORK, "cpu", "")
        and launch.batch == find_scenario(launch, published).batch
    ]
    if not found:
        raise UsageError(
            f"{folder.path} has no tuned cell of {FRAMEWORK} on the CPU whose settings are known.",
            "Make a run with --lane tuned, of scenarios without variants and at their own batch size.",
        )
    return found


def profiled(cell: PlannedLaunch, settings: Mapping[str, str], environment: Environment, home: Path) -> Command:
    """How to profile one cell."""
    work = (cell.scenario, "--threads", str(len(usable_cpus())), "--precision", cell.precision)
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
