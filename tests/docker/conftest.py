"""Fixtures for tests with real containers. The image is the base image, and each test writes its own worker script.

`KIT_TEST_ENGINE=podman` runs the same tests with Podman.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import docker
import pytest

from kit.engines.docker import RUN_LABEL, DockerEngine
from kit.environments.package_sources import Sources
from kit.model.environment import Environment
from kit.model.errors import EngineError
from kit.model.launch import Completion, LaunchFolder, Limits

RUN = "tests"
LIMITS = Limits(timeout_s=600, memory_bytes=256 << 20, cpus=(0,))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        item.add_marker(pytest.mark.docker)


@pytest.fixture(scope="session")
def engine() -> DockerEngine:
    """Return the engine of this machine. Without its daemon, skip the test, or fail if KIT_REQUIRE_DOCKER is set."""
    name: Any = os.environ.get("KIT_TEST_ENGINE", "docker")
    engine = DockerEngine(Sources.from_environment(), name)
    try:
        engine.describe()
    except EngineError as error:
        if os.environ.get("KIT_REQUIRE_DOCKER"):
            raise
        pytest.skip(f"no Docker: {error}")
    return engine


@pytest.fixture(scope="session")
def client(engine: DockerEngine) -> Iterator[docker.APIClient]:
    client = docker.APIClient(base_url=engine.daemon.address, version="auto")
    yield client
    client.close()


@contextmanager
def with_shell(client: docker.APIClient, base: str) -> Iterator[Environment]:
    """Build an image whose worker is the shell script in the scratch folder. Remove it at the end. base: a tag."""
    recipe = f'FROM {base}\nENTRYPOINT ["/bin/sh", "/io/worker.sh"]\n'
    tag = f"kit-tests:{re.sub(r'[^a-z0-9.]+', '-', base)}"
    for message in client.build(fileobj=io.BytesIO(recipe.encode()), tag=tag, rm=True, decode=True):
        assert "error" not in message, message["error"]
    image = client.inspect_image(tag)
    yield Environment("tests", "cpu", "image", tag, image["Id"], image["Size"])
    client.remove_image(tag)


@pytest.fixture(scope="session")
def environment(client: docker.APIClient) -> Iterator[Environment]:
    with with_shell(client, Sources.from_environment().base_image) as environment:
        yield environment


@dataclass
class Launcher:
    """Launch a shell script as the worker. Keyword arguments change the limits."""

    engine: DockerEngine
    environment: Environment
    folder: LaunchFolder
    variables: dict[str, str] = field(default_factory=dict)
    run: str = RUN

    def __call__(self, script: str, **limits: object) -> Completion:
        (self.folder.scratch / "worker.sh").write_text(script)
        return self.engine.launch(
            self.environment,
            self.folder,
            replace(LIMITS, **limits),
            self.variables,
            {"run": self.run, "key": "a/key"},
            self.stopped,
        )

    def stopped(self) -> bool:
        return False

    def log(self) -> str:
        return self.folder.log.read_text()


@pytest.fixture
def launch(engine: DockerEngine, environment: Environment, tmp_path: Path) -> Launcher:
    scratch, data = tmp_path / "scratch", tmp_path / "data"
    scratch.mkdir()
    data.mkdir()
    (data / "set").write_text("content")
    return Launcher(engine, environment, LaunchFolder(scratch, data, tmp_path / "log"))


@pytest.fixture(autouse=True)
def nothing_left(client: docker.APIClient) -> Iterator[None]:
    """Check after each test that none of its containers exists, running or stopped."""
    yield
    assert not client.containers(all=True, filters={"label": f"{RUN_LABEL}={RUN}"})
