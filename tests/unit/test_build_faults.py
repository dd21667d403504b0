"""Test that interrupts and faults while an image is built leave no secret, and nothing that the next build keeps.

Each request to the engine and each function of kit that calls the operating system gets each kind of fault.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable
from concurrent import futures
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import requests

from kit import assets
from kit.engines.base import EngineEntry
from kit.engines.docker import DockerEngine
from kit.environments import images
from kit.environments.images import BUILD_CONTAINER, IMAGE_LABEL
from kit.environments.package_sources import Sources
from kit.execution.clean import clean
from kit.model.environment import Environment, Framework
from kit.model.errors import DiskError, EngineError, ImageError, KitError
from kit.model.progress import Silent
from tests import faults
from tests.fakes_daemon import USERS, FakeClient, Killed, at_once, refusal
from tests.programs import HANG, at_line, interrupt, program, require_ended

LOST = (
    "HTTPConnectionPool(host='localhost', port=None): Max retries exceeded with url: /v1.43/build?t=kit&buildargs="
    "%7B%22HTTPS_PROXY%22%3A+%22http%3A%2F%2Fme%3Asecret%40proxy%22%7D (Caused by NewConnectionError('refused'))"
)
# How to make the exception of each fault of the engine, and what it may become.
FAULTS: dict[str, tuple[Callable[[], BaseException], tuple[type[KitError], ...]]] = {
    "interrupt": (KeyboardInterrupt, ()),
    "kill": (Killed, ()),
    "engine lost": (lambda: requests.ConnectionError(LOST), (EngineError,)),
    "no answer": (lambda: requests.ReadTimeout("Read timed out. (read timeout=60)"), (EngineError,)),
    "engine's error": (lambda: refusal(500, "internal error"), (EngineError, ImageError)),
    "conflict": (lambda: refusal(409, "conflict"), (EngineError, ImageError)),
    "engine's disk full": (lambda: refusal(500, "write /var/lib/docker/x: no space left on device"), (DiskError,)),
}


@pytest.fixture
def framework(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Framework:
    """Return a framework in small assets, with an own cache folder."""
    folder = tmp_path / "docker" / "tiny"
    folder.mkdir(parents=True)
    for name in ("Dockerfile", "Dockerfile.worker", "install.py"):
        shutil.copyfile(assets.ROOT / "docker" / name, folder.parent / name)
    (folder / "cpu.lock").write_text("tiny==1.0 --hash=sha256:00\n")
    for name in ("frameworks/tiny/adapter.py", "worker.py"):
        (tmp_path / "scenarios" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "scenarios" / name).write_text("worker = 1\n")
    monkeypatch.setattr(assets, "ROOT", tmp_path)
    monkeypatch.setenv("KIT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("HTTPS_PROXY", "http://me:secret@proxy")
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # the power is never cut
    return Framework("tiny", "Tiny", ("cpu",), (), None, None, None, folder)


@pytest.fixture
def sources(tmp_path: Path) -> Sources:
    """Return sources with a password, a wheel folder and a CA bundle."""
    (tmp_path / "wheels").mkdir()
    for name in ("wheels/tiny-1.0-py3-none-any.whl", "ca.pem"):
        (tmp_path / name).write_text("content")
    return Sources("https://me:secret@mirror.example/simple", str(tmp_path / "wheels"), tmp_path / "ca.pem")


def engine_of(client: object, sources: Sources) -> DockerEngine:
    engine = DockerEngine(sources)
    engine.daemon.__dict__["client"] = client
    return engine


def require_no_secret(client: FakeClient, cache: Path) -> None:
    """Check all that is left. Only the volume of a container that the next attempt removes may have the password."""
    assert "secret" not in json.dumps([client.images_there, client.containers_there])
    owners = {container["Volume"]: container["Names"][0] for container in client.containers_there.values()}
    secret = [volume for volume, files in client.volumes.items() if "secret" in str(files)]
    assert all(owners[volume].startswith(f"/{BUILD_CONTAINER}") for volume in secret)
    assert not [file for file in cache.rglob("*") if file.is_file() and "secret" in file.read_text()]


@pytest.mark.parametrize("fault", FAULTS)
def test_after_every_fault_of_the_engine_the_next_build_succeeds(
    tmp_path: Path, framework: Framework, sources: Sources, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    monkeypatch.setattr("kit.environments.daemon.in_background", at_once)
    whole = FakeClient().with_leftovers()
    expected = engine_of(whole, sources).prepare(framework, "cpu", Silent())
    assert {"remove a container", "tag the image", "build: output"} < set(whole.places)
    assert whole.commit_timeout is None, "a commit of gigabytes takes longer than the limit for other requests"
    assert whole.timeout == 60.0
    assert "me:secret@" in whole.installed_with["pip.conf"]
    make_error, kinds = FAULTS[fault]
    for nth, place in enumerate(whole.places, 1):
        for mend in ("prepare", "sweep"):
            error = make_error()
            client = FakeClient(nth, error).with_leftovers()
            engine = engine_of(client, sources)
            ended = faults.attempt(partial(engine.prepare, framework, "cpu", Silent()), error, *kinds)
            assert client.places[nth - 1] == place
            assert ended.result is None or ended.result.reference == expected.reference, place
            require_no_secret(client, tmp_path / "cache")
            if fault == "interrupt":
                left = {*client.containers_there, *client.volumes} & set(client.leftovers())
                assert left <= {f"id-of-{BUILD_CONTAINER}old", f"volume-of-{BUILD_CONTAINER}old"}, place
            client.nth, client.dead = 0, False
            if mend == "sweep":
                engine.sweep(lambda run: False)
                assert client.leftovers() == [], place
            made = engine.prepare(framework, "cpu", Silent())
            assert made.reference == expected.reference
            assert client.leftovers() == [], place
            assert {*client.containers_there, *client.images_there, *client.volumes} > USERS
            faults.note(fault, f"image: {place}", ended.outcome)


@pytest.mark.parametrize("fault", faults.ERRORS)
def test_after_every_fault_of_the_disk_the_next_build_succeeds(
    tmp_path: Path, framework: Framework, sources: Sources, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    monkeypatch.setattr("kit.environments.daemon.in_background", at_once)
    cache = tmp_path / "cache"
    engine_of(FakeClient(), sources).prepare(framework, "cpu", Silent())  # imports modules
    shutil.rmtree(cache)
    whole = FakeClient()
    with faults.record() as calls:
        expected = engine_of(whole, sources).prepare(framework, "cpu", Silent())
    assert len(calls.places) >= 10
    for place in calls.places:
        shutil.rmtree(cache)
        error = faults.ERRORS[fault]()
        client = FakeClient()
        engine = engine_of(client, sources)

        def work(engine: DockerEngine = engine, place: str = place, error: BaseException = error) -> Environment:
            with faults.at(place, error):
                return engine.prepare(framework, "cpu", Silent())

        ended = faults.attempt(work, error, DiskError)
        if ended.result:
            assert (ended.result.reference, client.installed_with) == (expected.reference, whole.installed_with), place
        require_no_secret(client, cache)
        assert not client.containers_there
        assert not client.volumes
        assert engine.prepare(framework, "cpu", Silent()).reference == expected.reference, place
        assert client.leftovers() == [], place
        faults.note(fault, f"image: {place}", ended.outcome)


def test_ctrl_c_while_the_container_is_created_removes_it(
    framework: Framework, sources: Sources, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemon creates the container after the interrupt."""
    client, interrupted = FakeClient(), threading.Event()
    create = client.create_container_from_config

    def create_later(config: dict[str, Any], name: str) -> dict[str, Any]:
        interrupted.wait()
        return create(config, name)

    def interrupt(future: object) -> None:
        interrupted.set()
        raise KeyboardInterrupt

    monkeypatch.setattr(client, "create_container_from_config", create_later)
    monkeypatch.setattr(futures.Future, "result", interrupt)
    with pytest.raises(KeyboardInterrupt):
        engine_of(client, sources).prepare(framework, "cpu", Silent())
    assert client.places.count("remove a container: answer") == 1
    assert not client.containers_there
    assert not client.volumes


