"""Test the content of images and the errors of failed builds. No daemon is needed."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from kit import assets
from kit.environments import build_context, images
from kit.environments.images import IMAGE_LABEL, ImageBuilder
from kit.environments.package_sources import CPU_WHEELS, Sources
from kit.model.environment import Framework
from kit.model.errors import DiskError, ImageError, UsageError

EXAMPLE = assets.ROOT / "tests" / "example"
LOCK = "tiny-wheel==1.0+cpu \\\n    --hash=sha256:00\nother==2.0 \\\n    --hash=sha256:11\n"


@pytest.fixture
def framework(tmp_path, monkeypatch) -> Framework:
    """Return a framework in a copy of the assets, with lists for both devices."""
    shutil.copytree(assets.ROOT / "docker", tmp_path / "docker")
    (tmp_path / "scenarios" / "catalog").mkdir(parents=True)
    (tmp_path / "scenarios" / "worker.py").write_text("worker = 1\n")
    folder = tmp_path / "docker" / "tiny"
    folder.mkdir()
    for device in ("cpu", "cuda"):
        (folder / f"{device}.lock").write_text(LOCK)
    monkeypatch.setattr(assets, "ROOT", tmp_path)
    return Framework("tiny", "Tiny", ("cpu", "cuda"), (), 13, 580, {}, folder)


@pytest.fixture
def sources(tmp_path) -> Sources:
    """Return the caller's wheel folder and CA bundle."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    for name in (
        "tiny_wheel-1.0+cpu-py3-none-any.whl",
        "tiny_wheel-2.0-py3-none-any.whl",
        "unused-1-py3-none-any.whl",
    ):
        (wheels / name).write_bytes(b"wheel")
    (tmp_path / "ca.pem").write_text("certificate")
    return Sources("https://me:secret@mirror.example/simple", str(wheels), tmp_path / "ca.pem")


def sources_of(framework: Framework, device: str, sources: Sources) -> dict[str, str]:
    """Return the text of each file that says where packages come from, by name."""
    files = build_context.source_files(build_context.lock_file(framework, device).read_text(), device, sources)
    return {name: file.decode() if isinstance(file, bytes) else file.read_text() for name, file in files.items()}


def tags(framework: Framework, base: str = "sha256:base") -> list[str]:
    return [layer.tag for layer in build_context.layers(framework, "cpu", base)]


def test_a_build_gets_only_the_wheels_in_its_list(framework, sources):
    files = sources_of(framework, "cpu", sources)
    assert set(files) == {
        "pip.conf",
        "ca.pem",
        "wheels/tiny_wheel-1.0+cpu-py3-none-any.whl",
    }
    assert "find-links = /build/wheels" in files["pip.conf"]
    assert "cert = /build/ca.pem" in files["pip.conf"]


def test_a_cuda_build_never_sees_the_wheel_folder(framework, sources):
    files = sources_of(framework, "cuda", sources)
    assert set(files) == {"pip.conf", "ca.pem"}
    assert "find-links" not in files["pip.conf"]


def test_the_index_of_cpu_wheels_is_used_only_for_its_versions(framework):
    assert CPU_WHEELS in sources_of(framework, "cpu", Sources())["pip.conf"]
    (framework.folder / "cpu.lock").write_text("other==2.0\n")
    assert "find-links" not in sources_of(framework, "cpu", Sources())["pip.conf"]


def test_the_same_content_makes_the_same_archive_despite_times_and_modes(tmp_path):
    def archived(*names: str) -> bytes:
        with build_context.archive({name: tmp_path / name for name in names}) as file:
            return file.read()

    for name in "ab":
        (tmp_path / name).write_text(name)
    before = archived("a", "b")
    os.utime(tmp_path / "a", (1, 1))
    (tmp_path / "b").chmod(0o600)
    assert archived("b", "a") == before
    (tmp_path / "a").write_text("c")
    assert archived("a", "b") != before


def test_an_image_depends_on_its_recipe_and_on_the_image_below_only(framework, tmp_path):
    system, packages, worker = tags(framework)
    module = tmp_path / "scenarios" / "catalog" / "new.py"
    module.write_text("SCENARIO = 1\n")
    *below, changed = tags(framework)
    assert below == [system, packages]
    assert changed != worker
    (tmp_path / "scenarios" / "catalog" / "new.cpython-311.pyc").write_bytes(b"compiled")
    assert tags(framework)[2] == changed
    module.rename(module.with_name("other.py"))
    assert tags(framework)[2] != changed
    (framework.folder / "cpu.lock").write_text(LOCK + "more==1\n")
    below, other, *_ = tags(framework)
    assert below == system
    assert other != packages
    assert not set(tags(framework, "sha256:other")) & set(tags(framework))


def test_a_framework_may_have_its_own_dockerfile(framework):
    before = tags(framework)
    (framework.folder / "Dockerfile").write_text("FROM scratch\n")
    assert not set(tags(framework)) & set(before)
    assert build_context.layers(framework, "cpu", "sha256:base")[0].recipe == {"Dockerfile": b"FROM scratch\n"}


def test_a_device_without_a_list_is_an_error_that_names_the_file(framework):
    (framework.folder / "cuda.lock").unlink()
    with pytest.raises(UsageError, match=r"cuda\.lock is missing"):
        build_context.lock_file(framework, "cuda")


