"""The facts of this machine, within seconds: what does not answer in time is not waited for."""

from __future__ import annotations

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
from kit.doctor.facts import Cpus, DataSet, Docker, Facts, Folder, Gpus, Load, Local, Toolkit
from kit.engines import containers
from kit.engines.base import Engine
from kit.engines.docker import DockerEngine
from kit.engines.local import LocalEngine
from kit.environments.package_sources import Sources
from kit.environments.uv_environments import PYTHON
from kit.host import gpus, machine
from kit.host.background import in_background
from kit.host.paths import cache_folder
from kit.host.sampling.cpu import MIN_TICKS, Ticks, read_stat
from kit.model.environment import EnvironmentKey, Framework
from kit.model.errors import DataError, EngineError, KitError
from kit.planning import catalog
from scenarios.spec import DATASETS

T = TypeVar("T")

LOAD_S = 0.5
PATIENCE_S = 3.0  # for engines, driver, tools and mirrors, which are all asked at once
BUSIEST = 3
NVIDIA, DISPLAY = "0x10de", "0x03"  # PCI's vendor number, and how its classes of display controllers begin (pci.ids)


def gather_facts(sources: Sources, out: Path) -> Facts:
    """The facts, after LOAD_S and PATIENCE_S at most. out: the folder that takes the runs."""
    load = _measure_load()  # first, while nothing else of this process runs
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
        docker=_take(docker, until, Docker(_late("Docker", "See what `docker info` says; or use --engine local."))),
        local=_take(local, until, Local(_late("uv", "See whether `uv --version` ends; or use --engine docker."))),
        frameworks=frameworks,
        cards=_cards(),
        gpus=_take(driver, until, Gpus(answered=False)),
        folders=_folders(out),
        cpus=Cpus(len(machine.usable_cpus()), psutil.cpu_count() or 1, machine.quota_cpus()),
        available_bytes=psutil.virtual_memory().available,
        limit_bytes=machine.memory_limit_bytes(),
        shm_free_bytes=_free(Path("/dev/shm")),  # noqa: S108 - looked at, not written to
        governors=_governors(),
        load=load,
        datasets=[_with_answers(one, asked.get(one.name, ()), until) for one in sets],
    )


def _take(future: futures.Future[T], until: float, otherwise: T) -> T:
    """The result, or `otherwise` where it is not there by then. until: reading of the monotonic clock."""
    futures.wait([future], max(0.0, until - time.monotonic()))
    return future.result() if future.done() else otherwise


def _late(what: str, remedy: str) -> EngineError:
    return EngineError(f"{what} did not answer within {PATIENCE_S:.0f} s.", remedy)


def _ready(engine: Engine, frameworks: Sequence[Framework]) -> frozenset[EnvironmentKey]:
    """Where nothing is to be built any more."""
    places = ((framework, device) for framework in frameworks for device in framework.devices)
    return frozenset((framework.name, device) for framework, device in places if engine.ready(framework, device))


def _docker(engine: DockerEngine, frameworks: Sequence[Framework]) -> Docker:
    try:
        description = engine.describe()
        info: Mapping[str, Any] = engine.info()
        ready = _ready(engine, frameworks)
    except KitError as error:
        return Docker(error)
    root = info.get("DockerRootDir")
    toolkit = Toolkit(_ways(info), parse_toolkit_version(_output("nvidia-ctk", "--version")))
    return Docker(description, toolkit, _free(Path(root)) if root else None, ready)


def _ways(info: Mapping[str, Any]) -> tuple[str, ...]:
    """How the engine, by what it says of itself, hands GPUs to containers."""
    ways = {
        "CDI": containers.Host.of(info).cdi,
        "nvidia runtime": "nvidia" in (info.get("Runtimes") or {}),
        "hook": shutil.which("nvidia-container-runtime-hook") is not None,
    }
    return tuple(way for way, there in ways.items() if there)


def parse_toolkit_version(text: str) -> tuple[int, ...] | None:
    """From what `nvidia-ctk --version` prints, as `NVIDIA Container Toolkit CLI version 1.17.8`."""
    found = re.search(r"version v?(\d+)\.(\d+)\.(\d+)", text)
    return tuple(map(int, found.groups())) if found else None


def _local(engine: LocalEngine, frameworks: Sequence[Framework]) -> Local:
    try:
        description, ready = engine.describe(), _ready(engine, frameworks)
    except KitError as error:
        return Local(error)
    # As `uv venv` looks for it: not in virtual environments.
    find = ("python", "find", "--system", "--no-project", "--no-python-downloads", "--show-version", PYTHON)
    return Local(description, _output(uv.find_uv_bin(), *find).strip() or None, ready)