def test_the_errors_of_a_pull_are_shown(
    framework: Framework, sources: Sources, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemon sends them as messages."""
    client = FakeClient()
    for text, kind in (("toomanyrequests: pull rate limit", ImageError), ("no space left on device", DiskError)):
        monkeypatch.setattr(client, "pull", lambda *_, text=text, **__: iter([{"status": "1"}, {"error": text}]))
        with pytest.raises(kind, match=f"cannot be pulled: {text}"):
            engine_of(client, sources).prepare(framework, "cpu", Silent())


def test_a_full_disk_below_the_build_log_is_a_disk_error(
    tmp_path: Path, framework: Framework, sources: Sources, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a buffer still holds would be written again when the file is closed."""
    engine = engine_of(FakeClient(), sources)
    path = Path(engine.prepare(framework, "cpu", Silent()).reference.replace(":", "-"))
    log = tmp_path / "cache" / "logs" / f"{path.name}.log"
    assert log.exists()
    log.unlink()
    log.symlink_to("/dev/full")
    with pytest.raises(DiskError, match="No space left on device") as caught:
        engine_of(FakeClient(), sources).prepare(framework, "cpu", Silent())
    assert "KIT_CACHE_DIR" in caught.value.remedy


def test_ctrl_c_ends_the_builder_of_the_command_line(
    tmp_path: Path, framework: Framework, sources: Sources, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "bin" / "docker", HANG.format(pids=tmp_path / "pids"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere")
    client = FakeClient()

    def refuse(**_: object) -> None:
        raise refusal(501, "use BuildKit")

    monkeypatch.setattr(client, "build", refuse)
    monkeypatch.setattr(images, "without_user_info", at_line("hanging", interrupt))
    with pytest.raises(KeyboardInterrupt):
        engine_of(client, sources).prepare(framework, "cpu", Silent())
    require_ended(tmp_path / "pids")


def test_clean_removes_the_images_although_a_killed_build_left_a_container_of_one(
    tmp_path: Path, framework: Framework, sources: Sources, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = FakeClient(0, Killed())
    engine = engine_of(client, sources)
    engine.prepare(framework, "cpu", Silent())
    system = next(image for image in client.images_there.values() if "kit-system" in str(image["RepoTags"]))
    config = {"Image": system["RepoTags"][0], "Labels": {IMAGE_LABEL: "tiny"}}
    client.create_container_from_config(config, f"{BUILD_CONTAINER}1")
    entry = EngineEntry("docker", "Docker", lambda sources, interpreter: engine, makes="image")
    monkeypatch.setattr("kit.engines.registry.entries", lambda: [entry])
    assert f"container {BUILD_CONTAINER}1" in list(clean(sources, images=True, environments_too=False))
    assert not any("kit" in str(image["RepoTags"]) for image in client.images_there.values())


def test_a_container_that_is_gone_when_it_should_be_removed_is_no_error(sources: Sources) -> None:
    client = FakeClient(1, refusal(409, "removal is already in progress"))
    engine_of(client, sources).daemon.remove("gone")
    assert client.places == ["remove a container", "wait for the container"]


def test_an_image_in_use_is_an_error_that_names_the_container(framework: Framework, sources: Sources) -> None:
    client = FakeClient()
    engine = engine_of(client, sources)
    environment = engine.prepare(framework, "cpu", Silent())
    client.create_container_from_config({"Image": environment.reference, "Labels": {}}, "mine")
    with pytest.raises(EngineError, match=r"cannot be removed: .*container /mine is using it") as caught:
        engine.remove_environments()
    assert "Remove the container" in caught.value.remedy


def test_an_image_that_somebody_built_from_one_of_kits_images_stays(framework: Framework, sources: Sources) -> None:
    client = FakeClient()
    engine = engine_of(client, sources)
    environment = engine.prepare(framework, "cpu", Silent())
    mine = client.add_image("mine:latest", client.find(environment.reference), {}, "")
    assert IMAGE_LABEL in client.images_there[mine]["Labels"], "the label is inherited"
    client.images_there[environment.digest]["RepoTags"].append("mine:second-name")
    removed = engine.remove_environments()
    assert (len(removed), "mine" in str(removed)) == (3, False)
    assert mine in client.images_there
    assert not any("kit-" in str(image["RepoTags"]) for image in client.images_there.values())
