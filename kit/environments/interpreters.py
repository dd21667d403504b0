"""Inspect an interpreter that already has packages (`--env`): its version and what is installed."""

import hashlib
import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from kit.model.errors import EngineError, UsageError

MIN_PYTHON = (3, 11)
NEEDED = ("cv2", "numpy", "PIL", "psutil")  # in addition to the framework, as docker/common.in for images
PROBE_S = 60
NO_PYTHON, BROKEN_PYTHON = "is not a Python interpreter", "does not work as a Python interpreter"

# Find modules without importing them: importing a framework takes seconds.
PROBE = """
import importlib.metadata, importlib.util, json, site, sys
print(json.dumps({
    "executable": sys.executable,
    "python": list(sys.version_info[:3]),
    "user_base": site.getuserbase(),
    "packages": sorted({f"{d.name}=={d.version}" for d in importlib.metadata.distributions()}),
    "missing": [name for name in sys.argv[1:] if importlib.util.find_spec(name) is None],
}))
"""


@dataclass(frozen=True)
class Interpreter:
    """The answer of an interpreter.

    executable: its own path (for a shim, that of its target). user_base: the folder of the user's own packages.
    missing: the requested modules that it lacks. digest: SHA-256 over Python's version and all installed packages.
    """

    executable: Path
    python: tuple[int, int, int]
    user_base: str
    missing: tuple[str, ...]
    digest: str


def find(name: str) -> str:
    """Return the program's path. name: `system` for the `python3` on PATH, else a name on PATH or a path.

    Raise UsageError if there is no such program.
    """
    found = shutil.which("python3" if name == "system" else name)
    if found is None:
        raise UsageError(
            f"There is no interpreter {name!r}.", "Give --env the path of a Python that has the framework."
        )
    return str(
        Path(found).absolute()
    )  # it runs in another folder; links stay, because they say which environment is meant


def probe(program: str, modules: tuple[str, ...]) -> Interpreter:
    """Ask the interpreter for its version and packages. Raise EngineError if it is not Python or does not work."""
    version = _output([program, "--version"], NO_PYTHON)
    if not version.startswith("Python "):  # it must not get the probe: a shell would run it, other programs print it
        raise _unusable(program, NO_PYTHON, version)
    printed = _output([program, "-", *modules], BROKEN_PYTHON, PROBE)
    try:
        answer = json.loads(printed)
    except ValueError:
        answer = None
    if not isinstance(answer, dict) or answer.keys() != {"python", "executable", "user_base", "missing", "packages"}:
        raise _unusable(program, BROKEN_PYTHON, printed)
    identity = "\n".join([str(answer["python"]), *answer["packages"]])
    return Interpreter(
        executable=Path(answer["executable"]),
        python=tuple(answer["python"]),
        user_base=answer["user_base"],
        missing=tuple(answer["missing"]),
        digest=hashlib.sha256(identity.encode()).hexdigest(),
    )


def _output(command: list[str], failure: str, text: str = "") -> str:
    """Run the command with this text as its input, and return what it prints.

    failure: what it means if the command fails. Raise EngineError then.
    """
    try:
        run = subprocess.run(
            command, input=text, capture_output=True, text=True, errors="replace", check=True, timeout=PROBE_S, cwd="/"
        )
    except subprocess.CalledProcessError as error:
        raise _unusable(command[0], failure, error.stderr) from error
    except subprocess.TimeoutExpired as error:
        raise _unusable(command[0], f"gave no answer for {PROBE_S} s") from error
    except OSError as error:
        raise _unusable(command[0], "cannot be started", error.strerror or "") from error
    return run.stdout


def _unusable(program: str, why: str, printed: str = "") -> EngineError:
    """Return the error, with one line of what was printed: the last line of a traceback, else the first line."""
    lines = printed.strip().splitlines() or [""]
    line = lines[-1] if lines[0].startswith("Traceback") else lines[0]
    return EngineError(f"{program} {why}" + (f": {line:.200}" if line else "."), "Give --env another interpreter.")
