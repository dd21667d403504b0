"""Run the contract suite in the environment of each framework: `python -m tests.run_contract [FRAMEWORK ...]`.

The suite runs on the CPU, or on the GPU if KIT_TEST_DEVICE=cuda. It uses the environments of the local engine, or the
interpreter that KIT_TEST_ENV names as `--env` would. Its tools are installed into a separate folder. The first pass
also exports trained weights. The second pass imports them into the other frameworks. The third pass tests the tuned
lane.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import uv

from kit import assets
from kit.engines.local import LocalEngine
from kit.environments.package_sources import Sources
from kit.host.machine import usable_cpus
from kit.model.environment import Environment
from kit.model.errors import KitError, unknown
from kit.model.progress import PlainProgress
from kit.planning import catalog
from scenarios.contract.cell import Device

SUITE = Path(__file__).parent / "contract"
# The other tests do not depend on the lane.
TUNED = "test_model or test_training or test_state or test_wrong_adapters or (test_proof and not catdog)"
IMPORTED = "exchange_import"


def install_tools(folder: Path, python: str) -> None:
    """Install pytest and the other tools of the suite into this folder, with hash checks."""
    subprocess.run(
        [
            *(uv.find_uv_bin(), "pip", "install", "--quiet", "--require-hashes", "--python", python),
            *("--target", str(folder), "--requirement", str(SUITE / "tools.lock")),
        ],
        check=True,
    )


def run_suite(environment: Environment, tools: Path, exchange: Path, *selection: str, tuned: bool = False) -> bool:
    """Run pytest inside the environment. Return whether all tests passed."""
    variables = {
        **({"KIT_TEST_TUNED": "1"} if tuned else {}),
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(assets.ROOT), str(tools)]),
        "KIT_TEST_FRAMEWORK": environment.framework,
        "KIT_TEST_EXCHANGE": str(exchange),
    }
    command = [environment.reference, "-P", "-m", "pytest", str(SUITE), "--quiet", *selection]
    finished = subprocess.run(command, env=variables, cwd=exchange, capture_output=True, text=True, check=False)
    lane = "tuned lane" if tuned else "stock lane"
    sys.stdout.write(f"== {environment.framework}: {lane} {' '.join(selection)}\n{finished.stdout}{finished.stderr}")
    sys.stdout.flush()
    return finished.returncode == 0


def main(names: list[str]) -> int:
    """Run all passes for the named frameworks, or for all. Return the exit code. Raise UsageError for others."""
    progress = PlainProgress(partial(print, flush=True))
    engine = LocalEngine(Sources.from_environment(), os.environ.get("KIT_TEST_ENV", ""))
    found = catalog.frameworks()
    device: Device = "cuda" if os.environ.get("KIT_TEST_DEVICE") == "cuda" else "cpu"
    for name in names:
        if name not in found:
            raise unknown("framework", name, found)
    frameworks = []
    for framework in found.values():
        if names and framework.name not in names:
            continue
        if device not in framework.devices:
            sys.stdout.write(f"{framework.title} is not offered on {device}.\n")
        elif refusal := engine.refusal(framework, device):
            sys.stdout.write(f"{framework.title} is not tested on {device}: {refusal}\n")
        else:
            frameworks.append(framework)
    if not frameworks:
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        tools, exchange = Path(scratch, "tools"), Path(scratch, "exchange")
        exchange.mkdir()
        environments = [engine.prepare(framework, device, progress) for framework in frameworks]
        install_tools(tools, environments[0].reference)
        passed = []
        with ThreadPoolExecutor(len(usable_cpus())) as pool:  # the suite uses one CPU
            for selection in (f"not {IMPORTED}", IMPORTED):
                passed += pool.map(lambda e, which=selection: run_suite(e, tools, exchange, "-k", which), environments)
            passed += pool.map(lambda e: run_suite(e, tools, exchange, "-k", TUNED, tuned=True), environments)
    return 0 if all(passed) else 1


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KitError as error:
        sys.exit(str(error))
