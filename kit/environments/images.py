"""Build images through the engine's API when their content hash is new, and keep the build log.

There are two steps, so that a changed scenario costs one small layer. The first makes the packages image (minutes,
gigabytes). The second adds the scenarios to it. The build stage of the first step, which saw index, wheels and
certificates, is deleted.
"""

import os
import re
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from filelock import FileLock

from kit.environments import build_context
from kit.environments.daemon import Daemon, Refusal
from kit.environments.package_sources import Sources
from kit.host import paths
from kit.host.privacy import without_user_info
from kit.model.environment import Environment, Framework
from kit.model.errors import DiskError, ImageError
from kit.model.progress import Progress, Task
from kit.storage.files import NO_SPACE_TEXT
from scenarios.contract.cell import Device

FRAMEWORK_LABEL = "kit.framework"  # on every image that kit builds: the framework's name
TAIL_LINES = 12
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "NO_PROXY")


def log_folder() -> Path:
    """Return the folder that keeps build logs."""
    return paths.cache_folder() / "logs"


@dataclass(frozen=True)
class ImageBuilder:
    """Build the images of all frameworks in one daemon."""

    daemon: Daemon
    sources: Sources

    def ensure(self, framework: Framework, device: Device, progress: Progress) -> Environment:
        """Return the image for the current content. Build it if the daemon does not have it yet.

        Raise ImageError with the log's last lines and the remedy, DiskError if the disk is full. A lost daemon shows
        as the client's own exception.
        """
        recipe = build_context.packages_recipe(framework, device)
        identity = build_context.identity(recipe, self._base_id(progress))
        tag = _tag(framework, device, identity)
        if self.daemon.find_image(tag) is None:
            log_folder().mkdir(parents=True, exist_ok=True)
            with FileLock(log_folder() / "build.lock"):  # another kit may build the same image, or shared layers
                packages = self._packages_image(framework, device, recipe, identity, progress)
                worker = build_context.worker_recipe()
                self._build(tag, framework, worker, {"PACKAGES_IMAGE": packages}, progress)
        image = self.daemon.inspect_image(tag)
        return Environment(framework.name, device, "image", tag, str(image["Id"]), int(image["Size"]))

    def exists(self, framework: Framework, device: Device) -> bool:
        """Return whether the daemon has the image for the current content."""
        base = self.daemon.find_image(self.sources.base_image)
        if base is None:
            return False
        recipe = build_context.packages_recipe(framework, device)
        identity = build_context.identity(recipe, str(base["Id"]))
        return self.daemon.find_image(_tag(framework, device, identity)) is not None

    def _packages_image(
        self, framework: Framework, device: Device, recipe: build_context.Recipe, identity: str, progress: Progress
    ) -> str:
        tag = f"kit-{framework.name}:{device}-packages-{identity}"
        if self.daemon.find_image(tag) is None:
            sources = build_context.source_files(recipe["requirements.lock"].decode(), device, self.sources)
            arguments = {"BASE_IMAGE": self.sources.base_image, "IDENTITY": identity} | proxy_arguments(os.environ)
            try:
                self._build(tag, framework, {**recipe, **sources}, arguments, progress)
            finally:
                self._delete_build_stage(identity)
        return tag

    def _base_id(self, progress: Progress) -> str:
        """Return the base image's id. Pull the image if it is missing."""
        base = self.sources.base_image
        if (found := self.daemon.find_image(base)) is not None:
            return str(found["Id"])
        try:
            with progress.task(f"pull {base}") as task:
                for message in self.daemon.client.pull(base, stream=True, decode=True):
                    task.describe(str(message.get("status", "")))
            return str(self.daemon.inspect_image(base)["Id"])
        except Refusal as error:
            reason = without_user_info(str(error.explanation))
            raise ImageError(
                f"The base image {base} cannot be pulled: {reason}",
                "If no registry can be reached, make the image (`debootstrap --variant=minbase bookworm DIR`, then "
                f"`tar -C DIR -c . | docker import - {base}`), or set KIT_BASE_IMAGE to an image that exists here.",
            ) from error

    def _delete_build_stage(self, identity: str) -> None:
        """Delete the build stage: it is as large as the image and may hold an index URL with a password."""
        filters = {"dangling": True, "label": f"kit.packages={identity}"}
        while images := self.daemon.client.images(filters=filters):
            for image in images:  # without its parents: the first of them may serve another build in this moment
                self.daemon.client.remove_image(image["Id"], noprune=True)

    def _build(
        self,
        tag: str,
        framework: Framework,
        files: Mapping[str, Path | bytes],
        arguments: Mapping[str, str],
        progress: Progress,
    ) -> None:
        """Build one image. files: the build context. arguments: values of the recipe's ARG instructions."""
        log_path = log_folder() / f"{re.sub(r'[^a-z0-9]+', '-', tag)}.log"
        label = f"{FRAMEWORK_LABEL}={framework.name}"
        with (
            build_context.archive(files) as context,
            progress.task(f"image {tag}") as task,
            log_path.open("w", encoding="utf-8") as log,
        ):
            recorder = _Recorder(log, task)
            failure = recorder.follow(self.daemon.build(tag, context, arguments, label))
        if failure is not None:
            raise explain(tag, failure, list(recorder.tail), log_path)


