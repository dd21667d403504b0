"""Make the local engine's virtual environments with uv: one per framework and device, from the locks of the images."""

import collections
import hashlib
import json
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import filelock
import uv

from kit.environments.build_context import lock_file
from kit.environments.package_sources import Sources
from kit.environments.subprocesses import running
from kit.host.paths import cache_folder
from kit.host.privacy import without_user_info
from kit.model.environment import Environment, Framework
from kit.model.errors import DiskError, EngineError, ImageError
from kit.model.progress import Progress
from kit.storage.files import disk_errors, write_atomic
from scenarios.contract.cell import Device
from scenarios.contract.disk import says_full

PYTHON = "3.11"
MARKER = "complete.json"
TAIL_LINES = 15
LOCAL_VERSION = re.compile(r"^\S+==[^\s;]*\+", re.MULTILINE)  # for example 2.13.0+cpu: no index has such wheels
DISK_REMEDY = (
    "Set KIT_CACHE_DIR to another folder that you can write to. To free space, remove all environments with "
    "`kit clean --environments`."
)
OTHER_WAYS = "Use --engine docker, or --env with an interpreter that has the framework."


def folder() -> Path:
    """Return the folder of all environments."""
    return cache_folder() / "environments"


def uv_version() -> str:
    """Return the version of uv. Raise EngineError if it cannot be run."""
    try:
        answer = subprocess.run([_uv(), "--version"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise EngineError(f"The program uv, which makes environments, does not run: {error}", OTHER_WAYS) from error
    return answer.split()[1]


def ensure(framework: Framework, device: Device, sources: Sources, assets: Path, progress: Progress) -> Environment:
    """Return the environment of this lock. Make it if it is missing. assets: the folder that holds `scenarios`.

    An environment is complete if all packages are installed and the framework's adapter could be imported. The rest of
    an interrupted attempt is replaced. Raise EngineError if there is no suitable Python, ImageError if a package cannot
    be installed or the adapter cannot be imported, DiskError if a file cannot be read or written.
    """
    lock, digest, home = _place(framework, device)
    with disk_errors(folder(), DISK_REMEDY):
        home.parent.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(home.with_suffix(".lock")):
            marker = home / MARKER
            if not marker.exists():
                with progress.task(f"environment {framework.title} on {device}"):
                    _make(framework, home, lock, sources, assets)
                write_atomic(marker, json.dumps({"size_bytes": _size(home)}))
            return _environment(framework, device, digest, home)


def find(framework: Framework, device: Device, digest: str) -> Environment | None:
    """Return the environment of the lock with this SHA-256, or None if it no longer exists. Raise DiskError."""
    home = _home(framework, device, digest)
    return _environment(framework, device, digest, home) if (home / MARKER).exists() else None


def exists(framework: Framework, device: Device) -> bool:
    """Return whether the environment of this lock exists."""
    return (_place(framework, device)[2] / MARKER).exists()


def _place(framework: Framework, device: Device) -> tuple[Path, str, Path]:
    """Return the lock file, its SHA-256, and the environment's folder."""
    with disk_errors(framework.folder, did="read"):
        lock = lock_file(framework, device)
        digest = hashlib.sha256(lock.read_bytes()).hexdigest()
    return lock, digest, _home(framework, device, digest)


def _home(framework: Framework, device: Device, digest: str) -> Path:
    return folder() / f"{framework.name}-{device}-{digest[:12]}"


def _environment(framework: Framework, device: Device, digest: str, home: Path) -> Environment:
    """Return a complete environment."""
    marker = home / MARKER
    with disk_errors(marker, did="read"):
        size = json.loads(marker.read_text(encoding="utf-8"))["size_bytes"]
    return Environment(framework.name, device, "venv", str(home / "bin" / "python"), digest, size)


def remove_all() -> list[str]:
    """Remove every environment. Return their names. Raise DiskError if one cannot be removed."""
    if not folder().is_dir():
        return []
    with disk_errors(folder(), DISK_REMEDY):
        found = sorted(path for path in folder().iterdir() if path.is_dir())
        for path in found:
            with filelock.FileLock(path.with_suffix(".lock")):
                (path / MARKER).unlink(missing_ok=True)  # first: the rest of an interrupted removal is incomplete
                shutil.rmtree(path)
            path.with_suffix(".lock").unlink(missing_ok=True)
    return [path.name for path in found]


def _make(framework: Framework, home: Path, lock: Path, sources: Sources, assets: Path) -> None:
    variables = {"UV_LINK_MODE": "hardlink"} | sources.variables()
    tool = _uv()
    made = _run([tool, "venv", "--no-project", "--clear", "--python", PYTHON, str(home)], home.parent, variables)
    if made is not None:
        raise EngineError(f"An environment with Python {PYTHON} could not be made:\n{made}", OTHER_WAYS)
    python = str(home / "bin" / "python")
    command = [tool, "pip", "install", "--python", python, "--require-hashes", "--no-deps", "--requirement", str(lock)]
    places = sources.index_variables()
    with disk_errors(lock, did="read"):
        if lock.stem == "cpu" and LOCAL_VERSION.search(lock.read_text(encoding="utf-8")):
            places |= sources.wheel_variables()
    installed = _run(command, home.parent, variables | places)
    if installed is not None:
        raise ImageError(
            f"The packages of {framework.title} ({lock.parent.name}/{lock.name}) could not be installed:\n{installed}",
            "Check that the package index can be reached (KIT_INDEX_URL, KIT_FIND_LINKS, KIT_CA_BUNDLE). If a hash "
            f"does not match, the source serves another file. Use another source. {OTHER_WAYS}",
        )
    # One import shows that the adapter works, and compiles the modules before the first launch's import is timed.
    adapter = [python, "-P", "-c", f"import scenarios.frameworks.{framework.name}.adapter"]
    imported = _run(adapter, home.parent, {**variables, "PYTHONPATH": str(assets)})
    if imported is not None:
        raise ImageError(f"{framework.title} is installed but cannot be imported:\n{imported}", OTHER_WAYS)


def _run(command: list[str], cwd: Path, variables: Mapping[str, str]) -> str | None:
    """Run a command. Return the last lines of its output if it failed, else None."""
    tail: collections.deque[str] = collections.deque(maxlen=TAIL_LINES)
    with running(command, variables, cwd=cwd) as process:
        assert process.stdout is not None
        for line in process.stdout:
            tail.append(without_user_info(line.rstrip()))
    if process.returncode == 0:
        return None
    text = "\n".join(tail)
    if says_full(text):
        raise DiskError(f"The disk has no space for the environment:\n{text}", DISK_REMEDY)
    return text


def _uv() -> str:
    try:
        return uv.find_uv_bin()
    except FileNotFoundError as error:
        raise EngineError("The program uv, which makes environments, is missing.", "Install kit again.") from error


def _size(home: Path) -> int:
    return sum(path.lstat().st_size for path in home.rglob("*"))
