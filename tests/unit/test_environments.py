"""Real environments, made from a tiny wheel in a folder, without a network."""

import base64
import hashlib
import subprocess
import sys
import zipfile
from contextlib import contextmanager
from pathlib import Path

import pytest

from kit.environments import uv_environments
from kit.environments.package_sources import Sources
from kit.host.paths import cache_folder
from kit.host.privacy import without_user_info
from kit.model.environment import Framework
from kit.model.errors import DiskError, EngineError, ImageError, UsageError
from kit.model.progress import Silent


class Counting(Silent):
    """Count the steps that were announced."""

    def __init__(self):
        self.tasks = 0

    @contextmanager
    def task(self, label, total=None, unit=""):
        self.tasks += 1
        with super().task(label, total, unit) as task:
            yield task


def make_wheel(folder):
    """Write toy-1.0+cpu, which has one empty module. Return its SHA-256."""
    files = {
        "toy.py": b"",
        "toy-1.0+cpu.dist-info/METADATA": b"Metadata-Version: 2.1\nName: toy\nVersion: 1.0+cpu\n",
        "toy-1.0+cpu.dist-info/WHEEL": b"Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},sha256={_short(content)},{len(content)}\n" for name, content in files.items())
    wheel = folder / "toy-1.0+cpu-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, content in [*files.items(), ("toy-1.0+cpu.dist-info/RECORD", record.encode())]:
            archive.writestr(zipfile.ZipInfo(name), content)
    return hashlib.sha256(wheel.read_bytes()).hexdigest()


def _short(content):
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")


