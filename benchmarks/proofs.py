"""Prove unchanged adapters: the largest error of each check next to its tolerance, and how long a proof takes.

`python -m benchmarks.proofs` proves each scenario and variant in two fresh processes per seed, framework and precision:
as the first launch of a cell does, then as a later one does. It prints one line of JSON per pair of processes (`proof`:
the seconds of both; the names of failed checks), and then one line for each check and tolerance (`proof-errors`: the
largest error in all first launches, and the cell that has it). The exit code is 1 if a proof failed.

Reference values are kept in --folder. The first use of a seed computes them, which `cached` shows.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.pairs import Subject, exit_code, print_line, whole_number
from benchmarks.processes import exclusive_machine, on_host
from kit.cli.console import show_progress
from kit.engines.local import LocalEngine
from kit.environments.package_sources import Sources
from kit.host.machine import usable_cpus
from kit.model.environment import Environment
from kit.model.errors import KitError
from kit.planning import catalog

PRECISIONS = ("fp32", "bf16")

Proven = tuple[Subject, int, dict[str, Any]]  # the cell, the seed and the full proof


def options(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    known = [each.label for variants in catalog.scenarios().values() for each in variants.values()]
    parser = argparse.ArgumentParser(prog="benchmarks.proofs", description=__doc__)
    parser.add_argument("--scenario", action="append", choices=known, help="default: all, with their variants")
    parser.add_argument("--framework", action="append", choices=list(catalog.frameworks()), help="default: all")
    parser.add_argument("--precision", action="append", choices=PRECISIONS, help="default: both")
    parser.add_argument("--seeds", type=whole_number(1), default=2, help="number of seeds; default: %(default)s")
    parser.add_argument("--folder", type=Path, help="keeps reference values; default: a temporary folder")
    args = parser.parse_args(arguments)
    args.scenario = args.scenario or known
    args.precision = args.precision or PRECISIONS
    return args


def main() -> None:
    """Prove all cells while holding the machine lock, and print the lines. Raise KitError if a proof failed."""
    args = options()
    engine = LocalEngine(Sources.from_environment())
    with show_progress() as progress, tempfile.TemporaryDirectory() as scratch:
        folder = args.folder or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        frameworks = [catalog.frameworks()[name] for name in args.framework or catalog.frameworks()]
        with exclusive_machine():
            environments = [engine.prepare(framework, "cpu", progress) for framework in frameworks]
            found = [each for environment in environments for each in proofs(args, environment, folder, Path(scratch))]
    for line in errors(found):
        print_line(line)
    if failed := sum(not full["passed"] for _, _, full in found):
        raise KitError(f"{failed} of {len(found)} proofs failed.", "Their lines name the checks.")


def proofs(args: argparse.Namespace, environment: Environment, folder: Path, home: Path) -> Iterator[Proven]:
    """Prove all cells of a framework. Print the line of each proof, and yield it."""
    for precision in args.precision:
        for scenario in args.scenario:
            subject = Subject("proof", scenario, environment.framework, precision)
            for seed in range(args.seeds):
                full = prove(subject, seed, environment, folder, home)
                if why := full.get("not_offered"):
                    print_line(subject.line({"skipped": why}))
                    break
                later = prove(subject, seed, environment, folder, home, "--later")
                failed = [check["name"] for proof in (full, later) for check in proof["checks"] if not check["passed"]]
                seconds = {"full_s": round(full["seconds"], 2), "later_s": round(later["seconds"], 2)}
                print_line(subject.line({"seed": seed, "cached": full["cached"], **seconds, "failed": failed}))
                yield subject, seed, full | {"passed": not failed}


def prove(
    subject: Subject, seed: int, environment: Environment, folder: Path, home: Path, *more: str
) -> dict[str, Any]:
    """Return the fields of the proof of one process. Raise KitError if the process failed."""
    cell = (subject.scenario, "--framework", subject.framework, "--precision", subject.precision)
    run = ("--threads", str(len(usable_cpus())), "--seed", str(seed), "--folder", str(folder.resolve()), *more)
    command = on_host(environment, home, "benchmarks.proof_side", *cell, *run)
    ended = subprocess.run(command.arguments, env=command.variables, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise KitError(
            f"{subject.label} ended with {ended.returncode}.", f"Its last output is:\n{ended.stderr[-2000:]}"
        )
    proof: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return proof


def errors(found: list[Proven]) -> Iterator[dict[str, object]]:
    """Yield a line for each framework, precision, check and tolerance: the largest error, and where it occurred."""
    worst: dict[tuple[str, str, str, float], tuple[float, str, int]] = {}
    for subject, seed, full in found:
        for check in full["checks"]:
            name = re.sub(r" \d+(/\w+)?( at step \d+)?", "", check["name"])  # without layer and step
            key = subject.framework, subject.precision, name, check["tolerance"]
            worst[key] = max(worst.get(key, (-1.0, "", 0)), (check["error"], subject.scenario, seed))
    for (framework, precision, name, tolerance), (error, scenario, seed) in worst.items():
        subject = Subject("proof-errors", scenario, framework, precision)
        yield subject.line({"seed": seed, "check": name, "error": float(f"{error:.2g}"), "tolerance": tolerance})


if __name__ == "__main__":
    sys.exit(exit_code(main))
