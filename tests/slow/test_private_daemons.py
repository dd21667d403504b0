"""Test Podman, and a Docker daemon that is lost during a run and during a build, on private daemons.

Each daemon has its own socket and data folder, so the user's daemons, images and containers are not touched. The user's
Docker daemon only provides the images.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from kit.engines.docker import RUN_LABEL, DockerEngine
from kit.environments.package_sources import Sources
from kit.model.errors import EngineError
from kit.model.progress import Silent
from kit.planning import catalog

WAIT_S = 300
SCENARIOS = ["fashion-mlp", "mnist-cnn", "mnist-cnn-dropout"]
OPTIONS = [
    *(f"--scenario={scenario}" for scenario in SCENARIOS),
    *("--framework=onnxruntime", "--device=cpu", "--profile=smoke", "--data=synthetic", "--engine=docker"),
]
# A base image in which the first step of the system image never ends.
HANGING = "FROM {base}\nRUN printf '#!/bin/sh\\nexec sleep 1000\\n' >/usr/bin/apt-get && chmod +x /usr/bin/apt-get\n"

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="a private daemon needs root")


def docker(address: str, *arguments: str, text: str | None = None) -> str:
    command = ["docker", "--host", address, *arguments]
    return subprocess.run(command, input=text, check=True, capture_output=True, text=True).stdout


def load(address: str, *tags: str) -> None:
    """Copy images of the user's Docker daemon to a private daemon."""
    with subprocess.Popen(["docker", "save", *tags], stdout=subprocess.PIPE) as saved:
        subprocess.run(["docker", "--host", address, "load"], stdin=saved.stdout, check=True, capture_output=True)


class Service:
    """A process that serves Docker's API at a socket of its own."""

    def __init__(self, folder: Path, command: list[str], **variables: str) -> None:
        self.folder, self.address = folder, f"unix://{folder}/socket"
        self._command, self._variables = command, {**os.environ, **variables}
        self._process: subprocess.Popen[bytes]

    def start(self) -> None:
        with open(self.folder / "log", "ab") as log:
            command = [word.format(folder=self.folder) for word in self._command]
            self._process = subprocess.Popen(
                command, cwd=self.folder, env=self._variables, stdout=log, stderr=log, start_new_session=True
            )
        wait_for(self.answers, self._process, self.folder / "log")

    def answers(self) -> bool:
        command = ["docker", "--host", self.address, "version"]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Send a signal. Wait for the end of the process, and of its children, which a new process would find."""
        children = psutil.Process(self._process.pid).children() if self._process.poll() is None else []
        self._process.send_signal(number)
        self._process.wait(WAIT_S)
        assert not psutil.wait_procs(children, WAIT_S)[1]


# With mounts of their own, because these services do not remove all of them.
DOCKERD = [
    # A network of its own: a daemon without a bridge removes the bridge of the user's daemon. Launches need no network.
    *("unshare", "--net", "--mount", "dockerd", "--host=unix://{folder}/socket", "--pidfile={folder}/pid"),
    *("--data-root={folder}/data", "--exec-root={folder}/exec", "--bridge=none", "--iptables=false"),
]
PODMAN = [
    *("unshare", "--mount", "podman", "--root={folder}/root", "--runroot={folder}/run"),
    *("system", "service", "--time=0", "unix://{folder}/socket"),
]


def wait_for(condition: Callable[[], object], process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait for something that a process does. Fail if the process ends before, or if it takes too long."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)


@contextmanager
def serving(program: str, command: list[str], **variables: str) -> Iterator[Service]:
    """Serve in a folder with a short path, because the path of a socket has at most 107 characters."""
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    with tempfile.TemporaryDirectory(prefix="kit-") as folder:
        service = Service(Path(folder), command, **variables)
        service.start()
        try:
            yield service
        finally:
            service.end()


@pytest.fixture
def dockerd() -> Iterator[Service]:
    with serving("dockerd", DOCKERD) as service:
        yield service


@pytest.fixture(scope="module")
def images() -> tuple[str, str]:
    """Return the tags of the base image and of the image of ONNX Runtime in the user's Docker daemon."""
    engine = DockerEngine(Sources.from_environment())
    try:
        engine.describe()
    except EngineError as error:
        pytest.skip(f"no Docker: {error}")
    made = engine.prepare(catalog.frameworks()["onnxruntime"], "cpu", Silent())
    return Sources.from_environment().base_image, made.reference