class Toy:
    """A framework `toy`, its wheel, and an empty package index."""

    def __init__(self, folder):
        for name in ("wheels", "index", "toy", "assets/scenarios/frameworks/toy"):
            (folder / name).mkdir(parents=True)
        self.digest = make_wheel(folder / "wheels")
        self.assets = folder / "assets"
        self.adapter = self.assets / "scenarios/frameworks/toy/adapter.py"
        self.adapter.write_text("import toy")
        self.framework = Framework("toy", "Toy", ("cpu",), (), None, None, None, folder / "toy")
        self.sources = Sources(index_url=(folder / "index").as_uri(), find_links=str(folder / "wheels"))
        self.lock(self.digest)

    def lock(self, digest):
        (self.framework.folder / "cpu.lock").write_text(f"toy==1.0+cpu \\\n    --hash=sha256:{digest}\n")

    def ensure(self, progress=None):
        return uv_environments.ensure(self.framework, "cpu", self.sources, self.assets, progress or Silent())


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("KIT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    monkeypatch.setattr(uv_environments, "PYTHON", ".".join(map(str, sys.version_info[:2])))
    return Toy(tmp_path)


def test_each_lock_has_one_environment_with_its_packages(place):
    progress = Counting()
    first = place.ensure(progress)
    assert place.ensure(progress) == first
    assert progress.tasks == 1
    assert first.kind == "venv"
    assert first.size_bytes > 0
    subprocess.run([first.reference, "-c", "import toy"], check=True)
    with open(place.framework.folder / "cpu.lock", "a", encoding="utf-8") as file:
        file.write("# another lock\n")
    second = place.ensure(progress)
    assert second.reference != first.reference
    assert len(uv_environments.remove_all()) == 2
    assert uv_environments.remove_all() == []


def test_the_environment_of_an_earlier_lock_is_found_by_its_digest_until_it_is_removed(place):
    earlier = place.ensure()
    with open(place.framework.folder / "cpu.lock", "a", encoding="utf-8") as file:
        file.write("# today's lock\n")
    assert uv_environments.find(place.framework, "cpu", earlier.digest) == earlier
    assert uv_environments.find(place.framework, "cuda", earlier.digest) is None
    (Path(earlier.reference).parents[1] / uv_environments.MARKER).unlink()
    assert uv_environments.find(place.framework, "cpu", earlier.digest) is None, "an incomplete environment is not used"


def test_a_framework_without_a_list_of_packages_is_an_error(place):
    (place.framework.folder / "cpu.lock").unlink()
    with pytest.raises(UsageError, match=r"no list of packages[\s\S]*make lock"):
        uv_environments.exists(place.framework, "cpu")


def test_an_incomplete_environment_is_replaced(place):
    home = uv_environments.folder() / place.ensure().reference.split("/")[-3]
    (home / uv_environments.MARKER).unlink()
    next(home.glob("lib/*/site-packages/toy.py")).unlink()
    subprocess.run([place.ensure().reference, "-c", "import toy"], check=True)


def test_a_package_with_another_hash_is_an_error_that_shows_no_password(place, capfd, monkeypatch):
    place.lock("0" * 64)
    with pytest.raises(ImageError, match=r"[Hh]ash") as caught:
        place.ensure()
    assert "KIT_INDEX_URL" in caught.value.remedy
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    place.sources = Sources("http://someone:secret@127.0.0.1:9/simple", place.sources.find_links)
    with pytest.raises(ImageError, match=r"127\.0\.0\.1") as caught:
        place.ensure()
    assert "secret" not in str(caught.value)
    assert "secret" not in "".join(capfd.readouterr())


def test_an_adapter_that_cannot_be_imported_is_an_error_each_time(place):
    place.adapter.write_text("import no_such_library")
    for _ in range(2):
        with pytest.raises(ImageError, match="no_such_library"):
            place.ensure()


def test_a_missing_python_and_an_unusable_folder_are_different_errors(place, monkeypatch, tmp_path):
    monkeypatch.setattr(uv_environments, "PYTHON", "3.99")
    with pytest.raises(EngineError, match=r"3\.99") as caught:
        place.ensure()
    assert "--engine docker" in caught.value.remedy
    (tmp_path / "file").touch()
    monkeypatch.setenv("KIT_CACHE_DIR", str(tmp_path / "file"))
    with pytest.raises(DiskError, match="KIT_CACHE_DIR"):
        place.ensure()


def test_a_full_disk_is_an_error_that_names_the_setting(place):
    place.adapter.write_text("raise OSError('Disk quota exceeded')")
    with pytest.raises(DiskError, match="Disk quota exceeded") as caught:
        place.ensure()
    assert "KIT_CACHE_DIR" in caught.value.remedy


def test_no_password_of_a_url_is_shown():
    for user in ("me:secret@", "me:s@cret@", "secret@"):
        assert without_user_info(f"from https://{user}host:81/a?b, me@host") == "from https://host:81/a?b, me@host"


@pytest.mark.parametrize(
    "name",
    [
        *(
            "-x",
            "''",
            "debian bookworm",
            ";reboot",
            "debian:bookworm\n",
            "debian\nbookworm",
            "Debian",
            "A:b",
            "a//b",
            "a/",
        ),
        *("debian:", "debian:-x", "debian@sha256:zz", "debian@", "a_-b", f"debian:{'x' * 129}"),
    ],
)
def test_a_base_image_that_is_not_a_name_is_refused(name):
    with pytest.raises(UsageError, match="is not the name of an image"):
        Sources.from_environment({"KIT_BASE_IMAGE": name})


@pytest.mark.parametrize(
    "name",
    [
        *("debian", "debian:bookworm-slim", "localhost/x", "Registry.Example:5000/a/b_c__d--e:1.0"),
        f"docker.io/library/debian:1@sha256:{'0' * 64}",
    ],
)
def test_every_name_of_an_image_is_accepted(name):
    assert Sources.from_environment({"KIT_BASE_IMAGE": name}).base_image == name


def test_relative_paths_are_found_from_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wheels").mkdir()
    (tmp_path / "ca.pem").touch()
    monkeypatch.setenv("KIT_CACHE_DIR", "cache")
    sources = Sources.from_environment({"KIT_FIND_LINKS": "wheels", "KIT_CA_BUNDLE": "ca.pem"})
    assert cache_folder() == tmp_path / "cache"
    assert sources.find_links_folder() == tmp_path / "wheels"
    assert sources.variables()["SSL_CERT_FILE"] == str(tmp_path / "ca.pem")
