"""Images that a real daemon builds from the real recipe, with a wheel of one file."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import secrets
import shutil
import signal
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import docker
import pytest
import requests

from kit import assets
from kit.environments import images
from kit.environments.images import BUILD_CONTAINER, IMAGE_LABEL, ImageBuilder
from kit.environments.package_sources import Sources
from kit.host import machine_lock
from kit.model.environment import Framework
from kit.model.errors import ImageError
from kit.model.progress import Silent
from tests.programs import at_line, interrupt

WHEEL = "kit_test_wheel-1.0-py3-none-any.whl"
WAITING = "Looking in"  # pip says where it looks for packages, then waits for an index that does not exist
RUN = secrets.token_hex(4)  # in name and content, so that parallel runs of these tests do not share images


class Labels(Silent):
    """Record the steps that were announced."""

    def __init__(self) -> None:
        self.labels: list[str] = []

    @contextmanager
    def task(self, label, total=None, unit=""):
        self.labels.append(label)
        with super().task(label) as task:
            yield task


@pytest.fixture(scope="module", autouse=True)
def images_are_removed(client) -> Iterator[None]:
    """Remove the images after all tests of this module, because tests share images of the same content."""
    yield
    tags = [tag for image in client.images(f"kit-testing-{RUN}") for tag in image["RepoTags"]]
    for tag in sorted(tags, key=lambda tag: "packages" in tag):
        client.remove_image(tag)


@pytest.fixture
def framework(tmp_path, monkeypatch) -> Framework:
    """Return a framework whose only package is in a wheel folder."""
    shutil.copytree(assets.ROOT / "docker", tmp_path / "docker")
    (tmp_path / "scenarios").mkdir()
    (tmp_path / "scenarios" / "worker.py").write_text("import kit_test_wheel\nprint(kit_test_wheel.NAME)\n")
    (tmp_path / "wheels").mkdir()
    folder = tmp_path / "docker" / f"testing-{RUN}"
    folder.mkdir()
    digest = write_wheel(tmp_path / "wheels" / WHEEL)
    (folder / "cpu.lock").write_text(f"kit-test-wheel==1.0 --hash=sha256:{digest}\n")
    monkeypatch.setattr(assets, "ROOT", tmp_path)
    return Framework(f"testing-{RUN}", "Testing", ("cpu",), (), None, None, None, folder)


@pytest.fixture(scope="module")
def logs(tmp_path_factory) -> Path:
    """Return the folder for the build logs of this module."""
    return tmp_path_factory.mktemp("logs")


@pytest.fixture
def builder(engine, client, tmp_path, logs, monkeypatch) -> ImageBuilder:
    """Return a builder with a wheel folder and a missing index whose password must stay secret."""
    monkeypatch.setattr("kit.environments.images.log_folder", lambda: logs)
    base = Sources.from_environment().base_image
    sources = Sources("http://me:secret@mirror.invalid/simple", str(tmp_path / "wheels"), None, base)
    return ImageBuilder(engine.daemon, sources)


@pytest.fixture(autouse=True)
def nothing_of_a_build_is_left(client) -> Iterator[None]:
    """Hold the machine's lock, as every build does. Check that a build leaves no container, volume or image."""
    with machine_lock.measuring("tests"):
        before = volumes(client)
        yield
        assert leftovers(client) == []
        assert volumes(client) == before


def leftovers(client) -> list[str]:
    """Return the containers and images that a stopped build left."""
    containers = client.containers(all=True, filters={"name": BUILD_CONTAINER})
    return [found["Id"] for found in (*containers, *client.images(filters={"dangling": True, "label": IMAGE_LABEL}))]


def volumes(client) -> set[str]:
    return {volume["Name"] for volume in client.volumes()["Volumes"] or ()}


def write_wheel(path: Path) -> str:
    """Write the smallest valid wheel. Return its SHA-256."""
    name = "kit_test_wheel"
    files = {
        f"{name}/__init__.py": f"NAME = {name!r}\nRUN = {RUN!r}\n",
        f"{name}-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: kit-test-wheel\nVersion: 1.0\n",
        f"{name}-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(
        f"{file},sha256={base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b'=').decode()},"
        f"{len(text)}\n"
        for file, text in files.items()
    )
    with zipfile.ZipFile(path, "w") as wheel:
        for file, text in files.items():
            wheel.writestr(zipfile.ZipInfo(file), text)  # without the time, so that all tests write the same file
        wheel.writestr(zipfile.ZipInfo(f"{name}-1.0.dist-info/RECORD"), record + f"{name}-1.0.dist-info/RECORD,,\n")
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_an_image_is_built_once_and_a_changed_scenario_costs_one_layer(builder, framework, client, launch, tmp_path):
    first = Labels()
    environment = builder.ensure(framework, "cpu", first)
    assert [label.count("packages") for label in first.labels][-2:] == [1, 0]
    launch.environment = environment
    assert launch("").exit_code == 0
    assert launch.log() == "kit_test_wheel\n"

    again = Labels()
    assert builder.ensure(framework, "cpu", again) == environment
    assert again.labels == []

    (tmp_path / "scenarios" / "worker.py").write_text("print('changed')\n")
    changed = Labels()
    other = builder.ensure(framework, "cpu", changed)
    assert [label.count("packages") for label in changed.labels] == [0]
    layers = [client.inspect_image(image.reference)["RootFS"]["Layers"] for image in (environment, other)]
    assert layers[0][:-1] == layers[1][:-1]
    assert layers[0][-1] != layers[1][-1]


