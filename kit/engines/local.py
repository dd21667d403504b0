"""Launches without containers: a worker in an environment made by uv, or in an interpreter that is already equipped."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Literal

from kit import assets
from kit.engines import confine
from kit.engines.containers import FOLDERS, LOG_BYTES
from kit.engines.launch_log import copy_output
from kit.engines.processes import MemoryMeter, end, identity, lives, marked
from kit.environments import interpreters, uv_environments
from kit.environments.package_sources import Sources
from kit.host import gpus
from kit.model.environment import Device, Environment, Framework
from kit.model.launch import Completion, LaunchFolder, Limits
from kit.model.progress import Progress
from kit.storage.run_folder import writing

Outcome = Literal["ended", "deadline", "memory", "stopped"]

INHERITED = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH")
RUN_VARIABLE = "KIT_RUN"
OWNER_VARIABLE = "KIT_ORCHESTRATOR"
TOKEN_VARIABLE = "KIT_LAUNCH_TOKEN"  # noqa: S105 - names one launch, no secret
# Of a launch's temporary folder, with the orchestrator's identity. In the system's own place rather than in scratch:
# the sockets by which a DataLoader's workers hand over batches have at most 107 characters of path.
TEMPORARY = "kit-launch-"
POLL_S = 0.2
DESCENDANTS_S = 1.0  # between looks for new processes, which cost milliseconds each
AT_LIMIT = 0.95  # of the memory limit: where a killed process had nothing left to take


class LocalEngine:
    """Processes on this machine. sources: where packages come from. interpreter: `system`, a name or path, as `--env`
    takes it; empty for environments of our own. root: the folder that holds `scenarios`."""

    name = "local"

    def __init__(self, sources: Sources, interpreter: str = "", root: Path = assets.ROOT) -> None:
        self._sources = sources
        self._interpreter = interpreter
        self._root = root
        self._probes: dict[str, interpreters.Interpreter] = {}

    def describe(self) -> dict[str, str]:
        """What makes the environments, and Python's version where an interpreter was named. Raises EngineError."""
        if not self._interpreter:
            return {"engine": self.name, "uv": uv_environments.uv_version()}
        python = interpreters.probe(interpreters.find(self._interpreter), ()).python
        return {"engine": self.name, "python": ".".join(map(str, python))}

    def refusal(self, framework: Framework, device: Device) -> str | None:
        """Why cells of this framework on this device cannot run, or None."""
        if device not in framework.devices:
            return f"{framework.title} is not offered on {device}."
        if not self._interpreter:
            return gpus.refusal(framework) if device == "cuda" else None
        found = self._probe(framework)
        if found.python < interpreters.MIN_PYTHON:
            own, least = (".".join(map(str, version)) for version in (found.python, interpreters.MIN_PYTHON))
            return f"--env {self._interpreter} is Python {own}; the kit needs {least} or newer."
        if found.missing:
            return f"--env {self._interpreter} lacks {', '.join(found.missing)}: install it there, or leave --env out."
        return gpus.absence() if device == "cuda" else None

    def ready(self, framework: Framework, device: Device) -> bool:
        """Whether the environment is made; a named interpreter is."""
        return bool(self._interpreter) or uv_environments.exists(framework, device)

    def prepare(self, framework: Framework, device: Device, progress: Progress) -> Environment:
        """The framework's environment, made where its lock is new; the named interpreter as it is."""
        if not self._interpreter:
            return uv_environments.ensure(framework, device, self._sources, self._root, progress)
        found = self._probe(framework)
        return Environment(framework.name, device, "system", str(found.executable), found.digest)

    def launch(
        self,
        environment: Environment,
        folder: LaunchFolder,
        limits: Limits,
        variables: Mapping[str, str],
        labels: Mapping[str, str],
        stopped: Callable[[], bool],
    ) -> Completion:
        """Run the worker as a process of its own session. Nothing that it started is left when this returns or raises,
        nor when this process is killed."""
        own = {f"KIT_{name.upper()}": value for name, value in labels.items()}
        own |= {OWNER_VARIABLE: identity(os.getpid()), TOKEN_VARIABLE: uuid.uuid4().hex}
        for place in FOLDERS.values():
            (folder.scratch / place).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f"{TEMPORARY}{identity(os.getpid())}-") as temporary:
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
        meter = MemoryMeter(process.pid, limits.memory_bytes)
        outcome: Outcome = "stopped"  # also by an exception
        with ThreadPoolExecutor(1) as pool:
            log = pool.submit(_copy_log, process, folder.log)
            try:
                outcome = _watch(process, meter, began + limits.timeout_s, stopped)
            finally:
                end(
                    lambda: marked(lambda found: found.get(TOKEN_VARIABLE) == environ[TOKEN_VARIABLE]),
                    gently=outcome in {"stopped", "deadline"},
                )
                code = process.wait()
        with writing(folder.log):
            log.result()
        killed = outcome == "ended" and code == -signal.SIGKILL and meter.peak_bytes >= AT_LIMIT * limits.memory_bytes
        return Completion(
            exit_code=code if code >= 0 else 128 - code,  # as a shell has it, and containers
            seconds=time.monotonic() - began,
            timed_out=outcome == "deadline",
            out_of_memory=outcome == "memory" or killed,
        )

    def sweep(self, alive: Callable[[str], bool]) -> list[str]:
        """End the processes of runs that are not alive; their ids. Where the orchestrator that started them still runs
        they are no leftovers, whatever this process knows of runs: it may look in another cache folder."""

        def leftover(found: Mapping[str, str]) -> bool:
            run, owner = found.get(RUN_VARIABLE), found.get(OWNER_VARIABLE)
            return run is not None and owner is not None and not alive(run) and not lives(owner)

        found = [f"process {process.pid}" for process in marked(leftover)]
        end(lambda: marked(leftover), gently=False)
        for abandoned in Path(tempfile.gettempdir()).glob(f"{TEMPORARY}*"):
            owner = abandoned.name.removeprefix(TEMPORARY).rpartition("-")[0]
            if abandoned.lstat().st_uid == os.getuid() and not lives(owner):
                shutil.rmtree(abandoned)
                found.append(f"folder {abandoned}")
        return found

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
        """The worker's whole environment but for what the request asks: little of the caller's, every home and cache
        in the scratch folder, the GPUs by the driver's numbering."""
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
        if environment.kind == "system":  # modules of a cluster, and what `pip install --user` put into the home
            found["PYTHONPATH"] = os.pathsep.join([str(self._root), *filter(None, [os.environ.get("PYTHONPATH")])])
            found["PYTHONUSERBASE"] = self._probes[environment.framework].user_base
        else:
            found["PYTHONNOUSERSITE"] = "1"
        return found


def _watch(
    process: subprocess.Popen[bytes], meter: MemoryMeter, deadline: float, stopped: Callable[[], bool]
) -> Outcome:
    """Wait until the process ended or has to be ended."""
    looked_at = -DESCENDANTS_S
    while True:
        with suppress(subprocess.TimeoutExpired):
            process.wait(POLL_S)
            return "ended"
        now = time.monotonic()
        if now - looked_at >= DESCENDANTS_S:
            meter.find_descendants()
            looked_at = now
        if meter.over_limit():
            return "memory"
        if now >= deadline:
            return "deadline"
        if stopped():
            return "stopped"


def _copy_log(process: subprocess.Popen[bytes], path: Path) -> None:
    assert process.stdout is not None
    with process.stdout as output:  # closed also where the log cannot be written: then the worker ends by it
        copy_output(iter(lambda: os.read(output.fileno(), 1 << 16), b""), path, LOG_BYTES)
