"""Build images through the engine's API when their content hash is new, and keep the build log.

There are three steps. The system image has the Linux packages. A container of it installs the framework's packages and
becomes the packages image (minutes, gigabytes). The last step adds the scenarios, so that a changed scenario costs one
small layer. Index, wheels and certificates are in a temporary volume of the container, never in an image.

Only one build runs at a time, because the caller holds the machine's lock.
"""

import json
import os
import re
import uuid
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from kit.environments import build_context
from kit.environments.build_context import Layer
from kit.environments.daemon import DISK_REMEDY, Daemon, Refusal
from kit.environments.package_sources import Sources
from kit.host import paths
from kit.host.privacy import without_user_info
from kit.model.environment import Environment, Framework
from kit.model.errors import DiskError, ImageError
from kit.model.progress import Progress
from kit.storage.files import disk_errors
from scenarios.contract.cell import Device
from scenarios.contract.disk import says_full

IMAGE_LABEL = "kit.image"  # on every image that kit builds: the framework's name, or `system`
BUILD_CONTAINER = "kit-build-"  # prefix of the name of a container that installs packages
BUILD_FOLDER = "/build"  # in that container: the recipe, and where packages come from
TAIL_LINES = 12
LOG_REMEDY = "Set KIT_CACHE_DIR to another folder that you can write to."
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

        Raise ImageError with the log's last lines and the remedy, DiskError if the disk is full or a file cannot be
        read or written. A lost daemon shows as the client's own exception.
        """
        self.remove_leftovers()
        system, packages, worker = build_context.layers(framework, device, self._base_id(progress))
        if self.daemon.find_image(worker.tag) is None:
            if self.daemon.find_image(packages.tag) is None:
                if self.daemon.find_image(system.tag) is None:
                    base = {"BASE_IMAGE": self.sources.base_image}
                    self._build(system, "system", base | proxies(os.environ), progress)
                sources = build_context.source_files(
                    packages.recipe["requirements.lock"].decode(), device, self.sources
                )
                self._install(packages, framework.name, system.tag, sources, progress)
            self._build(worker, framework.name, {"PACKAGES_IMAGE": packages.tag}, progress)
        image = self.daemon.inspect_image(worker.tag)
        return Environment(framework.name, device, "image", worker.tag, str(image["Id"]), int(image["Size"]))

    def exists(self, framework: Framework, device: Device) -> bool:
        """Return whether the daemon has the image for the current content."""
        base = self.daemon.find_image(self.sources.base_image)
        if base is None:
            return False
        *_, worker = build_context.layers(framework, device, str(base["Id"]))
        return self.daemon.find_image(worker.tag) is not None

    def find(self, framework: Framework, device: Device, digest: str) -> Environment | None:
        """Return the image with this id if it was built for the framework, else None."""
        image = self.daemon.find_image(digest)
        if image is None or image["Id"] != digest:  # the daemon also finds images by the beginning of their id
            return None
        if (image["Config"]["Labels"] or {}).get(IMAGE_LABEL) != framework.name:
            return None
        reference = str(next(iter(image["RepoTags"] or ()), digest))
        return Environment(framework.name, device, "image", reference, digest, int(image["Size"]))

    def remove_leftovers(self) -> list[str]:
        """Remove what stopped builds left: containers with their volumes, and images without a tag. Return a line for
        each. No build may be running."""
        client, removed, in_use = self.daemon.client, list[str](), set[str]()
        unfinished = {"dangling": True, "label": IMAGE_LABEL}
        steps = {str(image["Id"]) for image in client.images(filters=unfinished)}
        for container in client.containers(all=True, filters={"label": IMAGE_LABEL}):
            name = str(container["Names"][0]).lstrip("/")
            # A builder names the containers of its steps itself. One of them is left if the daemon is killed.
            of_step = container["ImageID"] in steps and container["State"] != "running"
            if name.startswith(BUILD_CONTAINER) or of_step:
                self.daemon.remove(container["Id"])
                removed.append(f"container {name}")
        # Repeat: without an image, its parent may be one without a child.
        while images := [str(i["Id"]) for i in client.images(filters=unfinished) if str(i["Id"]) not in in_use]:
            for image in images:
                if self.daemon.remove_image(image, noprune=True):  # its parents may be layers of the user's own images
                    in_use.add(image)  # by a container of the user
                else:
                    removed.append(f"image {image}")
        return removed

    def _base_id(self, progress: Progress) -> str:
        """Return the base image's id. Pull the image if it is missing."""
        base = self.sources.base_image
        if (found := self.daemon.find_image(base)) is not None:
            return str(found["Id"])
        failure = ""
        try:
            with progress.task(f"base image {base}"):
                for message in self.daemon.client.pull(base, stream=True, decode=True):
                    failure = str(message.get("error", failure))
            return str(self.daemon.inspect_image(base)["Id"])
        except Refusal as error:
            reason = without_user_info(failure or str(error.explanation))
            if says_full(reason):
                raise DiskError(f"The base image {base} cannot be pulled: {reason}", DISK_REMEDY) from error
            raise ImageError(
                f"The base image {base} cannot be pulled: {reason}",
                "If no registry can be reached, make the image (`debootstrap --variant=minbase bookworm DIR`, then "
                f"`tar -C DIR -c . | docker import - {base}`), or set KIT_BASE_IMAGE to an image that exists here.",
            ) from error

    def _build(self, layer: Layer, label: str, arguments: Mapping[str, str], progress: Progress) -> None:
        """Build one image from its recipe. arguments: values of the recipe's ARG instructions."""
        with build_context.archive(layer.recipe) as context, _recording(layer.tag, progress) as recorder:
            with closing(self.daemon.build(layer.tag, context, arguments, {IMAGE_LABEL: label})) as built:
                failure = recorder.follow(built)
            if failure is not None:
                raise recorder.error(failure)

    def _install(
        self,
        layer: Layer,
        label: str,
        system: str,
        sources: Mapping[str, Path | bytes],
        progress: Progress,
    ) -> None:
        """Install the packages in a container of the system image, and make the packages image from it.

        sources: the files that say where packages come from. They and the proxies are only in a volume of the
        container, because everything else of the container becomes part of the image.
        """
        client = self.daemon.client
        files = {**layer.recipe, **sources, "proxies.json": json.dumps(proxies(os.environ)).encode()}
        config = {
            "Image": system,
            "Entrypoint": ["python3", f"{BUILD_FOLDER}/install.py"],
            "User": "0:0",
            "Labels": {IMAGE_LABEL: label},
            "HostConfig": {
                "Mounts": [{"Type": "volume", "Target": BUILD_FOLDER}],
                "CapDrop": ["ALL"],
                "SecurityOpt": ["no-new-privileges"],
                "LogConfig": {"Type": "none", "Config": {}},  # the output is read while it comes
            },
        }
        name = f"{BUILD_CONTAINER}{uuid.uuid4().hex[:12]}"
        with build_context.archive(files) as context, _recording(layer.tag, progress) as recorder:
            try:
                with self.daemon.container(name, config) as creation:
                    creation.result()
                    client.put_archive(name, BUILD_FOLDER, context)
                    with self.daemon.output(name) as chunks:
                        client.start(name)
                        recorder.follow(_messages(chunks))
                    code = int(client.wait(name)["StatusCode"])
                    if code:
                        raise recorder.error(f"pip ended with exit code {code}")
                    self.daemon.commit(name, layer.tag)
            except Refusal as error:
                raise recorder.error(str(error.explanation)) from error


