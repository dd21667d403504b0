"""Runs the contract suite in the environment of every framework found: `python -m tests.run_contract [FRAMEWORK ...]`.

KIT_TEST_DEVICE=cuda has it use the GPU. The environments are the local engine's own. The suite's tools are installed
beside them, not into them. Weights trained in one framework are handed to the others in a second pass. A third takes
the tuned lane.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import uv

from kit import assets
from kit.cli.console import PlainProgress
from kit.environments import uv_environments
from kit.environments.package_sources import Sources
from kit.host import gpus
from kit.host.machine import usable_cpus
from kit.model.environment import Device, Environment
from kit.model.errors import KitError, unknown
from kit.planning import catalog

SUITE = Path(__file__).parent / "contract"
TUNED = "test_model or test_training or (test_proof and not catdog)"  # the rest does not depend on the lane
IMPORTED = "exchange_import"
NO_TESTS = 5  # pytest's exit code; of IMPORTED, a framework may have none


def install_tools(folder: Path, python: str) -> None:
    """pytest and what the suite needs, by hash, into a folder of their own."""
    subprocess.run(
        [
            *(uv.find_uv_bin(), "pip", "install", "--quiet", "--require-hashes", "--python", python),
            *("--target", str(folder), "--requirement", str(SUITE / "tools.lock")),
        ],
        check=True,
    )


def run_suite(environment: Environment, tools: Path, exchange: Path, *selection: str, tuned: bool = False) -> bool:
    """One pytest run inside the environment; True where nothing failed."""
    variables = {
        **({"KIT_TEST_TUNED": "1"} if tuned else {}),
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(assets.ROOT), str(tools)]),
        "KIT_TEST_FRAMEWORK": environment.framework,
        "KIT_TEST_EXCHANGE": str(exchange),
    }
    command = [environment.reference, "-P", "-m", "pytest", str(SUITE), "--quiet", *selection]
    done = subprocess.run(command, env=variables, cwd=exchange, capture_output=True, text=True, check=False)
    lane = "tuned lane" if tuned else "stock lane"
    sys.stdout.write(f"== {environment.framework}: {lane} {' '.join(selection)}\n{done.stdout}{done.stderr}")
    sys.stdout.flush()
    return done.returncode == 0 or (done.returncode == NO_TESTS and IMPORTED in selection)


def main(names: list[str]) -> int:
    """All passes for the named frameworks, or all; returns the exit code."""
    progress = PlainProgress(sys.stdout)
    sources = Sources.from_environment()
    found = catalog.frameworks()
    device: Device = "cuda" if os.environ.get("KIT_TEST_DEVICE") == "cuda" else "cpu"
    for name in names:
        if name not in found:
            raise unknown("framework", name, found)
    frameworks = []
    for framework in found.values():
        if names and framework.name not in names:
            continue
        if device == "cuda" and (refusal := gpus.refusal(framework)):
            sys.stdout.write(f"{framework.title} is not tested on a GPU: {refusal}\n")
        else:
            frameworks.append(framework)
    if not frameworks:
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        tools, exchange = Path(scratch, "tools"), Path(scratch, "exchange")
        exchange.mkdir()
        made = [uv_environments.ensure(f, device, sources, assets.ROOT, progress) for f in frameworks]
        install_tools(tools, made[0].reference)
        passed = []
        with ThreadPoolExecutor(len(usable_cpus())) as pool:  # one CPU each: that is what the suite asks for
            for selection in (f"not {IMPORTED}", IMPORTED):
                passed += pool.map(lambda e, which=selection: run_suite(e, tools, exchange, "-k", which), made)
            passed += pool.map(lambda e: run_suite(e, tools, exchange, "-k", TUNED, tuned=True), made)
    return 0 if all(passed) else 1


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KitError as error:
        sys.exit(str(error))
