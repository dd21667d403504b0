"""Define what an image is made of: its content hash, and the archive for the builder. No daemon is needed here."""

import hashlib
import io
import re
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, NamedTuple

from kit import assets
from kit.environments.package_sources import CPU_WHEELS, Sources
from kit.model.environment import Framework
from kit.model.errors import DiskError, UsageError
from kit.storage.files import disk_errors, files_below
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


class Layer(NamedTuple):
    """One image of a framework: its tag, which ends with the content hash, and the files that it is made from."""

    tag: str
    recipe: Recipe


def layers(framework: Framework, device: Device, base: str) -> tuple[Layer, Layer, Layer]:
    """Return the images of a framework on a device: system, packages, worker. Each one is made from the one before it.

    base: id of the base image, from which the system image is made. The system image comes from the framework's own
    Dockerfile if it has one, else from the common one. Raise UsageError if there is no list of packages, DiskError if a
    file cannot be read.
    """
    docker = assets.ROOT / "docker"
    own = framework.folder / "Dockerfile"
    with disk_errors(assets.ROOT, did="read"):
        system = {"Dockerfile": (own if own.is_file() else docker / "Dockerfile").read_bytes()}
        packages = {
            "install.py": (docker / "install.py").read_bytes(),
            "requirements.lock": lock_file(framework, device).read_bytes(),
        }
        modules = [path for path in files_below(assets.ROOT / "scenarios") if path.suffix == ".py"]
        worker = {"Dockerfile": (docker / "Dockerfile.worker").read_bytes()} | {
            path.relative_to(assets.ROOT).as_posix(): path.read_bytes() for path in modules
        }
    identities: list[str] = []
    for recipe in (system, packages, worker):
        identities.append(identity(recipe, identities[-1] if identities else base))
    return (
        Layer(f"kit-system:{identities[0]}", system),
        Layer(f"kit-{framework.name}:{device}-packages-{identities[1]}", packages),
        Layer(f"kit-{framework.name}:{device}-{identities[2]}", worker),
    )


def identity(recipe: Recipe, below: str) -> str:
    """Return the content hash of an image, 12 hexadecimal digits. below: identity of the image that it is made from."""
    digest = hashlib.sha256()
    contents = (part for name in sorted(recipe) for part in (name.encode(), recipe[name]))
    for part in (below.encode(), *contents):
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()[:12]


def source_files(lock: str, device: Device, sources: Sources) -> dict[str, Path | bytes]:
    """Return the files that say where packages come from: pip.conf, CA bundle, wheels. lock: the list's text.

    They may hold a password, so they are only in the temporary volume of the container that installs the packages.
    """
    with disk_errors(Path(sources.find_links), did="read"):
        files: dict[str, Path | bytes] = {"pip.conf": _pip_conf(lock, device, sources).encode()}
        if sources.ca_bundle:
            files["ca.pem"] = sources.ca_bundle
        if device == "cpu":
            files |= {f"wheels/{wheel.name}": wheel for wheel in _wheels(lock, sources)}
    return files


def _pip_conf(lock: str, device: Device, sources: Sources) -> str:
    lines = ["[global]", "disable-pip-version-check = true", "progress-bar = off"]
    if sources.index_url:
        lines.append(f"index-url = {sources.index_url}")
    if sources.ca_bundle:
        lines.append("cert = /build/ca.pem")
    if device == "cpu" and sources.find_links_folder():
        lines.append("find-links = /build/wheels")
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

    wheels = (path for path in folder.iterdir() if path.match("*-*.whl"))  # `glob` hides a fault of the disk
    return sorted(filter(is_wanted, wheels))


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@contextmanager
def archive(files: Mapping[str, Path | bytes]) -> Iterator[IO[bytes]]:
    """Write a build context to an open tar file, sorted by name. Owners and times do not change the archive.

    Raise DiskError if a file cannot be read, or if there is no space for the archive.
    """
    with ExitStack() as stack:
        try:
            file = TemporaryFile()  # noqa: SIM115 - the stack closes it
            stack.callback(_close, file)
            with tarfile.open(fileobj=file, mode="w") as tar:
                for name, source in sorted(files.items()):
                    _add(tar, name, source)
            file.seek(0)
        except OSError as error:
            raise DiskError(
                f"The files of an image cannot be packed: {error}", "Free some space, or set TMPDIR."
            ) from error
        yield file


def _close(file: IO[bytes]) -> None:
    with suppress(OSError):  # on a full disk, what the buffer still holds fails again
        file.close()


def _add(tar: tarfile.TarFile, name: str, source: Path | bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.mode = 0o644
    if isinstance(source, Path):
        with disk_errors(source, did="read"):
            content: IO[bytes] = source.open("rb")
    else:
        content = io.BytesIO(source)
    with content:
        entry.size = content.seek(0, io.SEEK_END)
        content.seek(0)
        tar.addfile(entry, content)