@pytest.mark.parametrize(
    ("line", "kind", "remedy"),
    [
        ("SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED]'))", ImageError, "KIT_CA_BUNDLE"),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.", ImageError, "KIT_INDEX_URL"),
        ("ERROR: No matching distribution found for torch==2.13.0+cpu", ImageError, "KIT_FIND_LINKS"),
        ("Python of the base image is 3.12", ImageError, "KIT_BASE_IMAGE"),
        ("Err:1 http://mirror.example bookworm: Temporary failure resolving", ImageError, "HTTP_PROXY"),
        ("write /opt/venv/x.so: no space left on device", DiskError, "docker system df"),
        ("OSError: [Errno 122] Disk quota exceeded", DiskError, "docker system df"),
    ],
)
def test_the_error_of_a_failed_build_has_cause_remedy_and_log(line, kind, remedy):
    error = images.explain(
        "kit-tiny:cpu-0", "The command returned a non-zero code: 1", ["Step 1", line], Path("/the/log")
    )
    assert type(error) is kind
    assert remedy in error.remedy
    assert line in error.message
    assert kind is DiskError or "/the/log" in error.remedy


def test_a_build_log_shows_no_user_info_and_returns_the_builders_error(tmp_path):
    path = tmp_path / "log"
    with path.open("wb", buffering=0) as log:
        recorder = images._Recorder("kit-tiny:cpu-0", log)
        stream = [{"stream": "Looking in indexes: https://me:secret@mirror.example/simple\n"}, {"status": "extracting"}]
        assert recorder.follow(stream) is None
        assert list(recorder.tail) == ["Looking in indexes: https://mirror.example/simple", "extracting"]
        failure = recorder.follow([{"error": "no https://me:secret@mirror.example"}, {"stream": "never read"}])
        error = str(recorder.error(failure))
    assert "no https://mirror.example" in error
    assert "secret" not in error
    assert "secret" not in path.read_text() + "".join(recorder.tail)
    assert "never read" not in path.read_text()


def test_only_proxies_that_are_set_reach_a_build_in_both_spellings():
    given = {"HTTPS_PROXY": "http://proxy:1", "no_proxy": "here", "HTTP_PROXY": "", "OTHER": "x"}
    assert images.proxies(given) == {
        "HTTPS_PROXY": "http://proxy:1",
        "https_proxy": "http://proxy:1",
        "NO_PROXY": "here",
        "no_proxy": "here",
    }
    different = {"HTTPS_PROXY": "http://proxy:1", "https_proxy": "http://proxy:2"}
    assert images.proxies(different) == different


def listed_packages(file: Path) -> set[str]:
    """Return the packages of a list and of the lists that it includes."""
    lines = [line for line in file.read_text().splitlines() if line and not line.startswith("#")]
    named = {re.split(r"[\[=<>]", line)[0] for line in lines if not line.startswith("-r ")}
    return named.union(
        *(listed_packages(assets.ROOT / "docker" / Path(line[3:]).name) for line in lines if line[:3] == "-r ")
    )


@pytest.mark.parametrize("folder", [assets.ROOT / "docker", EXAMPLE / "docker"])
def test_every_framework_has_a_list_of_exact_versions_and_hashes_for_each_device(folder):
    files = list(folder.glob("*/*.in"))
    assert files
    for file in files:
        lock = file.with_suffix(".lock").read_text()
        packages = [line for line in lock.splitlines() if "==" in line]
        assert all(line.endswith("\\") for line in packages), f"{file} has a package without hashes"
        assert listed_packages(file) <= {line.partition("==")[0].partition("[")[0] for line in packages}, (
            f"{file} changed: run `make lock`"
        )
        assert "://" not in lock, f"{file} names where packages came from"
        assert ("nvidia-cudnn" in lock) == (file.stem == "cuda")


def test_a_containers_output_is_split_into_lines():
    chunks = [b"Collecting to", b"rch\nInstall", b"ing \xe2\x80", b"\xa6\nlast"]
    assert [message["stream"] for message in images._messages(chunks)] == ["Collecting torch", "Installing …", "last"]


@pytest.mark.parametrize(
    ("image", "found"),
    [
        ({}, "kit-torch:cpu-1"),
        ({"RepoTags": []}, "sha256:ab"),
        ({"Config": {"Labels": {IMAGE_LABEL: "tensorflow"}}}, None),
        ({"Config": {"Labels": None}}, None),
        ({"Id": "sha256:abcd"}, None),
        (None, None),
    ],
)
def test_only_an_image_that_was_built_for_the_framework_is_found_by_its_id(framework, image, found):
    labels = {IMAGE_LABEL: framework.name}
    known = {"Id": "sha256:ab", "RepoTags": ["kit-torch:cpu-1"], "Size": 7, "Config": {"Labels": labels}}
    daemon = SimpleNamespace(find_image=lambda name: None if image is None else known | image)
    environment = ImageBuilder(daemon, Sources()).find(framework, "cpu", "sha256:ab")
    assert (environment and environment.reference) == found
    assert environment is None or (environment.kind, environment.digest) == ("image", "sha256:ab")
