"""Launches in containers: Docker, or Podman through its Docker-compatible socket."""

from __future__ import annotations

import os
import shutil
import socket
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent import futures
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import docker
import requests
import urllib3
from docker.context import ContextAPI

from kit.engines import containers
from kit.engines.cgroup import MemoryWatch
from kit.engines.launch_log import copy_output
from kit.environments.images import FRAMEWORK_LABEL, ImageBuilder
from kit.environments.package_sources import Sources
from kit.host import gpus
from kit.host.background import in_background
from kit.host.privacy import without_user_info
from kit.model.environment import Device, Environment, Framework
from kit.model.errors import DiskError, EngineError
from kit.model.launch import Completion, LaunchFolder, Limits
from kit.model.progress import Progress

RUN_LABEL = "kit.execution.launch"
MIN_API = (1, 40)  # Docker 19.03: device requests
POLL_S = 0.2
KILL_S = 30
SIGKILLED = 137
AT_LIMIT = 0.95  # of the memory limit: where a killed process had nothing left to take


class DockerEngine:
    """The engine that a Docker or Podman daemon on this machine offers. sources: what images are built from."""

    def __init__(self, sources: Sources, name: Literal["docker", "podman"] = "docker") -> None:
        self.name = name
        self._sources = sources

    def describe(self) -> dict[str, str]:
        """Name, version and what of the engine influences launches. Raises EngineError where it cannot be used."""
        with self._errors():
            version, info = self._client.version(), self._info
        return {
            "engine": self.name,
            "version": str(version["Version"]),
            "api": str(version["ApiVersion"]),
            "storage_driver": str(info.get("Driver", "unknown")),
            "cgroup_version": str(info.get("CgroupVersion", "unknown")),
            "rootless": "yes" if self._host.rootless else "no",
        }

    def refusal(self, framework: Framework, device: Device) -> str | None:
        """Why cells of this framework on this device cannot run, or None."""
        if device == "cpu":
            return None
        if self.name == "podman":
            return "Podman's Docker-compatible API ignores requests for GPUs. Use --engine docker or --engine local."
        if reason := gpus.refusal(framework):
            return reason
        with self._errors():
            runtimes = self._info.get("Runtimes") or {}
            if self._host.cdi or "nvidia" in runtimes or shutil.which("nvidia-container-runtime-hook"):
                return None
        return (
            "Docker cannot hand a GPU to a container (could not select device driver): install the NVIDIA Container "
            "Toolkit, run `nvidia-ctk runtime configure --runtime=docker` and restart Docker; or use --engine local."
        )

    def ready(self, framework: Framework, device: Device) -> bool:
        """Whether the image for the present content is there."""
        with self._errors():
            return self._builder().exists(framework, device)

    def prepare(self, framework: Framework, device: Device, progress: Progress) -> Environment:
        """The framework's image, built where its content is new."""
        with self._errors():
            return self._builder().ensure(framework, device, progress)

    def _builder(self) -> ImageBuilder:
        return ImageBuilder(self._client, self._address, self._sources)

    def launch(
        self,
        environment: Environment,
        folder: LaunchFolder,
        limits: Limits,
        variables: Mapping[str, str],
        labels: Mapping[str, str],
        stopped: Callable[[], bool],
    ) -> Completion:
        """Run the worker in a container of its own, which is gone when this returns or raises. Raises DiskError where
        its output or its scratch folder cannot be written: then it is stopped, not waited for."""
        with self._errors():
            user = containers.user(self._host)
            options, warnings = containers.host_options(self._host, folder, limits)
            config = {
                "Image": environment.digest,
                "Cmd": containers.command(folder),
                "Env": [f"{name}={value}" for name, value in containers.variables(variables).items()],
                "User": "{}:{}".format(*user),
                "Hostname": "kit",
                "Labels": {f"kit.{name}": value for name, value in labels.items()},
                "HostConfig": options,
            }
            name = f"kit-{uuid.uuid4().hex[:12]}"
            with _scratch_of(folder.scratch, user), self._container(name, config) as creation:
                return self._run(name, creation, folder.log, limits, warnings, stopped)

    def sweep(self, alive: Callable[[str], bool]) -> list[str]:
        """Remove the containers of runs that are not alive; their names."""
        removed = []
        with self._errors():
            for container in self._client.containers(all=True, filters={"label": RUN_LABEL}):
                if not alive(container["Labels"][RUN_LABEL]):
                    self._remove(container["Id"])
                    removed.append(str(container["Names"][0]).lstrip("/"))
        return removed

    def remove_images(self) -> list[str]:
        """Remove every image that kit built here; their tags, or the ids of those that lost theirs. Raises EngineError
        where a container uses one."""
        removed = []
        with self._errors():
            # newest first: children, then parents
            for image in self._client.images(filters={"label": FRAMEWORK_LABEL}):
                tags = [str(tag) for tag in image["RepoTags"] or () if tag != "<none>:<none>"]
                for name in tags or [str(image["Id"])]:
                    self._client.remove_image(name)
                    removed.append(name)
        return removed

    @contextmanager
    def _container(self, name: str, config: dict[str, Any]) -> Iterator[futures.Future[dict[str, Any]]]:
        """Have the container made, and removed whatever happens. In the background, because a request that Ctrl-C
        breaks off may still make a container, after it was looked for in vain."""
        create: Callable[[Any, str], dict[str, Any]] = self._client.create_container_from_config
        creation: futures.Future[dict[str, Any]] = futures.Future()
        try:
            in_background(lambda: create(config, name), creation)
            yield creation
        finally:
            futures.wait([creation], KILL_S)
            self._remove(name)

    def _run(
        self,
        name: str,
        creation: futures.Future[dict[str, Any]],
        log: Path,
        limits: Limits,
        warnings: list[str],
        stopped: Callable[[], bool],
    ) -> Completion:
        began, began_at = time.monotonic(), time.time()
        with ExitStack() as output:
            try:
                warnings = [*warnings, *(creation.result().get("Warnings") or ())]
                chunks = output.enter_context(self._output(name))
                self._client.start(name)
            except docker.errors.APIError as error:
                seconds = time.monotonic() - began
                return Completion(None, seconds, not_started=str(error.explanation), warnings=tuple(warnings))
            logging = in_background(lambda: copy_output(chunks, log, containers.LOG_BYTES))
            watch = MemoryWatch.of_process(self._client.inspect_container(name)["State"]["Pid"])
            ending = in_background(lambda: int(self._client.wait(name, timeout=None)["StatusCode"]))
            outcome = _watch(ending, logging, watch, began + limits.timeout_s, stopped)
            if outcome == "unlogged":
                output.close()  # output that nobody reads can keep the engine from telling of the end
            if outcome != "ended":
                self._kill(name, ending)
            seconds, code = time.monotonic() - began, ending.result()
            logging.result(timeout=KILL_S)
        killed = code == SIGKILLED and outcome == "ended"  # and not by us
        out_of_memory = (
            watch.kills > 0
            or self._tells_of_memory(name, began_at, patience_s=1.0 if killed else 0.0)
            or (killed and watch.peak_bytes >= AT_LIMIT * limits.memory_bytes)
        )
        return Completion(code, seconds, outcome == "deadline", out_of_memory, warnings=tuple(warnings))

    @contextmanager
    def _output(self, name: str) -> Iterator[Iterator[bytes]]:
        """Stdout and stderr as they come. By attaching, so that the engine keeps no copy that could fill its disk."""
        stream = self._client.attach(name, stream=True)
        try:
            yield stream
        finally:
            stream.close()
            stream._response.close()  # type: ignore[attr-defined]  # noqa: SLF001 - docker-py leaves the socket open

    def _kill(self, name: str, ending: futures.Future[int]) -> None:
        """Kill and verify. Raises EngineError where the container outlives it."""
        try:
            self._client.kill(name)
        except docker.errors.APIError as error:
            if error.status_code != requests.codes.conflict:  # it ended by itself in this moment
                raise
        if not futures.wait([ending], KILL_S).done:
            raise EngineError(f"The container {name} could not be killed.", f"Restart {self.name}, then try again.")

    def _tells_of_memory(self, name: str, began_at: float, patience_s: float) -> bool:
        """Does the engine say that a process was killed for want of memory? Its event may come after the end, and its
        flag not at all."""
        if self._client.inspect_container(name)["State"]["OOMKilled"]:
            return True
        since, until = f"{began_at:.6f}", f"{time.time() + patience_s:.6f}"
        filters = {"container": name, "event": "oom"}
        events = self._client.events(since, until, filters)  # type: ignore[call-overload]  # the API takes fractions
        return any(True for _ in events)

    def _remove(self, name: str) -> None:
        try:
            self._client.remove_container(name, v=True, force=True)
        except docker.errors.NotFound:
            return
        except docker.errors.APIError as error:
            if error.status_code != requests.codes.conflict:
                raise
            self._client.wait(name, condition="removed", timeout=KILL_S)  # somebody else is removing it

    @cached_property
    def _address(self) -> str:
        """The engine's socket. Raises EngineError for an engine elsewhere: it could not mount folders from here."""
        if self.name == "podman":
            own = Path(f"/run/user/{os.getuid()}/podman/podman.sock")
            default = own if own.exists() else Path("/run/podman/podman.sock")
            address = os.environ.get("CONTAINER_HOST") or f"unix://{default}"
        else:
            address = os.environ.get("DOCKER_HOST") or str(ContextAPI.get_current_context().Host)
        if not address.startswith(("unix://", "http+unix://")):
            raise EngineError(
                f"The {self.name} engine at {without_user_info(address)} is not on this machine.",
                "Run kit on that machine, or set DOCKER_HOST to a unix:// socket here.",
            )
        return address

    @cached_property
    def _client(self) -> docker.APIClient:
        self._knock()
        client = docker.APIClient(base_url=self._address, version="auto")
        if tuple(map(int, client.api_version.split("."))) < MIN_API:
            raise EngineError(
                f"The {self.name} engine speaks API {client.api_version}, which is too old.",
                "Install Docker 19.03 or newer, or use --engine local.",
            )
        return client

    def _knock(self) -> None:
        """Raise EngineError, with the remedy for the cause, where nobody answers at the socket."""
        path = self._address.partition("://")[2]
        try:
            with socket.socket(socket.AF_UNIX) as probe:
                probe.connect(path)
        except PermissionError as error:
            raise EngineError(
                f"You may not use {self.name}'s socket {path}.",
                f"Join its group (`sudo usermod -aG {self.name} $USER`, then log in again), run this by sudo, or use "
                "--engine local.",
            ) from error
        except OSError as error:  # no such file, nobody listens
            start = "sudo systemctl start docker" if self.name == "docker" else "systemctl --user start podman.socket"
            raise EngineError(
                f"No {self.name} engine answers at {path}.",
                f"Install and start it (`{start}`), or use --engine local, which needs none.",
            ) from error

    def info(self) -> dict[str, Any]:
        """What the daemon says of itself (`/info`). Raises EngineError where it cannot be used."""
        with self._errors():
            return self._info

    @cached_property
    def _info(self) -> dict[str, Any]:
        info: dict[str, Any] = self._client.info()
        return info

    @cached_property
    def _host(self) -> containers.Host:
        return containers.Host.of(self._info)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn every failure of the engine or of the way to it into an EngineError."""
        try:
            yield
        except (
            requests.RequestException,
            docker.errors.DockerException,
            urllib3.exceptions.HTTPError,
            TimeoutError,
        ) as error:
            raise EngineError(
                f"The {self.name} engine failed or was lost: {error}",
                f"See whether it runs (`{self.name} info`) and what its log says; then continue.",
            ) from error


def _watch(
    ending: futures.Future[int],
    logging: futures.Future[None],
    watch: MemoryWatch,
    deadline: float,
    stopped: Callable[[], bool],
) -> Literal["ended", "unlogged", "deadline", "stopped"]:
    """Wait until the container ended or has to be ended. unlogged: its output is no longer read, so that it would
    soon stand still; the future has the reason."""
    while not futures.wait([ending], POLL_S).done:
        watch.read()
        if logging.done() and logging.exception() is not None:
            return "unlogged"
        if stopped():
            return "stopped"
        if time.monotonic() >= deadline:
            return "deadline"
    return "ended"


@contextmanager
def _scratch_of(scratch: Path, user: tuple[int, int]) -> Iterator[None]:
    """Make the places for home and caches, and where the caller is root lend the folder to the worker's user."""
    try:
        for place in containers.FOLDERS.values():
            (scratch / place).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DiskError(
            f"The folder {scratch} cannot be written: {error}", "Free some space, then continue."
        ) from error
    if os.getuid() != 0 or user == (0, 0):
        yield
        return
    try:
        _give(scratch, user)
        yield
    finally:
        _give(scratch, (0, 0))


def _give(folder: Path, owner: tuple[int, int]) -> None:
    os.chown(folder, *owner)
    for parent, directories, files in os.walk(folder):
        for name in [*directories, *files]:
            os.chown(Path(parent, name), *owner, follow_symlinks=False)
