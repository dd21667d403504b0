"""Measure the overhead of a container: the kit's training loop in the framework's image against the same on the host.

`python -m benchmarks.container` prints one line of JSON. If Docker is not available, the line gives the reason.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path

import psutil

from benchmarks.overhead import BASELINES, SCENARIOS
from benchmarks.pairs import Subject, exit_code, print_line
from benchmarks.processes import ROOT, Command, Extent, compare, exclusive_machine, on_host
from kit.cli.console import show_progress
from kit.engines import containers
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
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="benchmarks.container", description=__doc__)
    parser.add_argument("--scenario", choices=SCENARIOS, default="mnist-cnn", help="default: %(default)s")
    parser.add_argument("--framework", choices=BASELINES, default="tensorflow", help="default: %(default)s")
    Extent.add_options(parser)
    return parser.parse_args(arguments)


def main() -> None:
    """Make the image and the environment, then measure. Hold the machine lock."""
    args = options()
    sources, framework = Sources.from_environment(), catalog.frameworks()[args.framework]
    docker = DockerEngine(sources)
    if reason := unavailable(docker):
        print_line({"bench": BENCH, "skipped": reason})
        return
    with show_progress() as progress, tempfile.TemporaryDirectory() as home, exclusive_machine() as run:
        image = docker.prepare(framework, "cpu", progress)
        environment = LocalEngine(sources).prepare(framework, "cpu", progress)
        cpus = usable_cpus()
        work = (args.scenario, "--framework", framework.name, "--threads", str(len(cpus)))
        side = ("benchmarks.kit_side", *work, "--images", str(args.images))
        user = containers.user(containers.Host.of(docker.daemon.info))
        inside = in_container(image, run, cpus, user, *side)
        outside = on_host(environment, Path(home), *side)
        subject = Subject(BENCH, args.scenario, framework.name)
        compare(subject, inside, outside, Extent.from_options(args), progress)


def unavailable(docker: DockerEngine) -> str | None:
    """Return the reason why no container can run here, or None if one can."""
    if shutil.which("docker") is None:
        return "The program docker is not available."
    try:
        docker.describe()
    except EngineError as error:
        return error.message
    return None


def in_container(
    image: Environment, run: str, cpus: tuple[int, ...], user: tuple[int, int], module: str, *arguments: str
) -> Command:
    """Return the command of a side in the framework's image, with the restrictions of a launch
    (kit/engines/containers.py). The Docker client forwards the side's input and output. user: its uid and gid."""
    limits = Limits(timeout_s=0.0, memory_bytes=int(MEMORY_SHARE * psutil.virtual_memory().available), cpus=cpus)
    confined = ("--network=none", "--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges")
    bounded = (
        f"--memory={limits.memory_bytes}",
        f"--memory-swap={limits.memory_bytes}",
        f"--pids-limit={limits.pids}",
        f"--shm-size={limits.shm_bytes}",
        f"--cpuset-cpus={','.join(map(str, limits.cpus))}",
    )
    mounts = ("--tmpfs=/tmp", "--env=HOME=/tmp", f"--volume={ROOT / 'benchmarks'}:/opt/kit/benchmarks:ro")
    owner = ("--user={}:{}".format(*user), f"--label={RUN_LABEL}={run}")
    docker_run = ("docker", "run", "--interactive", "--rm", *confined, *bounded, *mounts, *owner)
    return Command((*docker_run, "--entrypoint=python", image.digest, "-m", module, *arguments), dict(os.environ))


if __name__ == "__main__":
    sys.exit(exit_code(main))
