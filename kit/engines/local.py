"""Run launches without containers: in an environment that uv makes, or in an interpreter that has the packages."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent import futures
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from kit import assets
from kit.engines import confine
from kit.engines.base import EngineEntry
from kit.engines.containers import FOLDERS, LOG_BYTES
from kit.engines.launch_log import copy_output
from kit.engines.memory import AT_LIMIT, MemoryMeter
from kit.engines.processes import abandoned, end, identity, lives, marked
from kit.engines.supervise import Ending, supervise
from kit.environments import interpreters, uv_environments
from kit.environments.package_sources import Sources
from kit.host import gpus
from kit.host.background import in_background
from kit.model.environment import Environment, Framework
from kit.model.launch import Completion, LaunchFolder, Limits
from kit.model.progress import Progress
from kit.storage.files import disk_errors
from scenarios.contract.cell import Device

INHERITED = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH")
RUN_VARIABLE = "KIT_RUN"
OWNER_VARIABLE = "KIT_ORCHESTRATOR"
TOKEN_VARIABLE = "KIT_LAUNCH_TOKEN"  # noqa: S105 - names one launch, no secret
# Prefix of a launch's temporary folder; the orchestrator's identity follows. The folder is in the system's own one, not
# in scratch: a DataLoader's workers hand over batches by sockets, whose paths have at most 107 characters.
TEMPORARY = "kit-launch-"
TEMPORARY_REMEDY = "Set TMPDIR to another folder."


class LocalEngine:
    """Runs workers as processes on this machine.

    sources: where packages come from. interpreter: `system`, a name or a path, as `--env` takes it; if empty, uv makes
    the environments. root: the folder that holds `scenarios`.
    """

    name = "local"

    def __init__(self, sources: Sources, interpreter: str = "", root: Path = assets.ROOT) -> None:
        self._sources = sources
        self._interpreter = interpreter
        self._root = root
        self._probes: dict[str, interpreters.Interpreter] = {}

    def describe(self) -> dict[str, str]:
        """Return uv's version, or Python's if an interpreter was named. Raise EngineError if it cannot be used."""
        if not self._interpreter:
            return {"engine": self.name, "uv": uv_environments.uv_version()}
        python = interpreters.probe(interpreters.find(self._interpreter), ()).python
        return {"engine": self.name, "python": ".".join(map(str, python))}

    def refusal(self, framework: Framework, device: Device) -> str | None:
        """Return why cells of this framework on this device cannot run, None if they can."""
        if not self._interpreter:
            return gpus.refusal(framework) if device == "cuda" else None
        found = self._probe(framework)
        if found.python < interpreters.MIN_PYTHON:
            own, needed = (".".join(map(str, version)) for version in (found.python, interpreters.MIN_PYTHON))
            return f"--env {self._interpreter} is Python {own}, but kit needs {needed} or newer."
        if found.missing:
            return f"--env {self._interpreter} lacks {', '.join(found.missing)}. Install it there, or omit --env."
        return gpus.absence() if device == "cuda" else None

    def ready(self, framework: Framework, device: Device) -> bool:
        """Return whether the environment exists. A named interpreter always does."""
        return bool(self._interpreter) or uv_environments.exists(framework, device)

    def prepare(self, framework: Framework, device: Device, progress: Progress) -> Environment:
        """Return the named interpreter as it is, else the framework's environment. Make that one if its lock is new."""
        if not self._interpreter:
            return uv_environments.ensure(framework, device, self._sources, self._root, progress)
        found = self._probe(framework)
        return Environment(framework.name, device, "system", str(found.executable), found.digest)

    def find(self, framework: Framework, device: Device, digest: str) -> Environment | None:
        """Return the named interpreter if it still has the packages of this digest, else the environment of the lock
        with this digest, else None."""
        if self._interpreter and (found := self._probe(framework)).digest == digest:
            return Environment(framework.name, device, "system", str(found.executable), digest)
        return uv_environments.find(framework, device, digest)

    def launch(
        self,
        environment: Environment,
        folder: LaunchFolder,
        limits: Limits,
        variables: Mapping[str, str],
        labels: Mapping[str, str],
        stopped: Callable[[], bool],
    ) -> Completion:
        """Run the worker as the leader of a new session. When this returns or raises, no process that the worker
        started is left. If this process is killed, the worker dies with it."""
        own = {f"KIT_{name.upper()}": value for name, value in labels.items()}
        own |= {OWNER_VARIABLE: identity(os.getpid()), TOKEN_VARIABLE: uuid.uuid4().hex}
        with disk_errors(folder.scratch):
            for place in FOLDERS.values():
                (folder.scratch / place).mkdir(parents=True, exist_ok=True)
        with _temporary_folder() as temporary:
            own |= {"TMPDIR": temporary}
            environ = {**variables, **self._variables(environment, folder, limits), **own}
            return self._run(self._command(environment, folder, limits), environ, folder, limits, stopped)

    def _run(
        self,
        command: list[str],
        environ: Mapping[str, str],
        folder: LaunchFolder,
        limits: Limits,
        stopped: Callable[[], bool],
    ) -> Completion:
        began = time.monotonic()
        try:
            process = subprocess.Popen(
                command,
                cwd=folder.scratch,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            return Completion(None, time.monotonic() - began, not_started=str(error))
        memory = MemoryMeter(process.pid, limits.memory_bytes)
        log = in_background(lambda: _copy_log(process, folder.log))
        ending: Ending = "stopped"  # also if an exception ends the wait
        try:
            ending = supervise(partial(_ended, process), began + limits.timeout_s, memory.over_limit, log, stopped)
        finally:
            end(
                lambda: marked(lambda found: found.get(TOKEN_VARIABLE) == environ[TOKEN_VARIABLE]),
                gently=ending in {"stopped", "deadline"},
            )
            code = process.wait()
            futures.wait([log])
        log.result()
        killed = ending == "ended" and code == -signal.SIGKILL and memory.peak_bytes >= AT_LIMIT * limits.memory_bytes
        return Completion(
            exit_code=code if code >= 0 else 128 - code,  # as in shells and containers
            seconds=time.monotonic() - began,
            timed_out=ending == "deadline",
            out_of_memory=ending == "memory" or killed,
        )

    def sweep(self, alive: Callable[[str], bool]) -> list[str]:
        """End the processes of runs that are not alive, and remove their temporary folders. Return a line for each.

        Processes whose orchestrator still runs are not leftovers, even if `alive` does not know their run: this process
        may use another cache folder.
        """

        def leftover(found: Mapping[str, str]) -> bool:
            run, owner = found.get(RUN_VARIABLE), found.get(OWNER_VARIABLE)
            return run is not None and owner is not None and not alive(run) and not lives(owner)

        found = [f"process {process.pid}" for process in marked(leftover)]
        end(lambda: marked(leftover), gently=False)
        for folder in abandoned(_place_of_temporary_folders(), TEMPORARY):
            shutil.rmtree(folder)
            found.append(f"folder {folder}")
        return found

    def remove_environments(self) -> list[str]:
        """Remove every environment that uv made. Return a line for each. Raise DiskError."""
        return [f"environment {name}" for name in uv_environments.remove_all()]

    def _probe(self, framework: Framework) -> interpreters.Interpreter:
        if framework.name not in self._probes:
            program = interpreters.find(self._interpreter)
            self._probes[framework.name] = interpreters.probe(program, (*framework.modules, *interpreters.NEEDED))
        return self._probes[framework.name]

    def _command(self, environment: Environment, folder: LaunchFolder, limits: Limits) -> list[str]:
        cpus = ",".join(map(str, limits.cpus))
        confined = [sys.executable, "-I", str(Path(confine.__file__)), str(os.getpid()), cpus]
        worker = [environment.reference, "-P", "-m", "scenarios.worker", str(folder.scratch.resolve())]
        data = ["--data", str(folder.data.resolve())] if folder.data else []
        return [*confined, *worker, *data]

    def _variables(self, environment: Environment, folder: LaunchFolder, limits: Limits) -> dict[str, str]:
        """Return the worker's whole environment except for the variables that the request asks for: a few of the
        caller's variables, every home and cache in the scratch folder, the GPUs by the driver's numbers."""
        scratch = folder.scratch.resolve()
        found = {name: os.environ[name] for name in INHERITED if name in os.environ}
        found |= {name: str(scratch / place) for name, place in FOLDERS.items()}
        found |= {
            "PATH": os.pathsep.join([str(Path(environment.reference).parent), found.get("PATH", os.defpath)]),
            "PYTHONPATH": str(self._root),
            "PYTHONUNBUFFERED": "1",
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            "CUDA_VISIBLE_DEVICES": ",".join(limits.gpus),
        }
        if environment.kind == "system":  # modules of a cluster, packages of `pip install --user`
            found["PYTHONPATH"] = os.pathsep.join([str(self._root), *filter(None, [os.environ.get("PYTHONPATH")])])
            found["PYTHONUSERBASE"] = self._probes[environment.framework].user_base
        else:
            found["PYTHONNOUSERSITE"] = "1"
        return found


def _place_of_temporary_folders() -> Path:
    """Return the system's folder for temporary files. Raise DiskError if none can be written."""
    with disk_errors(Path("TMPDIR"), TEMPORARY_REMEDY):
        return Path(tempfile.gettempdir())


@contextmanager
def _temporary_folder() -> Iterator[str]:
    """Make the folder for the temporary files of a launch, and remove it at the end. Raise DiskError."""
    place = _place_of_temporary_folders()
    with disk_errors(place, TEMPORARY_REMEDY):
        folder = tempfile.TemporaryDirectory(dir=place, prefix=f"{TEMPORARY}{identity(os.getpid())}-")
    with folder as name:
        yield name


def _ended(process: subprocess.Popen[bytes], timeout_s: float) -> bool:
    with suppress(subprocess.TimeoutExpired):
        process.wait(timeout_s)
    return process.returncode is not None


def _copy_log(process: subprocess.Popen[bytes], path: Path) -> None:
    assert process.stdout is not None
    with process.stdout as output:  # closed even if the log cannot be written
        copy_output(iter(lambda: os.read(output.fileno(), 1 << 16), b""), path, LOG_BYTES)


ENGINES = (
    EngineEntry("local", "the local engine", LocalEngine, makes="environment", takes_interpreter=True, auto_rank=2),
)