class Kit:
    """A command of kit that uses the private daemon as each engine, and its output."""

    def __init__(self, service: Service, log: Path, *arguments: str, **variables: str) -> None:
        self.log = log
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "kit", *arguments],
                env={**os.environ, "DOCKER_HOST": service.address, "CONTAINER_HOST": service.address, **variables},
                stdout=output,
                stderr=output,
            )

    def wait_for(self, condition: Callable[[], object]) -> None:
        wait_for(condition, self.process, self.log)

    def end(self, code: int) -> str:
        """Wait for the end with this exit code. Return the output."""
        assert self.process.wait(WAIT_S) == code, self.log.read_text()
        return self.log.read_text()


def records(out: Path) -> dict[str, str]:
    """Return the text of each record of the only run below `out`, by file name."""
    return {path.name: path.read_text() for path in out.glob("*/records/*.json")}


def containers(service: Service, *options: str) -> str:
    return docker(service.address, "ps", "--quiet", "--filter", f"label={RUN_LABEL}", *options)


@pytest.mark.parametrize("comes_back", ["at once", "after the run"])
def test_a_daemon_that_restarts_during_a_run_costs_no_record(
    dockerd: Service, images: tuple[str, str], tmp_path: Path, comes_back: str
) -> None:
    load(dockerd.address, *images)
    out = tmp_path / "out"
    run = Kit(dockerd, tmp_path / "log", "run", *OPTIONS, "--out", str(out))
    run.wait_for(lambda: len(records(out)) == 1 and containers(dockerd))
    before = records(out)
    dockerd.end()
    if comes_back == "at once":
        dockerd.start()
        run.process.wait(WAIT_S)
    else:
        assert "run --resume" in run.end(EngineError.exit_code)
        dockerd.start()
    after = records(out)
    assert before.items() <= after.items()
    (folder,) = out.glob("*/")
    Kit(dockerd, tmp_path / "log", "run", "--resume", str(folder), "--retry-failed").end(0)
    final = records(out)
    assert after.items() <= final.items()
    ok = [record["cell"]["scenario"] for record in map(json.loads, final.values()) if record["status"] == "ok"]
    assert sorted(ok) == SCENARIOS
    assert containers(dockerd, "--all") == ""


def test_clean_removes_what_a_build_left_in_a_killed_daemon(
    dockerd: Service, images: tuple[str, str], tmp_path: Path
) -> None:
    load(dockerd.address, images[0])
    docker(dockerd.address, "build", "--tag=hanging", "-", text=HANGING.format(base=images[0]))
    own = docker(dockerd.address, "images", "--all", "--quiet")
    variables = {"KIT_BASE_IMAGE": "hanging", "KIT_CACHE_DIR": str(tmp_path)}
    build = Kit(dockerd, tmp_path / "log", "build", "--framework=onnxruntime", "--device=cpu", **variables)
    build.wait_for(lambda: docker(dockerd.address, "ps", "--quiet"))
    dockerd.end(signal.SIGKILL)
    assert "docker info" in build.end(EngineError.exit_code)
    dockerd.start()
    assert docker(dockerd.address, "ps", "--all", "--quiet") != ""
    Kit(dockerd, tmp_path / "log", "clean", **variables).end(0)
    assert docker(dockerd.address, "ps", "--all", "--quiet") == ""
    assert docker(dockerd.address, "images", "--all", "--quiet") == own


def test_podman_passes_the_tests_of_containers_and_images(tmp_path: Path, images: tuple[str, str]) -> None:
    configuration = tmp_path / "containers.conf"
    limits = '["nofile=1024:1024", "nproc=1024:1024"]'  # Podman's own may exceed those of a container of tests
    configuration.write_text(f"[containers]\ndefault_ulimits = {limits}\n")
    with serving("podman", PODMAN, CONTAINERS_CONF=str(configuration)) as service:
        load(service.address, images[0])
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        command += ["tests/docker/test_containers.py", "tests/docker/test_images.py"]
        engine = {"KIT_TEST_ENGINE": "podman", "CONTAINER_HOST": service.address, "KIT_REQUIRE_DOCKER": "1"}
        finished = subprocess.run(command, env={**os.environ, **engine}, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stdout
    assert " passed" in finished.stdout
