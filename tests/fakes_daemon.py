"""A fake daemon behind docker-py's APIClient, with a fault at one of its requests."""

from __future__ import annotations

import io
import itertools
import os
import tarfile
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from typing import IO, Any

import docker
import requests

from kit.environments.images import BUILD_CONTAINER, IMAGE_LABEL

# Images, containers and volumes of the user in `FakeClient.with_leftovers`.
USERS = {
    *("sha256:in-use", "sha256:mine", "sha256:tagged"),
    *("id-of-my-kit-build-1", "volume-of-my-kit-build-1", "id-of-my-ended", "volume-of-my-ended"),
}


class Killed(BaseException):
    """The process was killed. No clean-up of it reaches the daemon."""


def refusal(status: int, text: str, kind: type[docker.errors.APIError] = docker.errors.APIError) -> Exception:
    response = requests.Response()
    response.status_code, response.reason, response.url = status, "refused", "http+docker://localhost/v1.43/images"
    return kind(text, response, text)


class FakeClient:
    """The daemon as seen through docker-py's APIClient.

    nth, error: raised at the nth point, from 1, of all requests. Each request has a point before the daemon carries it
    out, and one after. places: all points in order. Files are kept as text, by name.
    """

    def __init__(self, nth: int = 0, error: BaseException | None = None) -> None:
        self.nth, self.error, self.places, self.dead = nth, error, list[str](), False
        self.timeout: float | None = 60.0
        self.commit_timeout: float | None = 60.0
        self.installed_with: dict[str, str] = {}
        self.exit_code = 0
        self.numbers = itertools.count()
        self.images_there: dict[str, dict[str, Any]] = {}
        self.containers_there: dict[str, dict[str, Any]] = {}
        self.volumes: dict[str, dict[str, str]] = {}

    def point(self, place: str) -> None:
        if self.dead:
            raise Killed
        self.places.append(place)
        if len(self.places) == self.nth:
            assert self.error is not None
            self.dead = isinstance(self.error, Killed)
            raise self.error

    @contextmanager
    def request(self, place: str) -> Iterator[None]:
        self.point(place)
        yield
        self.point(f"{place}: answer")

    def add_image(self, tag: str, parent: str, labels: dict[str, str], content: str) -> str:
        """Add an image. tag: empty for an image without one."""
        identity = f"sha256:{next(self.numbers)}"
        inherited = self.images_there[parent]["Labels"] if parent else {}
        tags = [tag] if tag else []
        self.images_there[identity] = {"Id": identity, "Size": 1, "RepoTags": tags, "Labels": inherited | labels}
        self.images_there[identity] |= {"Parent": parent, "Content": content}
        return identity

    def add_container(self, name: str, image: str, config: dict[str, Any], state: str = "exited") -> str:
        """Add a container with a volume. image: the id of its image."""
        identity, volume = f"id-of-{name}", f"volume-of-{name}"
        self.volumes[volume] = {}
        labels = self.images_there[image]["Labels"] | config.get("Labels", {})
        container = {"Id": identity, "Names": [f"/{name}"], "ImageID": image, "Labels": labels, "State": state}
        self.containers_there[identity] = container | {"Volume": volume, "Config": config}
        return identity

    def drop_container(self, identity: str) -> None:
        del self.volumes[self.containers_there.pop(identity)["Volume"]]

    def find(self, name: str) -> str:
        for identity, image in self.images_there.items():
            if name == identity or name in image["RepoTags"]:
                return identity
        raise refusal(404, f"No such image: {name}", docker.errors.ImageNotFound)

    def container(self, name: str) -> dict[str, Any]:
        for container in self.containers_there.values():
            if name in (container["Id"], *container["Names"]) or f"/{name}" in container["Names"]:
                return container
        raise refusal(404, f"No such container: {name}", docker.errors.NotFound)

    def inspect_image(self, tag: str) -> dict[str, Any]:
        with self.request("look for an image"):
            return self.images_there[self.find(tag)]

    def pull(self, base: str, *, stream: bool, decode: bool) -> Iterator[dict[str, str]]:
        self.point("pull the base image")

        def output() -> Iterator[dict[str, str]]:
            yield {"status": "Downloading"}
            self.point("pull the base image: output")
            self.add_image(base, "", {}, "")
            yield {"status": "Done"}

        return output()

    def build(
        self, *, fileobj: IO[bytes], tag: str, buildargs: dict[str, str], labels: dict[str, str], **_: bool
    ) -> Iterator[dict[str, str]]:
        self.point("build")
        files = texts(fileobj)
        parent = self.find(buildargs.get("PACKAGES_IMAGE") or buildargs["BASE_IMAGE"])

        def output() -> Iterator[dict[str, str]]:
            early = {IMAGE_LABEL: "system"} if f"LABEL {IMAGE_LABEL}=system" in files["Dockerfile"] else {}
            step = self.add_image("", parent, early, "")
            container = self.add_container(f"happy_{next(self.numbers)}", step, {})
            try:
                yield {"stream": "Step 1\n"}
                self.point("build: output")
            except (KeyboardInterrupt, Killed, GeneratorExit):  # the client is gone, so the daemon cleans up
                self.drop_container(container)
                raise
            self.drop_container(container)
            self.add_image(tag, step, labels, str(files))
            yield {"stream": "Done\n"}
            self.point("build: end of output")

        return output()

    def create_container_from_config(self, config: dict[str, Any], name: str) -> dict[str, Any]:
        with self.request("create the container"):
            return {"Id": self.add_container(name, self.find(config["Image"]), config)}

    def put_archive(self, name: str, path: str, data: IO[bytes]) -> bool:
        with self.request("copy the files"):
            container = self.container(name)
            assert container["Config"]["HostConfig"]["Mounts"] == [{"Type": "volume", "Target": path}]
            self.volumes[container["Volume"]] |= texts(data)
        return True

    def attach(self, name: str, *, stream: bool) -> Output:
        with self.request("attach to the container"):
            return Output(self)

    def start(self, name: str) -> None:
        with self.request("start the container"):
            self.installed_with = self.volumes[self.container(name)["Volume"]].copy()

    def wait(self, name: str, *, condition: str = "", timeout: float | None = None) -> dict[str, int]:
        with self.request("wait for the container"):
            if condition == "removed" and self.container(name):  # nobody removes it
                raise requests.ReadTimeout(f"Read timed out. (read timeout={timeout})")
            return {"StatusCode": self.exit_code}

    def commit(self, name: str, repository: str, tag: str) -> None:
        self.point("commit the container")
        self.commit_timeout = self.timeout
        config = self.container(name)["Config"]
        kept = str({key: value for key, value in config.items() if key != "HostConfig"})
        image = self.add_image("", self.find(config["Image"]), config["Labels"], kept)
        self.point("tag the image")
        self.images_there[image]["RepoTags"] = [f"{repository}:{tag}"]
        self.point("commit the container: answer")

    def containers(self, *, all: bool, filters: dict[str, str]) -> list[dict[str, Any]]:  # noqa: A002
        with self.request("list containers"):
            name, label = filters.get("name", ""), filters.get("label")
            return [
                found
                for found in self.containers_there.values()
                if name in found["Names"][0] and (label is None or label in found["Labels"])
            ]

    def images(self, *, filters: dict[str, Any]) -> list[dict[str, Any]]:
        with self.request("list images"):
            parents = {image["Parent"] for image in self.images_there.values()}
            listed = [image for image in self.images_there.values() if image["RepoTags"] or image["Id"] not in parents]
            return [
                image
                for image in reversed(listed)
                if filters["label"] in image["Labels"] and not (filters.get("dangling") and image["RepoTags"])
            ]

    def remove_container(self, name: str, *, v: bool, force: bool) -> None:
        with self.request("remove a container"):
            container = self.container(name)
            assert force or container["State"] != "running"
            if v:
                self.drop_container(container["Id"])
            else:
                del self.containers_there[container["Id"]]

    def remove_image(self, name: str, *, noprune: bool = False) -> None:
        with self.request("remove an image"):
            identity = self.find(name)
            users = [found["Names"][0] for found in self.containers_there.values() if found["ImageID"] == identity]
            if users:
                raise refusal(409, f"conflict: unable to remove {name}: container {users[0]} is using it")
            del self.images_there[identity]

    def leftovers(self) -> list[str]:
        """Return containers, volumes, and images without tag and child, but not those of the user."""
        parents = {image["Parent"] for image in self.images_there.values()}
        images = [i for i, image in self.images_there.items() if not image["RepoTags"] and i not in parents]
        return sorted({*self.containers_there, *self.volumes, *images} - USERS)

    def with_leftovers(self) -> FakeClient:
        """Add what a killed build left, and similar things of the user, which must stay."""
        label = {IMAGE_LABEL: "tiny"}
        images = (
            ("old", "", label),
            ("in-use", "", label),
            ("mine", "", {"other": "tiny"}),
            ("tagged", "kit-old:1", label),
        )
        for name, tag, labels in images:
            image = {"Id": f"sha256:{name}", "Size": 1, "RepoTags": [tag] if tag else [], "Labels": labels}
            self.images_there[f"sha256:{name}"] = image | {"Parent": "", "Content": ""}
        old = self.add_container(f"{BUILD_CONTAINER}old", "sha256:tagged", {})
        self.volumes[self.containers_there[old]["Volume"]]["pip.conf"] = "https://me:secret@mirror.example/simple"
        self.add_container("my-kit-build-1", "sha256:in-use", {}, state="running")
        self.add_container("my-ended", "sha256:tagged", {})
        return self


class Output:
    """The output of pip, in chunks that split the password."""

    def __init__(self, client: FakeClient) -> None:
        self._client, self._response = client, self

    def __iter__(self) -> Iterator[bytes]:
        yield b"Looking in indexes: https://me:sec"
        self._client.point("read the output")
        yield b"ret@mirror.example/simple\nInstalling"

    def close(self) -> None:
        pass


def texts(archive: IO[bytes]) -> dict[str, str]:
    descriptor = archive.fileno()  # reading the file itself could meet a fault that kit never meets
    content = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        return {member.name: tar.extractfile(member).read().decode() for member in tar}  # type: ignore[union-attr]


def at_once(work: Callable[[], Any], into: futures.Future[Any] | None = None) -> futures.Future[Any]:
    """Do the work in this thread, so that an interrupt may come before and after it."""
    future: futures.Future[Any] = into or futures.Future()
    try:
        future.set_result(work())
    except Exception as error:  # noqa: BLE001 - the future raises it
        future.set_exception(error)
    except BaseException:
        future.set_result({})
        raise
    return future
