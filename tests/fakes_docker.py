"""Docker's engine with a fake client, for whole runs in unit tests."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import requests

from kit.engines.docker import DockerEngine
from kit.environments.package_sources import Sources
from kit.model.environment import Environment
from kit.model.launch import LaunchFolder
from scenarios.contract.codec import from_json
from scenarios.contract.request import REQUEST_FILE, Request
from tests import fakes


class Client:
    """A Docker client whose containers work. Some requests find that the daemon closed the connection.

    lost: "request", "answer" (the daemon carried out the request) or "all requests" from this one. nth: number of the
    request, from 1. made: all requests. there: labels of the containers that exist.
    """

    def __init__(self, lost: str = "", nth: int = 0) -> None:
        self.lost, self.nth = lost, nth
        self.made: list[str] = []
        self.there: dict[str, dict[str, Any]] = {}
        self.lock = threading.Lock()  # kit makes some requests in threads

    def _make(self, request: str, effect: Callable[[], Any]) -> Any:
        with self.lock:
            self.made.append(request)
            number = len(self.made)
        reset = requests.ConnectionError("Connection aborted.", ConnectionResetError(errno.ECONNRESET, "reset by peer"))
        its_turn = number == self.nth or (number > self.nth > 0 and self.lost == "all requests")
        if its_turn and self.lost != "answer":
            raise reset
        answer = effect()
        if its_turn:
            raise reset
        return answer

    def info(self) -> dict[str, Any]:
        return self._make("info", dict)

    def version(self) -> dict[str, Any]:
        return self._make("version", lambda: {"Version": "1", "ApiVersion": "1.43"})

    def containers(self, **_: Any) -> list[dict[str, Any]]:
        found = [{"Id": name, "Names": [name], "Labels": config["Labels"]} for name, config in self.there.items()]
        return self._make("list containers", lambda: found)

    def create_container_from_config(self, config: dict[str, Any], name: str) -> dict[str, Any]:
        return self._make("create container", lambda: self.there.update({name: config}) or {})

    def attach(self, name: str, *, stream: bool) -> Output:
        return self._make("attach", Output)

    def start(self, name: str) -> None:
        self._make("start container", lambda: self._work(name))

    def _work(self, name: str) -> None:
        scratch = Path(self.there[name]["HostConfig"]["Mounts"][0]["Source"])
        request = from_json(Request, (scratch / REQUEST_FILE).read_bytes())
        fakes.works(request, LaunchFolder(scratch, None, scratch.parent / "unused"))
        (scratch.parent / "unused").unlink()

    def inspect_container(self, name: str) -> dict[str, Any]:
        times = {"StartedAt": "2026-01-01T00:00:00Z", "FinishedAt": "2026-01-01T00:00:01Z"}
        return self._make("inspect container", lambda: {"State": {"Pid": 0, "OOMKilled": False, **times}})

    def wait(self, name: str, **_: Any) -> dict[str, Any]:
        return self._make("wait for container", lambda: {"StatusCode": 0})

    def kill(self, name: str) -> None:
        self._make("kill container", lambda: None)

    def remove_container(self, name: str, **_: Any) -> None:
        self._make("remove container", lambda: self.there.pop(name, None))

    def events(self, *_: Any) -> Output:
        return self._make("events", Output)


class Output:
    """An empty stream of the daemon."""

    def __init__(self) -> None:
        self._response = self

    def __iter__(self) -> Iterator[bytes]:
        return iter(())

    def close(self) -> None:
        pass


def docker_engine(client: Client) -> DockerEngine:
    """Return Docker's engine with this client and an image that needs no build."""
    engine = DockerEngine(Sources())
    engine.daemon.__dict__ |= {"client": client, "require_reachable": lambda: None}
    image = Environment("torch", "cpu", "image", "kit-torch:cpu", "sha256:0")
    builder = SimpleNamespace(ensure=lambda *_: image, exists=lambda *_: True, remove_leftovers=list)
    engine.__dict__["_builder"] = builder
    return engine
