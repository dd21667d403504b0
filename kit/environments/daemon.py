"""The Docker or Podman daemon of this machine. The only module that imports docker-py."""

import os
import platform
import re
import shutil
import socket
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent import futures
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import IO, Any, Literal

import docker
import requests
import urllib3
from docker.context import ContextAPI

from kit.environments.subprocesses import running
from kit.host.background import in_background
from kit.host.limits import KILL_S
from kit.host.privacy import without_user_info
from kit.model.errors import DiskError, EngineError
from scenarios.contract.disk import says_full

MIN_API = (1, 40)  # Docker 19.03: device requests
EVENT_S = 2.0  # limit for the daemon's answer about a container that has ended

DISK_REMEDY = "Free some space: `docker system df` shows what uses it, and `kit clean --images` removes kit's images."

CONTEXT_REMEDY = "Choose one of `docker context ls`, for example with `docker context use default`, or set DOCKER_HOST."

# The daemon refused a request. `explanation` is its message.
Refusal = docker.errors.APIError


class Daemon:
    """The daemon behind a local socket. Podman serves Docker's API at another socket."""

    def __init__(self, name: Literal["docker", "podman"]) -> None:
        self.name = name

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turn every failure of the daemon, or of the connection to it, into an EngineError, or a DiskError if the
        daemon's disk is full."""
        try:
            yield
        except (
            requests.RequestException,
            docker.errors.DockerException,
            urllib3.exceptions.HTTPError,
            TimeoutError,
        ) as error:
            text = re.sub(r"\?\S+", "", str(error))  # the query of a URL may contain the password of a proxy
            if says_full(text):
                raise DiskError(f"The disk of the {self.name} engine is full: {text}", DISK_REMEDY) from error
            raise EngineError(
                f"The {self.name} engine failed or was lost: {text}",
                f"Check that it runs (`{self.name} info`) and read its log, then continue.",
            ) from error

    @cached_property
    def address(self) -> str:
        """The daemon's socket, as in DOCKER_HOST. Raise EngineError if the daemon is on another machine: it could not
        mount folders of this one."""
        if self.name == "podman":
            own = Path(f"/run/user/{os.getuid()}/podman/podman.sock")
            default = own if own.exists() else Path("/run/podman/podman.sock")
            address = os.environ.get(self._variable) or f"unix://{default}"
        else:
            address = os.environ.get(self._variable) or _context_address()
        if not address.startswith(("unix://", "http+unix://")):
            raise EngineError(
                f"The {self.name} engine at {without_user_info(address)} is not on this machine.",
                f"Run kit on that machine, or set {self._variable} to a unix:// socket here.",
            )
        return address

    @property
    def _variable(self) -> str:
        """Return the environment variable that names the socket."""
        return "CONTAINER_HOST" if self.name == "podman" else "DOCKER_HOST"

    @cached_property
    def client(self) -> docker.APIClient:
        """docker-py's API client. Raise EngineError if the daemon does not answer or its API is too old."""
        self.require_reachable()
        client = docker.APIClient(base_url=self.address, version="auto")
        if tuple(map(int, client.api_version.split("."))) < MIN_API:
            raise EngineError(
                f"The {self.name} engine offers API version {client.api_version}, which is too old.",
                "Install Docker 19.03 or newer, or use --engine local.",
            )
        return client

    def require_reachable(self) -> None:
        """Raise EngineError, with the remedy for the cause, if no daemon accepts connections at the socket."""
        path = self.address.partition("://")[2]
        try:
            with socket.socket(socket.AF_UNIX) as probe:
                probe.connect(path)
        except PermissionError as error:
            raise EngineError(
                f"You are not allowed to use {self.name}'s socket {path}.",
                f"Join its group (`sudo usermod -aG {self.name} $USER`, then log in again), run kit with sudo, or use "
                "--engine local.",
            ) from error
        except OSError as error:  # no such file, or no process listens
            start = "sudo systemctl start docker" if self.name == "docker" else "systemctl --user start podman.socket"
            raise EngineError(
                f"No {self.name} engine answers at {path}.",
                f"Install and start it (`{start}`), or use --engine local, which needs no daemon.",
            ) from error

    @cached_property
    def info(self) -> dict[str, Any]:
        """The daemon's description of itself (`/info`). Raise EngineError if it cannot be used, or if it has another
        kernel: a socket can lead to a virtual machine, whose CPUs, memory and clock are not this machine's."""
        with self.errors():
            info: dict[str, Any] = self.client.info()
        kernel = info.get("KernelVersion") or platform.release()
        if kernel != platform.release():
            raise EngineError(
                f"The {self.name} engine runs in a virtual machine or on another machine: its kernel is {kernel}, that "
                f"of this machine is {platform.release()}.",
                f"Set {self._variable} to the socket of an engine on this machine, or use --engine local.",
            )
        return info

    def inspect_image(self, tag: str) -> dict[str, Any]:
        """Return the description of an image. Raise Refusal if the daemon does not have it."""
        inspect: Callable[[str], dict[str, Any]] = self.client.inspect_image
        return inspect(tag)

    def find_image(self, tag: str) -> dict[str, Any] | None:
        """Return the description of an image, None if the daemon does not have it."""
        try:
            return self.inspect_image(tag)
        except docker.errors.ImageNotFound:
            return None

    def build(
        self, tag: str, context: IO[bytes], arguments: Mapping[str, str], labels: Mapping[str, str]
    ) -> Generator[dict[str, Any], None, None]:
        """Build an image and yield the builder's messages. A message with the key `error` says that the build failed.

        context: a tar file. If the daemon refuses its API's builder, the command line builds.
        """
        try:
            yield from self.client.build(
                fileobj=context,
                custom_context=True,
                tag=tag,
                buildargs=dict(arguments),
                labels=dict(labels),
                rm=True,
                forcerm=True,
                decode=True,
            )
        except docker.errors.APIError as error:
            if not _builder_is_refused(error) or shutil.which("docker") is None:
                yield {"error": error.explanation}
                return
        else:
            return
        context.seek(0)
        command = ["docker", "--host", self.address, "build", "--tag", tag]
        command += [f"--label={key}={value}" for key, value in labels.items()]
        command += [f"--build-arg={name}" for name in arguments]  # values from the environment: `ps` does not show them
        with running([*command, "-"], {**os.environ, **arguments}, stdin=context) as process:
            assert process.stdout is not None
            yield from ({"stream": line} for line in process.stdout)
        if process.returncode:
            yield {"error": f"docker build ended with exit code {process.returncode}"}

    @contextmanager
    def container(self, name: str, config: dict[str, Any]) -> Iterator[futures.Future[dict[str, Any]]]:
        """Create a container, and remove it in every case. If an error ends the block and the removal fails, too, raise
        the first error, with a note about the container.

        config: as in the engine's API. Yield the creation, which runs in the background: a request that Ctrl-C breaks
        off may still create a container, after the search for it found nothing.
        """
        create: Callable[[Any, str], dict[str, Any]] = self.client.create_container_from_config
        creation: futures.Future[dict[str, Any]] = futures.Future()
        try:
            in_background(lambda: create(config, name), creation)
            yield creation
            self._remove_created(name, creation)
        except BaseException as error:  # also Ctrl-C during the removal
            try:
                self._remove_created(name, creation)
            except Exception as failure:  # noqa: BLE001 - the note says so
                error.add_note(f"The container {name} could not be removed: {failure} `kit clean` removes it.")
            raise

    def _remove_created(self, name: str, creation: futures.Future[dict[str, Any]]) -> None:
        futures.wait([creation], KILL_S)
        self.remove(name)

    @contextmanager
    def output(self, name: str) -> Iterator[Iterator[bytes]]:
        """Stream a container's stdout and stderr. Attach to it, so that the daemon keeps no copy that could fill its
        disk."""
        stream = self.client.attach(name, stream=True)
        try:
            yield stream
        finally:
            stream.close()
            stream._response.close()  # type: ignore[attr-defined]  # noqa: SLF001 - docker-py leaves the socket open

    def commit(self, name: str, tag: str) -> None:
        """Make an image from a container. For gigabytes, this takes longer than the client's limit for a request."""
        repository, _, version = tag.partition(":")
        limit = self.client.timeout
        self.client.timeout = None  # type: ignore[assignment]  # no limit, as in requests
        try:
            self.client.commit(name, repository, version)
        finally:
            self.client.timeout = limit

    def kill(self, name: str) -> None:
        """Kill a container, unless it has ended."""
        try:
            self.client.kill(name)
        except docker.errors.APIError as error:
            if error.status_code != requests.codes.conflict:  # it ended in this moment
                raise

    def remove(self, name: str) -> None:
        """Remove a container, running or not, unless it is gone."""
        try:
            self.client.remove_container(name, v=True, force=True)
        except docker.errors.NotFound:
            return
        except docker.errors.APIError as error:
            if error.status_code != requests.codes.conflict:
                raise
            with suppress(docker.errors.NotFound):  # another process is removing it, or has just removed it
                self.client.wait(name, condition="removed", timeout=KILL_S)

    def remove_image(self, name: str, *, noprune: bool = False) -> str | None:
        """Remove an image, or its tag. Return why it must stay, None if it was removed. noprune: keep its parents."""
        try:
            self.client.remove_image(name, noprune=noprune)
        except docker.errors.APIError as error:
            if error.status_code != requests.codes.conflict:
                raise
            return str(error.explanation)
        return None

    def ran_out_of_memory(self, name: str, patience_s: float) -> bool:
        """Return whether the daemon says that a process of this container was killed because memory ran out.

        The container has ended. patience_s: how long to wait for the daemon's event, which may come after the end. The
        container's flag may never be set. All times are of the daemon's clock, which may differ from this machine's.
        """
        state = self.client.inspect_container(name)["State"]
        if state["OOMKilled"]:
            return True
        began, ended = (datetime.fromisoformat(state[moment]).timestamp() for moment in ("StartedAt", "FinishedAt"))
        span = f"{began:.6f}", f"{ended + patience_s:.6f}"
        filters = {"container": name, "event": "oom"}
        events = self.client.events(*span, filters)  # type: ignore[call-overload]  # the API takes fractions
        try:
            return in_background(lambda: any(True for _ in events)).result(timeout=EVENT_S)
        except TimeoutError:
            return False
        finally:
            events.close()


def _context_address() -> str:
    """Return the address of the context that the docker command uses. Raise EngineError if there is no such context."""
    try:
        context = ContextAPI.get_context(os.environ.get("DOCKER_CONTEXT"))
    except Exception as error:  # docker-py raises it if the file of the context is damaged
        raise EngineError(f"Docker's context cannot be used: {error}", CONTEXT_REMEDY) from error
    if context is None:
        raise EngineError("Docker's current context does not exist.", CONTEXT_REMEDY)
    return str(context.Host)


def _builder_is_refused(error: docker.errors.APIError) -> bool:
    """Return whether the daemon offers no classic builder. It says so before it reads the context."""
    return error.status_code in (404, 405, 501) or "buildkit" in str(error.explanation).lower()