@contextmanager
def _recording(tag: str, progress: Progress) -> Iterator["_Recorder"]:
    """Show the build of an image as a task, and keep its output in a log."""
    path = log_folder() / f"{re.sub(r'[^a-z0-9]+', '-', tag)}.log"
    with disk_errors(path, LOG_REMEDY):
        path.parent.mkdir(parents=True, exist_ok=True)
        log = path.open("wb", buffering=0)  # with a buffer, closing would fail again after a full disk
    with log, progress.task(f"image {tag}"):
        yield _Recorder(tag, log)


def _messages(chunks: Iterable[bytes]) -> Iterator[dict[str, str]]:
    """Yield each line of a container's output as a message of a builder."""
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        yield from ({"stream": line.decode(errors="replace")} for line in lines)
    yield {"stream": rest.decode(errors="replace")}


class _Recorder:
    """Write a build's output to its log, without user info in URLs."""

    def __init__(self, tag: str, log: IO[bytes]) -> None:
        self._tag = tag
        self._log = log
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
        return None

    def error(self, failure: str) -> ImageError | DiskError:
        """Return the error of a failed build. failure: the builder's message."""
        return explain(self._tag, without_user_info(failure), list(self.tail), Path(self._log.name))

    def _write(self, line: str) -> None:
        shown = without_user_info(line)
        with disk_errors(Path(self._log.name), LOG_REMEDY):
            self._log.write(f"{shown}\n".encode(errors="replace"))
        self.tail.append(shown)


def proxies(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the proxy variables that are set, each in upper and lower case: APT reads only the latter. Builders keep
    build arguments with these names out of the image."""
    found = dict[str, str]()
    for upper in PROXIES:
        lower = upper.lower()
        own, other = environment.get(upper, ""), environment.get(lower, "")
        if own or other:
            found |= {upper: own or other, lower: other or own}
    return found


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
    if says_full(text):
        return DiskError(message, DISK_REMEDY)
    remedy = next((remedy for pattern, remedy in _REMEDIES.items() if re.search(pattern, text)), "Try again.")
    return ImageError(message, f"{remedy}\nBuild log: {log}")