def test_image_history_and_log_do_not_show_where_packages_came_from(builder, framework, client, logs):
    environment = builder.ensure(framework, "cpu", Silent())
    assert "secret" not in json.dumps(client.history(environment.digest))
    assert "secret" not in json.dumps(client.inspect_image(environment.digest))
    texts = [log.read_text() for log in logs.glob("*packages*.log")]
    assert any("mirror.invalid" in text for text in texts), "pip must name the index, or this test checks nothing"
    assert not [text for text in texts if "secret" in text]
    with tarfile.open(fileobj=io.BytesIO(b"".join(client.get_image(environment.digest)))) as image:
        contents = [image.extractfile(member).read() for member in image if member.isfile()]
    layers = [content for content in contents if tarfile.is_tarfile(io.BytesIO(content))]  # names differ by version
    assert layers
    for layer in layers:
        assert b"me:secret@" not in layer
        with tarfile.open(fileobj=io.BytesIO(layer)) as files:
            assert not [
                name for name in files.getnames() if name.startswith("build/") or name.endswith(".whl.metadata")
            ]


def test_a_wheel_with_another_hash_is_an_error(builder, framework, client):
    lock = framework.folder / "cpu.lock"
    lock.write_text(lock.read_text().replace("sha256:", "sha256:00", 1)[:-3] + "\n")
    with pytest.raises(ImageError) as caught:
        builder.ensure(framework, "cpu", Silent())
    assert "DO NOT MATCH THE HASHES" in caught.value.message
    assert "KIT_FIND_LINKS" in caught.value.remedy
    log = Path(caught.value.remedy.rpartition(": ")[2])
    assert "DO NOT MATCH THE HASHES" in log.read_text()


def test_a_missing_base_image_is_an_error_that_says_how_to_make_one(engine, framework, client):
    builder = ImageBuilder(engine.daemon, Sources(base_image="127.0.0.1:9/no/such:base"))
    with pytest.raises(ImageError, match=r"no/such:base cannot be pulled[\s\S]*docker import[\s\S]*KIT_BASE_IMAGE"):
        builder.ensure(framework, "cpu", Silent())


def test_the_command_line_builds_if_the_daemon_refuses_its_builder(builder, framework, launch, monkeypatch, tmp_path):
    (tmp_path / "scenarios" / "worker.py").write_text("print('built otherwise')\n")

    def refuse(*args, **kwargs):
        response = requests.Response()
        response.status_code = 501
        raise docker.errors.APIError("not implemented", response, "use BuildKit")

    monkeypatch.setattr(builder.daemon.client, "build", refuse)
    launch.environment = builder.ensure(framework, "cpu", Silent())
    assert launch("").exit_code == 0
    assert launch.log() == "built otherwise\n"


def use_a_missing_package(framework: Framework) -> None:
    """Let pip ask the index, again and again."""
    (framework.folder / "cpu.lock").write_text(f"kit-missing=={RUN} --hash=sha256:{'0' * 64}\n")


def test_an_interrupted_build_leaves_nothing_and_stays_an_interrupt(builder, framework, monkeypatch):
    """The fixture `nothing_of_a_build_is_left` checks the daemon."""
    use_a_missing_package(framework)
    monkeypatch.setattr(images, "without_user_info", at_line(WAITING, interrupt))
    with pytest.raises(KeyboardInterrupt):
        builder.ensure(framework, "cpu", Silent())


def test_a_failed_cleanup_does_not_replace_the_interrupt(builder, framework, client, monkeypatch):
    use_a_missing_package(framework)

    def lost(*args, **kwargs):
        raise requests.ConnectionError("gone")

    with monkeypatch.context() as patched:
        patched.setattr(builder.daemon.client, "remove_container", lost)
        patched.setattr(images, "without_user_info", at_line(WAITING, interrupt))
        with pytest.raises(KeyboardInterrupt) as caught:
            builder.ensure(framework, "cpu", Silent())
    assert "gone" in caught.value.__notes__[0]
    assert len(leftovers(client)) == 1
    assert builder.remove_leftovers()[0].startswith("container kit-build-")


def test_what_a_killed_build_left_is_removed_by_clean_and_by_the_next_build(builder, framework, client, engine):
    use_a_missing_package(framework)
    for remove in (lambda: engine.sweep(lambda run: False), lambda: builder.ensure(framework, "cpu", Silent())):
        if (child := os.fork()) == 0:
            with suppress(BaseException):
                images.without_user_info = at_line(WAITING, lambda: os.kill(os.getpid(), signal.SIGKILL))
                builder.ensure(framework, "cpu", Silent())
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        assert len(leftovers(client)) == 1
        assert engine.sweep(lambda run: True) == [], "a build may be running"
        with suppress(ImageError):  # of the next build: the package is still missing
            remove()
        assert leftovers(client) == []
