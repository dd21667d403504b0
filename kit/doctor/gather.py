"""Collect the facts about this machine. Anything that does not answer within seconds is left out."""

import os
import platform
import re
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from concurrent import futures
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pynvml
import uv

from kit.datasets import service
from kit.datasets.registry import SOURCES
from kit.doctor import mirrors
from kit.doctor.facts import Cpus, DataSet, Docker, Facts, Folder, Gpus, Local, Toolkit
from kit.engines import containers
from kit.engines.base import Engine
from kit.engines.docker import DockerEngine
from kit.engines.local import LocalEngine
from kit.environments.package_sources import Sources
from kit.environments.uv_environments import PYTHON
from kit.host import gpu_choice, gpus, machine
from kit.host.background import in_background
from kit.host.load import measure_load
from kit.host.paths import cache_folder
from kit.model.environment import EnvironmentKey, Framework
from kit.model.errors import DataError, EngineError, KitError, UsageError
from kit.planning import catalog
from scenarios.linux.files import text
from scenarios.spec import DATASETS

T = TypeVar("T")

LOAD_S = 0.5
PATIENCE_S = 3.0  # for engines, driver, tools and mirrors, which run at the same time
NVIDIA, DISPLAY = "0x10de", "0x03"  # PCI vendor, and prefix of the PCI classes of display controllers (pci.ids)


def gather_facts(sources: Sources, out: Path) -> Facts:
    """Return the facts within LOAD_S plus PATIENCE_S. out: folder for runs."""
    load = measure_load(LOAD_S)  # first, while this process does nothing else
    frameworks = tuple(catalog.frameworks().values())
    sets = [_data_set(name) for name in DATASETS]
    docker = in_background(lambda: _docker(DockerEngine(sources), frameworks))
    local = in_background(lambda: _local(LocalEngine(sources), frameworks))
    driver = in_background(lambda: _gpus(frameworks))
    asked = {
        one.name: [in_background(question) for question in mirrors.questions(one.name, PATIENCE_S)]
        for one in sets
        if not (one.here or one.damage)
    }
    until = time.monotonic() + PATIENCE_S
    return Facts(
        system=platform.system(),
        architecture=platform.machine(),
        docker=_take(docker, until, Docker(_late("Docker", "Run `docker info` to see why, or use --engine local."))),
        local=_take(local, until, Local(_late("uv", "Run `uv --version` to see why, or use --engine docker."))),
        frameworks=frameworks,
        cards=_cards(),
        gpus=_take(driver, until, Gpus(answered=False)),
        folders=_folders(out),
        cpus=Cpus(len(machine.usable_cpus()), psutil.cpu_count() or 1, machine.quota_cpus()),
        available_bytes=psutil.virtual_memory().available,
        limit_bytes=machine.memory_limit_bytes(),
        shm_free_bytes=_free(Path("/dev/shm")),  # noqa: S108 - read only
        governors=_governors(),
        load=load,
        datasets=[_with_answers(one, asked.get(one.name, ()), until) for one in sets],
    )


def _take(future: futures.Future[T], until: float, otherwise: T) -> T:
    """Return the result, or `otherwise` if it is late. until: time of the monotonic clock."""
    futures.wait([future], max(0.0, until - time.monotonic()))
    return future.result() if future.done() else otherwise


def _late(what: str, remedy: str) -> EngineError:
    return EngineError(f"{what} did not answer within {PATIENCE_S:.0f} s.", remedy)


def _ready(engine: Engine, frameworks: Sequence[Framework]) -> frozenset[EnvironmentKey]:
    """Return the environments that are already built."""
    places = ((framework, device) for framework in frameworks for device in framework.devices)
    return frozenset((framework.name, device) for framework, device in places if engine.ready(framework, device))


def _docker(engine: DockerEngine, frameworks: Sequence[Framework]) -> Docker:
    try:
        description = engine.describe()
        info: Mapping[str, Any] = engine.daemon.info
        ready = _ready(engine, frameworks)
    except KitError as error:
        return Docker(error)
    root = info.get("DockerRootDir")
    toolkit = Toolkit(_ways(info), parse_toolkit_version(_output("nvidia-ctk", "--version")))
    return Docker(description, toolkit, _free(Path(root)) if root else None, ready)


