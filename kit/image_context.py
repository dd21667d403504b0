"""What an image is made of: its content hash, and the archive that is sent to the engine's builder. No engine here."""

from __future__ import annotations

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
from kit.errors import DiskError, UsageError
from kit.model import Device, Framework
from kit.sources import CPU_WHEELS, Sources


def dockerfile(framework: Framework) -> Path:
    """The framework's own recipe where it has one, else the common one."""
    own = framework.folder / "Dockerfile"
    return own if own.is_file() else assets.ROOT / "docker" / "Dockerfile"


def lock_file(framework: Framework, device: Device) -> Path:
    """The hash-locked list of packages. Raises UsageError where the framework has none for this device."""
    path = framework.folder / f"{device}.lock"
    if not path.is_file():
        raise UsageError(
            f"{framework.title} has no list of packages for {device}: {path} is not there.",
            f"Write {path.with_suffix('.in')} and run `make lock`.",
        )
    return path


def packages_identity(framework: Framework, device: Device, base_id: str) -> str:
    """Content hash of the packages image: recipe, list, and id of the base image; 12 hexadecimal digits."""
    return _hash([dockerfile(framework).read_bytes(), lock_file(framework, device).read_bytes(), base_id.encode()])


def worker_identity(packages: str) -> str:
    """Content hash of the whole image: the packages image and every module of the scenarios; 12 digits."""
    recipe = (assets.ROOT / "docker" / "Dockerfile.worker").read_bytes()
    modules = [part for name, path in _modules() for part in (name.encode(), path.read_bytes())]
    return _hash([packages.encode(), recipe, *modules])


@contextmanager
def packages_context(framework: Framework, device: Device, sources: Sources) -> Iterator[IO[bytes]]:
    """The build context of the packages image, as an open tar file: Dockerfile, requirements.lock, sources/."""
    lock = lock_file(framework, device)
    wheels = _wheels(lock.read_text(encoding="utf-8"), sources) if device == "cpu" else []
    files: dict[str, Path | bytes] = {"Dockerfile": dockerfile(framework), "requirements.lock": lock}
    files |= {f"sources/wheels/{wheel.name}": wheel for wheel in wheels}
    if sources.ca_bundle:
        files["sources/ca.pem"] = sources.ca_bundle
    files["sources/pip.conf"] = _pip_conf(lock.read_text(encoding="utf-8"), device, sources).encode()
    with _archive(files) as archive:
        yield archive


@contextmanager
def worker_context() -> Iterator[IO[bytes]]:
    """The build context of the whole image, as an open tar file: Dockerfile and scenarios/."""
    files: dict[str, Path | bytes] = {"Dockerfile": assets.ROOT / "docker" / "Dockerfile.worker"}
    with _archive(files | dict(_modules())) as archive:
        yield archive


def _modules() -> list[tuple[str, Path]]:
    """Name in the image and path of every module of the scenarios, sorted."""
    return sorted((path.relative_to(assets.ROOT).as_posix(), path) for path in assets.ROOT.glob("scenarios/**/*.py"))


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
    """Those wheels of the wheel folder that the list asks for, judged by name and version."""
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


def _hash(parts: list[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()[:12]


@contextmanager
def _archive(files: Mapping[str, Path | bytes]) -> Iterator[IO[bytes]]:
    """A tar file of them in name order: the same content is the same archive, whoever owns the files."""
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
