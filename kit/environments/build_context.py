"""Define what an image is made of: its content hash, and the archive for the builder. No daemon is needed here."""

import hashlib
import io
import re
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from kit import assets
from kit.environments.package_sources import CPU_WHEELS, Sources
from kit.model.environment import Framework
from kit.model.errors import DiskError, UsageError
from scenarios.contract.cell import Device

# Name in the build context to content. It is read once, so that exactly what is hashed is built.
Recipe = Mapping[str, bytes]


def lock_file(framework: Framework, device: Device) -> Path:
    """Return the hash-locked list of packages. Raise UsageError if the framework has no list for this device."""
    path = framework.folder / f"{device}.lock"
    if not path.is_file():
        raise UsageError(
            f"{framework.title} has no list of packages for {device}: {path} is missing.",
            f"Write {path.with_suffix('.in')} and run `make lock`.",
        )
    return path


def packages_recipe(framework: Framework, device: Device) -> Recipe:
    """Return the files of the packages image: requirements.lock, and the framework's own Dockerfile if it has one, else
    the common one."""
    own = framework.folder / "Dockerfile"
    return {
        "Dockerfile": (own if own.is_file() else assets.ROOT / "docker" / "Dockerfile").read_bytes(),
        "requirements.lock": lock_file(framework, device).read_bytes(),
    }


def worker_recipe() -> Recipe:
    """Return the files of the layer on top of it: Dockerfile and every module of the scenarios."""
    modules = {
        path.relative_to(assets.ROOT).as_posix(): path.read_bytes() for path in assets.ROOT.glob("scenarios/**/*.py")
    }
    return {"Dockerfile": (assets.ROOT / "docker" / "Dockerfile.worker").read_bytes()} | modules


def identity(recipe: Recipe, below: str) -> str:
    """Return the content hash of an image, 12 hexadecimal digits. below: identity of the image that it is made from."""
    digest = hashlib.sha256()
    contents = (part for name in sorted(recipe) for part in (name.encode(), recipe[name]))
    for part in (below.encode(), *contents):
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()[:12]


def source_files(lock: str, device: Device, sources: Sources) -> dict[str, Path | bytes]:
    """Return the files by which the build stage gets packages: pip.conf, CA bundle, wheels. lock: the list's text."""
    files: dict[str, Path | bytes] = {"sources/pip.conf": _pip_conf(lock, device, sources).encode()}
    if sources.ca_bundle:
        files["sources/ca.pem"] = sources.ca_bundle
    if device == "cpu":
        files |= {f"sources/wheels/{wheel.name}": wheel for wheel in _wheels(lock, sources)}
    return files


def _pip_conf(lock: str, device: Device, sources: Sources) -> str:
    lines = ["[global]", "disable-pip-version-check = true", "progress-bar = off"]
    if sources.index_url:
        lines.append(f"index-url = {sources.index_url}")
    if sources.ca_bundle:
        lines.append("cert = /build/sources/ca.pem")
    if device == "cpu" and sources.find_links_folder():
        lines.append("find-links = /build/sources/wheels")
    elif device == "cpu" and (sources.find_links != CPU_WHEELS or "+cpu" in lock):
        lines.append(f"find-links = {sources.find_links}")
    return "\n".join([*lines, ""])


def _wheels(lock: str, sources: Sources) -> list[Path]:
    """Return those wheels of the wheel folder that the list asks for by name and version."""
    folder = sources.find_links_folder()
    if folder is None:
        return []
    wanted = {(_normal(name), version) for name, version in re.findall(r"^(\S+?)==(\S+)", lock, re.MULTILINE)}

    def is_wanted(wheel: Path) -> bool:
        name, version = wheel.name.split("-")[:2]
        return (_normal(name), version) in wanted

    return [wheel for wheel in sorted(folder.glob("*-*.whl")) if is_wanted(wheel)]


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@contextmanager
def archive(files: Mapping[str, Path | bytes]) -> Iterator[IO[bytes]]:
    """Write a build context to an open tar file, sorted by name. Owners and times do not change the archive.

    Raise DiskError if there is no space for it.
    """
    with TemporaryFile() as file:
        try:
            with tarfile.open(fileobj=file, mode="w") as tar:
                for name, source in sorted(files.items()):
                    _add(tar, name, source)
            file.seek(0)
        except OSError as error:
            raise DiskError(
                f"The files of an image cannot be packed: {error}", "Free some space, or set TMPDIR."
            ) from error
        yield file


def _add(tar: tarfile.TarFile, name: str, source: Path | bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.mode = 0o644
    with io.BytesIO(source) if isinstance(source, bytes) else source.open("rb") as content:
        entry.size = len(source) if isinstance(source, bytes) else source.stat().st_size
        tar.addfile(entry, content)
