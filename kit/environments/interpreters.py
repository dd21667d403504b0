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
    """Ask the interpreter for its version and packages. Raise EngineError if it does not answer."""
    try:
        run = subprocess.run(
            [program, "-c", PROBE, *modules], capture_output=True, text=True, check=True, timeout=PROBE_S, cwd="/"
        )
        answer = json.loads(run.stdout)
    except subprocess.CalledProcessError as error:
        raise _unusable(program, error.stderr[-500:]) from error
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise _unusable(program, str(error)) from error
    if not isinstance(answer, dict) or answer.keys() != {"python", "executable", "user_base", "missing", "packages"}:
        raise _unusable(program, f"it printed {run.stdout:.100}")
    identity = "\n".join([str(answer["python"]), *answer["packages"]])
    return Interpreter(
        executable=Path(answer["executable"]),
        python=tuple(answer["python"]),
        user_base=answer["user_base"],
        missing=tuple(answer["missing"]),
        digest=hashlib.sha256(identity.encode()).hexdigest(),
    )


def _unusable(program: str, reason: str) -> EngineError:
    return EngineError(f"{program} does not work as a Python interpreter: {reason}", "Give --env another interpreter.")
