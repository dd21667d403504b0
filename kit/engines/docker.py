"""Run launches in containers: in Docker, or in Podman through its Docker-compatible socket."""

import os
import re
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent import futures
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from kit.engines import containers
from kit.engines.base import EngineEntry
from kit.engines.launch_log import copy_output
from kit.engines.memory import AT_LIMIT, MemoryWatch
from kit.engines.supervise import supervise
from kit.environments.daemon import Daemon, Refusal
from kit.environments.images import IMAGE_LABEL, ImageBuilder
from kit.environments.package_sources import Sources
from kit.host import gpus, machine_lock
from kit.host.background import in_background
from kit.host.limits import KILL_S
from kit.model.environment import Environment, Framework
from kit.model.errors import EngineError
from kit.model.launch import SIGKILLED, Completion, LaunchFolder, Limits
from kit.model.progress import Progress
from kit.storage.files import disk_errors
from scenarios.contract.cell import Device
from scenarios.linux import cgroup

OWN_TAG = re.compile(r"(localhost/|docker\.io/library/)?kit-")  # Podman adds a registry
RUN_LABEL = "kit.run"  # on every container of a launch: the run id, which is one of the labels that `launch` gets


class DockerEngine:
    """The engine of the Docker or Podman daemon on this machine. sources: what images are built from."""

    def __init__(self, sources: Sources, name: Literal["docker", "podman"] = "docker") -> None:
        self.name = name
        self.daemon = Daemon(name)
        self._builder = ImageBuilder(self.daemon, sources)

    def describe(self) -> dict[str, str]:
        """Return name, version and what else of the engine influences launches. Raise EngineError if it cannot be
        used."""
        self.daemon.require_reachable()  # a daemon that is ending still answers on the client's connection
        with self.daemon.errors():
            version, info = self.daemon.client.version(), self.daemon.info
        return {
            "engine": self.name,
            "version": str(version["Version"]),
            "api": str(version["ApiVersion"]),
            "storage_driver": str(info.get("Driver", "unknown")),
            "cgroup_version": str(info.get("CgroupVersion", "unknown")),
            "rootless": "yes" if self._host.rootless else "no",
            "runtime": containers.default_runtime(info, version),
        }

    def refusal(self, framework: Framework, device: Device) -> str | None:
        """Return why cells of this framework on this device cannot run, None if they can."""
        if device == "cpu":
            return None
        if self.name == "podman":
            return "Podman's Docker-compatible API ignores requests for GPUs. Use --engine docker or --engine local."
        if reason := gpus.refusal(framework):
            return reason
        runtimes = self.daemon.info.get("Runtimes") or {}
        if self._host.cdi or "nvidia" in runtimes or shutil.which("nvidia-container-runtime-hook"):
            return None
        return (
            "Docker cannot hand a GPU to a container (could not select device driver). Install the NVIDIA Container "
            "Toolkit, run `nvidia-ctk runtime configure --runtime=docker` and restart Docker, or use --engine local."
        )

    def ready(self, framework: Framework, device: Device) -> bool:
        """Return whether the image for the current content exists."""
        with self.daemon.errors():
            return self._builder.exists(framework, device)

    def prepare(self, framework: Framework, device: Device, progress: Progress) -> Environment:
        """Return the framework's image. Build it if its content is new."""
        with self.daemon.errors():
            return self._builder.ensure(framework, device, progress)

    def find(self, framework: Framework, device: Device, digest: str) -> Environment | None:
        """Return the image with this id if kit built it for the framework, else None."""
        with self.daemon.errors():
            return self._builder.find(framework, device, digest)

    def launch(
        self,
        environment: Environment,
        folder: LaunchFolder,
        limits: Limits,
        variables: Mapping[str, str],
        labels: Mapping[str, str],
        stopped: Callable[[], bool],
    ) -> Completion:
        """Run the worker in a new container, which is gone when this returns or raises.

        Raise DiskError if its output or its scratch folder cannot be written. The worker is then killed at once.
        """
        with self.daemon.errors():
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
            with _scratch_of(folder.scratch, user), self.daemon.container(name, config) as creation:
                return self._run(name, creation, folder.log, limits, warnings, stopped)

    def sweep(self, alive: Callable[[str], bool]) -> list[str]:
        """Remove the containers of runs that are not alive, and what stopped builds left. Return a line for each."""
        with self.daemon.errors():
            removed = [] if alive(machine_lock.ANY_RUN) else self._builder.remove_leftovers()
            for container in self.daemon.client.containers(all=True, filters={"label": RUN_LABEL}):
                if not alive(container["Labels"][RUN_LABEL]):
                    self.daemon.remove(container["Id"])
                    removed.append(f"container {str(container['Names'][0]).lstrip('/')}")
        return removed

    def remove_environments(self) -> list[str]:
        """Remove every image that kit built here. Return a line for each: its tag, or its id if it has no tag.

        Raise EngineError if a container uses one.
        """
        removed = []
        with self.daemon.errors():
            # newest first: children, then parents
            for image in self.daemon.client.images(filters={"label": IMAGE_LABEL}):
                tags = [str(tag) for tag in image["RepoTags"] or () if tag != "<none>:<none>"]
                own = [tag for tag in tags if OWN_TAG.match(tag)]
                if tags and not own:
                    continue  # somebody's image, which inherited the label of the image that it was built from
                for name in own or [str(image["Id"])]:
                    if reason := self.daemon.remove_image(name):
                        raise EngineError(
                            f"The image {name} cannot be removed: {reason}.", "Remove the container that uses it."
                        )
                    removed.append(f"image {name}")
        return removed

    def _run(
        self,
        name: str,
        creation: futures.Future[dict[str, Any]],
        log_path: Path,
        limits: Limits,
        warnings: list[str],
        stopped: Callable[[], bool],
    ) -> Completion:
        client, began = self.daemon.client, time.monotonic()
        with ExitStack() as output:
            try:
                warnings = [*warnings, *(creation.result().get("Warnings") or ())]
                chunks = output.enter_context(self.daemon.output(name))
                client.start(name)
            except Refusal as error:
                seconds = time.monotonic() - began
                return Completion(None, seconds, not_started=str(error.explanation), warnings=tuple(warnings))
            log = in_background(lambda: copy_output(chunks, log_path, containers.LOG_BYTES))
            process_id = client.inspect_container(name)["State"]["Pid"]  # 0 if it has ended
            memory = MemoryWatch(cgroup.folder_of("memory", process_id))
            exit_code = in_background(lambda: int(client.wait(name, timeout=None)["StatusCode"]))

            def ended(timeout_s: float) -> bool:
                return bool(futures.wait([exit_code], timeout_s).done)

            ending = supervise(ended, began + limits.timeout_s, memory.over_limit, log, stopped)
            if ending == "unlogged":
                output.close()  # output that is not read can keep the engine from reporting the end
            if ending != "ended":
                self.daemon.kill(name)
                if not ended(KILL_S):
                    raise EngineError(
                        f"The container {name} could not be killed.", f"Restart {self.name}, then try again."
                    )
            seconds, code = time.monotonic() - began, exit_code.result()
            log.result(timeout=KILL_S)
        killed = code == SIGKILLED and ending == "ended"  # by the kernel or another process, not by the engine
        out_of_memory = (
            memory.kills > 0
            or self.daemon.ran_out_of_memory(name, patience_s=1.0 if killed else 0.0)
            or (killed and memory.peak_bytes >= AT_LIMIT * limits.memory_bytes)
        )
        return Completion(code, seconds, ending == "deadline", out_of_memory, warnings=tuple(warnings))

    @cached_property
    def _host(self) -> containers.Host:
        return containers.Host.of(self.daemon.info)


@contextmanager
def _scratch_of(scratch: Path, user: tuple[int, int]) -> Iterator[None]:
    """Make the folders for home and caches. If the caller is root, lend the scratch folder to the worker's user."""
    with disk_errors(scratch):
        for place in containers.FOLDERS.values():
            (scratch / place).mkdir(parents=True, exist_ok=True)
    if os.getuid() != 0 or user == (0, 0):
        yield
        return
    try:
        _give(scratch, user)
        yield
    finally:
        _give(scratch, (0, 0))


def _give(folder: Path, owner: tuple[int, int]) -> None:
    with disk_errors(folder):
        for path in (folder, *folder.rglob("*")):
            os.chown(path, *owner, follow_symlinks=False)


ENGINES = (
    EngineEntry(
        "docker", "Docker", lambda sources, _: DockerEngine(sources), program="docker", makes="image", auto_rank=1
    ),
    EngineEntry(
        "podman", "Podman", lambda sources, _: DockerEngine(sources, "podman"), program="podman", makes="image"
    ),
)
