"""What a container costs: the kit's training loop in the framework's image against the same on the host.

`python -m benchmarks.container` prints one line of JSON; where no docker answers, one that says so.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

import psutil

from benchmarks.overhead import BARE, SCENARIOS
from benchmarks.pairs import Subject, exit_code, say
from benchmarks.processes import ROOT, Command, Extent, alone, compare, on_host
from kit.cli.console import show_progress
from kit.engines.containers import NOBODY
from kit.engines.docker import RUN_LABEL, DockerEngine
from kit.engines.local import LocalEngine
from kit.environments.package_sources import Sources
from kit.host.limits import MEMORY_SHARE
from kit.host.machine import usable_cpus
from kit.model.environment import Environment
from kit.model.errors import EngineError
from kit.model.launch import Limits
from kit.planning import catalog

BENCH = "container"


def options(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="benchmarks.container", description=__doc__)
    parser.add_argument("--scenario", choices=SCENARIOS, default="mnist-cnn")
    parser.add_argument("--framework", choices=BARE, default="tensorflow")
    Extent.offer(parser)
    return parser.parse_args(arguments)


def main() -> None:
    """Make image and environment, then measure with the machine to ourselves."""
    asked = options()
    extent = Extent.asked(asked)
    sources, framework = Sources.from_environment(), catalog.frameworks()[asked.framework]
    docker = DockerEngine(sources)
    if absence := why_not(docker):
        say(json.dumps({"bench": BENCH, "skipped": absence}))
        return
    with show_progress() as progress, tempfile.TemporaryDirectory() as home:
        image = docker.prepare(framework, "cpu", progress)
        environment = LocalEngine(sources).prepare(framework, "cpu", progress)
        with alone() as run:
            cpus = usable_cpus()
            work = (asked.scenario, "--framework", framework.name, "--threads", str(len(cpus)))
            side = ("benchmarks.kit_side", *work, "--images", str(asked.images))
            inside = in_container(image, run, cpus, *side)
            outside = on_host(environment, Path(home), *side)
            compare(Subject(BENCH, asked.scenario, framework.name), inside, outside, extent, progress)


def why_not(docker: DockerEngine) -> str | None:
    """Why nothing can be run in a container here, or None."""
    if shutil.which("docker") is None:
        return "The program docker is not there."
    try:
        docker.describe()
    except EngineError as error:
        return error.message
    return None


def in_container(image: Environment, run: str, cpus: tuple[int, ...], module: str, *arguments: str) -> Command:
    """A side in the framework's image, as confined as a launch is (kit/engines/containers.py); a client of docker that
    passes its input and output on."""
    user = f"{os.getuid()}:{os.getgid()}" if os.getuid() else f"{NOBODY}:{NOBODY}"
    limits = Limits(timeout_s=0.0, memory_bytes=int(MEMORY_SHARE * psutil.virtual_memory().available), cpus=cpus)
    confined = ("--network=none", "--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges")
    bounded = (
        f"--memory={limits.memory_bytes}",
        f"--memory-swap={limits.memory_bytes}",
        f"--pids-limit={limits.pids}",
        f"--shm-size={limits.shm_bytes}",
        f"--cpuset-cpus={','.join(map(str, limits.cpus))}",
    )
    place = ("--tmpfs=/tmp", "--env=HOME=/tmp", f"--volume={ROOT / 'benchmarks'}:/opt/kit/benchmarks:ro")
    who = (f"--user={user}", f"--label={RUN_LABEL}={run}")
    start = (
        "docker",
        "run",
        "--interactive",
        "--rm",
        *confined,
        *bounded,
        *place,
        *who,
        "--entrypoint=python",
        image.digest,
    )
    return Command((*start, "-m", module, *arguments), dict(os.environ))


if __name__ == "__main__":
    sys.exit(exit_code(main))
