"""Images: built through the engine's API when their content hash is new, with the build log kept.

Two steps, so that a changed scenario costs one small layer: the packages image (minutes, gigabytes), and on top of it
the image that launches run. The first one's build stage, which saw index, wheels and certificates, is deleted.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import docker
from filelock import FileLock

from kit.environments import build_context
from kit.environments.package_sources import Sources
from kit.host import paths
from kit.host.privacy import without_user_info
from kit.model.environment import Device, Environment, Framework
from kit.model.errors import DiskError, ImageError
from kit.model.progress import Progress, Task

FRAMEWORK_LABEL = "kit.framework"  # on every image of ours: the framework's name
TAIL_LINES = 12
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "NO_PROXY")


def repository(framework: Framework) -> str:
    """The repository part of a framework's image tags."""
    return f"kit-{framework.name}"


def log_folder() -> Path:
    """Where build logs are kept."""
    return paths.cache_folder() / "logs"


@dataclass(frozen=True)
class ImageBuilder:
    """Makes images in one engine. client: docker-py's API client. address: the engine's socket, as in DOCKER_HOST."""

    client: docker.APIClient
    address: str
    sources: Sources

    def ensure(self, framework: Framework, device: Device, progress: Progress) -> Environment:
        """The image for this content, built where the engine does not have it yet.

        Raises ImageError with the log's last lines and the remedy, DiskError where the disk is full. A lost engine
        shows as the client's own exception.
        """
        recipe = build_context.packages_recipe(framework, device)
        identity = build_context.identity(recipe, self._base_id(progress))
        tag = self._tag(framework, device, identity)
        if self._find(tag) is None:
            log_folder().mkdir(parents=True, exist_ok=True)
            with FileLock(log_folder() / "build.lock"):  # another kit may build the same, or the layers that all share
                packages = self._packages_image(framework, device, recipe, identity, progress)
                worker = build_context.worker_recipe()
                self._build(_Build(tag, framework.name, worker, {"PACKAGES_IMAGE": packages}), progress)
        image = self._inspect(tag)
        return Environment(framework.name, device, "image", tag, str(image["Id"]), int(image["Size"]))

    def exists(self, framework: Framework, device: Device) -> bool:
        """Whether the engine has the image for this content."""
        base = self._find(self.sources.base_image)
        if base is None:
            return False
        recipe = build_context.packages_recipe(framework, device)
        identity = build_context.identity(recipe, str(base["Id"]))
        return self._find(self._tag(framework, device, identity)) is not None

    def _tag(self, framework: Framework, device: Device, packages: str) -> str:
        identity = build_context.identity(build_context.worker_recipe(), packages)
        return f"{repository(framework)}:{device}-{identity}"

    def _packages_image(
        self, framework: Framework, device: Device, recipe: build_context.Recipe, identity: str, progress: Progress
    ) -> str:
        tag = f"{repository(framework)}:{device}-packages-{identity}"
        if self._find(tag) is None:
            sources = build_context.source_files(recipe["requirements.lock"].decode(), device, self.sources)
            arguments = {"BASE_IMAGE": self.sources.base_image, "IDENTITY": identity} | proxy_arguments(os.environ)
            try:
                self._build(_Build(tag, framework.name, {**recipe, **sources}, arguments), progress)
            finally:
                self._delete_build_stage(identity)
        return tag

    def _find(self, tag: str) -> dict[str, Any] | None:
        try:
            return self._inspect(tag)
        except docker.errors.ImageNotFound:
            return None

    def _inspect(self, tag: str) -> dict[str, Any]:
        inspect: Callable[[str], dict[str, Any]] = self.client.inspect_image
        return inspect(tag)

    def _base_id(self, progress: Progress) -> str:
        """Id of the base image, which is pulled where it is absent."""
        base = self.sources.base_image
        if self._find(base) is None:
            remedy = (
                f"Where no registry can be reached, make one (`debootstrap --variant=minbase bookworm DIR`, then "
                f"`tar -C DIR -c . | docker import - {base}`), or name one that is here by KIT_BASE_IMAGE."
            )
            try:
                with progress.task(f"pull {base}") as task:
                    for message in self.client.pull(base, stream=True, decode=True):
                        task.describe(str(message.get("status", "")))
                return str(self._inspect(base)["Id"])
            except docker.errors.APIError as error:
                reason = without_user_info(str(error.explanation))
                raise ImageError(f"The base image {base} cannot be pulled: {reason}", remedy) from error
        return str(self._inspect(base)["Id"])

    def _delete_build_stage(self, identity: str) -> None:
        """Delete what the build stage left: it is as large as the image and may hold an index URL with a password."""
        filters = {"dangling": True, "label": f"kit.packages={identity}"}
        while images := self.client.images(filters=filters):
            for image in images:  # without its parents: the first of them may serve another build in this moment
                self.client.remove_image(image["Id"], noprune=True)

    def _build(self, build: _Build, progress: Progress) -> None:
        log_path = log_folder() / f"{re.sub(r'[^a-z0-9]+', '-', build.tag)}.log"
        with (
            build_context.archive(build.files) as context,
            progress.task(f"image {build.tag}") as task,
            log_path.open("w", encoding="utf-8") as log,
        ):
            recorder = _Recorder(log, task)
            failure = self._run(build, context, recorder)
        if failure is not None:
            raise explain(build.tag, failure, recorder.tail(), log_path)

    def _run(self, build: _Build, context: IO[bytes], recorder: _Recorder) -> str | None:
        """What the builder says went wrong, or None. The command line builds where the API's builder is refused."""
        try:
            return recorder.follow(
                self.client.build(
                    fileobj=context,
                    custom_context=True,
                    tag=build.tag,
                    buildargs=dict(build.arguments),
                    labels={FRAMEWORK_LABEL: build.framework},
                    rm=True,
                    forcerm=True,
                    decode=True,
                )
            )
        except docker.errors.APIError as error:
            if not _builder_is_refused(error) or shutil.which("docker") is None:
                return str(error.explanation)
        context.seek(0)
        return self._run_command(build, context, recorder)

    def _run_command(self, build: _Build, context: IO[bytes], recorder: _Recorder) -> str | None:
        command = ["docker", "--host", self.address, "build", "--tag", build.tag]
        command += [f"--label={FRAMEWORK_LABEL}={build.framework}"]
        command += [f"--build-arg={name}" for name in build.arguments]  # values from the environment: `ps` shows none
        with subprocess.Popen(
            [*command, "-"],
            env={**os.environ, **build.arguments},
            stdin=context,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            assert process.stdout is not None
            recorder.follow({"stream": line} for line in process.stdout)
        return f"docker build ended with exit code {process.returncode}" if process.returncode else None


@dataclass(frozen=True)
class _Build:
    """files: the build context. arguments: what the recipe's ARGs get."""

    tag: str
    framework: str
    files: Mapping[str, Path | bytes]
    arguments: Mapping[str, str]


class _Recorder:
    """Writes a build's output to its log, without user info in URLs, and tells a person the step it is at."""

    def __init__(self, log: IO[str], task: Task) -> None:
        self._log = log
        self._task = task
        self._last: deque[str] = deque(maxlen=TAIL_LINES)

    def follow(self, messages: Iterable[Mapping[str, Any]]) -> str | None:
        """Take everything; returns the builder's error message where one came."""
        for message in messages:
            if "error" in message:
                self._write(str(message["error"]))
                return without_user_info(str(message["error"]))
            for line in _lines(message):
                self._write(line)
                self._task.describe(line.strip()[:100])
        return None

    def tail(self) -> list[str]:
        return list(self._last)

    def _write(self, line: str) -> None:
        shown = without_user_info(line)
        self._log.write(shown + "\n")
        self._log.flush()
        self._last.append(shown)


def _lines(message: Mapping[str, Any]) -> Iterator[str]:
    text = str(message.get("stream") or message.get("status") or "")
    return (line for line in text.splitlines() if line.strip())


def proxy_arguments(environment: Mapping[str, str]) -> dict[str, str]:
    """The proxy variables that are set, as build arguments: builders know them and keep them out of the image."""
    names = (name for upper in PROXIES for name in (upper, upper.lower()))
    return {name: environment[name] for name in names if environment.get(name)}


def _builder_is_refused(error: docker.errors.APIError) -> bool:
    """Does the daemon offer no classic builder (it answers so before it reads the context)?"""
    return error.status_code in (404, 405, 501) or "buildkit" in str(error.explanation).lower()


_DISK_REMEDY = "Free some space (`docker system df` shows what the engine holds, `kit clean` what is ours)."
_REMEDIES = {
    r"CERTIFICATE_VERIFY_FAILED|SSLError|certificate verify failed": (
        "A proxy or mirror uses a certificate that the build does not know: name its PEM file by KIT_CA_BUNDLE."
    ),
    r"DO NOT MATCH THE HASHES": (
        "The index or wheel folder serves another file than the list was made for. Do not install it; name another "
        "by KIT_INDEX_URL or KIT_FIND_LINKS."
    ),
    r"No matching distribution found|Could not find a version": (
        "The index does not have a package of the list: name another by KIT_INDEX_URL, or a page or folder with "
        "further wheels by KIT_FIND_LINKS."
    ),
    r"Python of the base image is \d": "Python 3.11 is needed: name a base image of Debian 12 by KIT_BASE_IMAGE.",
    r"Could not resolve|Temporary failure|NewConnectionError|Unable to fetch some archives|unreachable|timed out": (
        "The build cannot reach the network: check it, and behind a proxy set HTTP_PROXY and HTTPS_PROXY."
    ),
}


def explain(tag: str, failure: str, tail: list[str], log: Path) -> ImageError | DiskError:
    """The error for a failed build: what the builder said, the log's last lines, and the remedy for known causes."""
    text = "\n".join([*tail, failure])
    message = f"Building {tag} failed: {failure}\n" + "\n".join(f"  | {line}" for line in tail)
    if re.search(r"no space left on device", text, re.IGNORECASE):
        return DiskError(message, _DISK_REMEDY)
    remedy = next((remedy for pattern, remedy in _REMEDIES.items() if re.search(pattern, text)), "Try again.")
    return ImageError(message, f"{remedy}\nThe whole log: {log}")