def _output(program: str, *arguments: str) -> str:
    """What a program prints; nothing where it is not there, fails or hangs: then it tells nothing."""
    try:
        run = subprocess.run([program, *arguments], capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    except (OSError, subprocess.SubprocessError):
        return ""
    return run.stdout


def _gpus(frameworks: Sequence[Framework]) -> Gpus:
    try:
        # Held open over all questions: without persistence mode a driver that nobody uses takes a second to start.
        pynvml.nvmlInit()
    except pynvml.NVMLError:  # no driver, or none for this user
        return Gpus()
    try:
        version, cuda = gpus.driver()
        offered = [framework for framework in frameworks if "cuda" in framework.devices]
        lacks = {one.name: lack for one in offered if (lack := gpus.lack(one))}
        return Gpus(tuple(gpus.gpus()), version, cuda, tuple(gpus.busy()), lacks)
    except pynvml.NVMLError:  # a GPU that is lost, or whose interrupts do not arrive
        return Gpus(answered=False)
    finally:
        pynvml.nvmlShutdown()


def _cards(devices: Path = Path("/sys/bus/pci/devices")) -> int:
    """NVIDIA GPUs on the PCI bus."""
    found = [(_text(device / "vendor"), _text(device / "class")) for device in devices.glob("*")]
    return sum(vendor == NVIDIA and kind.startswith(DISPLAY) for vendor, kind in found)


def _governors(cpus: Path = Path("/sys/devices/system/cpu")) -> list[str]:
    return [name for name in map(_text, cpus.glob("cpu[0-9]*/cpufreq/scaling_governor")) if name]


def _text(path: Path) -> str:
    """The stripped text of a small system file, empty where it is not shown to this user."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _free(folder: Path) -> int | None:
    """Bytes free to this user on the disk of `folder`; None where it is not to be seen."""
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
    there = next(place for place in (path.absolute(), *path.absolute().parents) if os.path.lexists(place))
    writable = there.is_dir() and os.access(there, os.W_OK | os.X_OK)
    return Folder(name, path, setting, writable, _free(there) or 0)


def _measure_load() -> Load | None:
    cpus = os.sched_getaffinity(0)
    stat = Path("/proc/stat")
    programs = _programs()
    began, spent, before = time.monotonic(), time.process_time(), read_stat(stat)
    time.sleep(LOAD_S)
    after = read_stat(stat)
    own = (time.process_time() - spent) / (time.monotonic() - began)
    ran: dict[str, float] = {}
    for process, (name, seconds) in _programs().items():
        ran[name] = ran.get(name, 0.0) + seconds - programs.get(process, (name, 0.0))[1]
    busiest = sorted((name for name in ran if ran[name] > 0), key=lambda name: -ran[name])
    return load_between(before, after, cpus, own, tuple(busiest[:BUSIEST]))


def load_between(
    before: Mapping[int, Ticks], after: Mapping[int, Ticks], cpus: set[int], own: float, busiest: tuple[str, ...]
) -> Load | None:
    """The load on `cpus` between two readings. own: CPUs that this process kept busy meanwhile."""
    passed = [after[cpu].since(before[cpu]) for cpu in cpus if cpu in before and cpu in after]
    counted = [ticks for ticks in passed if ticks.all >= MIN_TICKS]
    if not counted:
        return None
    busy = sum(ticks.busy / ticks.all for ticks in counted)
    return Load(len(counted), max(0.0, busy - own), sum(ticks.stolen / ticks.all for ticks in counted), busiest)


def _programs() -> dict[psutil.Process, tuple[str, float]]:
    """All other processes: name, without arguments, and CPU seconds so far."""
    found = {}
    for process in psutil.process_iter(["name", "cpu_times"]):
        times = process.info["cpu_times"]
        if process.pid != os.getpid() and times is not None:
            found[process] = (process.info["name"], times.user + times.system)
    return found


def _data_set(name: str) -> DataSet:
    """What is here of it, without asking for the rest."""
    size = sum(file.size for file in SOURCES[name])
    try:
        return DataSet(name, service.status(name).prepared is not None, size)
    except DataError as error:
        return DataSet(name, here=False, download_bytes=size, damage=error)
    except OSError as error:
        damage = DataError(f"It cannot be read: {error.strerror}.", "Give yourself access, or set KIT_DATA_DIR.")
        return DataSet(name, here=False, download_bytes=size, damage=damage)


def _with_answers(found: DataSet, asked: Sequence[futures.Future[bool]], until: float) -> DataSet:
    reachable = any(_take(answer, until, otherwise=False) for answer in asked)
    return DataSet(found.name, found.here, found.download_bytes, found.damage, reachable)