def _tag(framework: Framework, device: Device, packages: str) -> str:
    identity = build_context.identity(build_context.worker_recipe(), packages)
    return f"kit-{framework.name}:{device}-{identity}"


class _Recorder:
    """Write a build's output to its log, without user info in URLs, and show the current step."""

    def __init__(self, log: IO[str], task: Task) -> None:
        self._log = log
        self._task = task
        self.tail: deque[str] = deque(maxlen=TAIL_LINES)

    def follow(self, messages: Iterable[Mapping[str, Any]]) -> str | None:
        """Consume all messages. Return the builder's error message, None if there is no error."""
        for message in messages:
            if "error" in message:
                self._write(str(message["error"]))
                return without_user_info(str(message["error"]))
            text = str(message.get("stream") or message.get("status") or "")
            for line in filter(str.strip, text.splitlines()):
                self._write(line)
                self._task.describe(line.strip()[:100])
        return None

    def _write(self, line: str) -> None:
        shown = without_user_info(line)
        self._log.write(shown + "\n")
        self._log.flush()
        self.tail.append(shown)


def proxy_arguments(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the proxy variables that are set, as build arguments. Builders keep these out of the image."""
    names = (name for upper in PROXIES for name in (upper, upper.lower()))
    return {name: environment[name] for name in names if environment.get(name)}


_DISK_REMEDY = "Free some space: `docker system df` shows what uses it, and `kit clean --images` removes kit's images."
_REMEDIES = {
    r"CERTIFICATE_VERIFY_FAILED|SSLError|certificate verify failed": (
        "A proxy or mirror uses a certificate that the build does not know. Set KIT_CA_BUNDLE to its PEM file."
    ),
    r"DO NOT MATCH THE HASHES": (
        "The index or wheel folder serves a file other than the one in the lock. Do not install it. Set KIT_INDEX_URL "
        "or KIT_FIND_LINKS to another source."
    ),
    r"No matching distribution found|Could not find a version": (
        "The index does not have a package of the lock. Set KIT_INDEX_URL to another index, or KIT_FIND_LINKS to a "
        "page or folder with more wheels."
    ),
    r"Python of the base image is \d": "Python 3.11 is needed. Set KIT_BASE_IMAGE to an image of Debian 12.",
    r"Could not resolve|Temporary failure|NewConnectionError|Unable to fetch some archives|unreachable|timed out": (
        "The build cannot reach the network. Check the connection. Behind a proxy, set HTTP_PROXY and HTTPS_PROXY."
    ),
}


def explain(tag: str, failure: str, tail: list[str], log: Path) -> ImageError | DiskError:
    """Return the error for a failed build: the builder's message, the log's last lines, the remedy for known causes."""
    text = "\n".join([*tail, failure])
    message = f"Building {tag} failed: {failure}\n" + "\n".join(f"  | {line}" for line in tail)
    if NO_SPACE_TEXT.search(text):
        return DiskError(message, _DISK_REMEDY)
    remedy = next((remedy for pattern, remedy in _REMEDIES.items() if re.search(pattern, text)), "Try again.")
    return ImageError(message, f"{remedy}\nBuild log: {log}")