def _ways(info: Mapping[str, Any]) -> tuple[str, ...]:
    """Return how the engine passes GPUs to containers, according to its own description."""
    ways = {
        "CDI": containers.Host.of(info).cdi,
        "nvidia runtime": "nvidia" in (info.get("Runtimes") or {}),
        "hook": shutil.which("nvidia-container-runtime-hook") is not None,
    }
    return tuple(way for way, there in ways.items() if there)


def parse_toolkit_version(text: str) -> tuple[int, ...] | None:
    """Return the version in the output of `nvidia-ctk --version`: `NVIDIA Container Toolkit CLI version 1.17.8`."""
    found = re.search(r"version v?(\d+)\.(\d+)\.(\d+)", text)
    return tuple(map(int, found.groups())) if found else None


def _local(engine: LocalEngine, frameworks: Sequence[Framework]) -> Local:
    try:
        description, ready = engine.describe(), _ready(engine, frameworks)
    except KitError as error:
        return Local(error)
    # Search like `uv venv`, which ignores virtual environments.
    find = ("python", "find", "--system", "--no-project", "--no-python-downloads", "--show-version", PYTHON)
    return Local(description, _output(uv.find_uv_bin(), *find).strip() or None, ready)


def _output(program: str, *arguments: str) -> str:
    """Return the output of a program, or "" if it is missing, fails or hangs."""
    try:
        run = subprocess.run([program, *arguments], capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    except (OSError, subprocess.SubprocessError):
        return ""
    return run.stdout


def _gpus(frameworks: Sequence[Framework]) -> Gpus:
    try:
        # Keep the driver open for all queries. Without persistence mode, an idle driver takes a second to start.
        pynvml.nvmlInit()
    except pynvml.NVMLError:  # no driver, or no permission
        return Gpus()
    try:
        version, cuda = gpus.driver()
        offered = [framework for framework in frameworks if "cuda" in framework.devices]
        return Gpus(
            tuple(gpus.gpus()),
            version,
            cuda,
            busy=tuple(gpus.busy()),
            silent=gpus.silent(),
            modes=gpus.restricted(),
            visible=_visible_gpus(),
            lacks={one.name: lack for one in offered if (lack := gpus.lack(one))},
        )
    finally:
        gpus.ask(pynvml.nvmlShutdown)


def _visible_gpus() -> tuple[str, ...] | KitError | None:
    try:
        return gpu_choice.hidden() or gpu_choice.visible_gpus()
    except UsageError as error:
        return error


def _cards(devices: Path = Path("/sys/bus/pci/devices")) -> int:
    """Return the number of NVIDIA GPUs on the PCI bus."""
    found = [device for device in devices.glob("*") if text(device / "vendor") == NVIDIA]
    return sum((text(device / "class") or "").startswith(DISPLAY) for device in found)


def _governors(cpus: Path = Path("/sys/devices/system/cpu")) -> list[str]:
    return [name for name in map(text, cpus.glob("cpu[0-9]*/cpufreq/scaling_governor")) if name]


def _free(folder: Path) -> int | None:
    """Return the free bytes on the disk of `folder`, or None if they are unknown."""
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None


def _folders(out: Path) -> list[Folder]:
    places = [
        ("disk cache", cache_folder(), "KIT_CACHE_DIR"),
        ("disk data", service.data_dir(), "KIT_DATA_DIR"),
        ("disk out", out, "--out"),
    ]
    return [_folder(name, path, setting) for name, path, setting in places]


def _folder(name: str, path: Path, setting: str) -> Folder:
    nearest = next(place for place in (path.absolute(), *path.absolute().parents) if os.path.lexists(place))
    writable = nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)
    return Folder(name, path, setting, writable, _free(nearest) or 0)


def _data_set(name: str) -> DataSet:
    """Return the local state of a data set. No mirror is asked."""
    size = sum(file.size for file in SOURCES[name])
    try:
        return DataSet(name, service.status(name).prepared is not None, size)
    except DataError as error:
        return DataSet(name, here=False, download_bytes=size, damage=error)


def _with_answers(found: DataSet, asked: Sequence[futures.Future[bool]], until: float) -> DataSet:
    reachable = any(_take(answer, until, otherwise=False) for answer in asked)
    return DataSet(found.name, found.here, found.download_bytes, found.damage, reachable)
