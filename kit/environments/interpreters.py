"""An interpreter that somebody else equipped (`--env`): what it is and which packages it has."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from kit.model.errors import EngineError, UsageError

MIN_PYTHON = (3, 11)
NEEDED = ("cv2", "numpy", "PIL", "psutil")  # beside the framework; what docker/common.in puts into every image
PROBE_S = 60

# Finds modules without importing them: importing a framework takes seconds.
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
    """executable: what it calls itself (a shim tells its target). user_base: where the user's own packages lie.
    missing: those of the modules asked for that it lacks. digest: SHA-256 over Python and all installed packages."""

    executable: Path
    python: tuple[int, int, int]
    user_base: str
    missing: tuple[str, ...]
    digest: str


def find(name: str) -> str:
    """The program's path. name: `system` for the `python3` on PATH, else a name on PATH or a path. Raises
    UsageError where there is no such program."""
    found = shutil.which("python3" if name == "system" else name)
    if found is None:
        raise UsageError(
            f"There is no interpreter {name!r}.", "Give --env the path of a Python that has the framework."
        )
    return str(Path(found).absolute())  # it is asked in another folder; links stay: they say which environment is meant


def probe(program: str, modules: tuple[str, ...]) -> Interpreter:
    """Ask the interpreter. Raises EngineError where it does not answer."""
    try:
        run = subprocess.run(
            [program, "-c", PROBE, *modules], capture_output=True, text=True, check=True, timeout=PROBE_S, cwd="/"
        )
        told = json.loads(run.stdout)
    except subprocess.CalledProcessError as error:
        raise _unusable(program, error.stderr[-500:]) from error
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise _unusable(program, str(error)) from error
    if not isinstance(told, dict) or told.keys() != {"python", "executable", "user_base", "missing", "packages"}:
        raise _unusable(program, f"it printed {run.stdout:.100}")
    identity = "\n".join([str(told["python"]), *told["packages"]])
    return Interpreter(
        executable=Path(told["executable"]),
        python=tuple(told["python"]),
        user_base=told["user_base"],
        missing=tuple(told["missing"]),
        digest=hashlib.sha256(identity.encode()).hexdigest(),
    )


def _unusable(program: str, words: str) -> EngineError:
    return EngineError(f"{program} does not work as a Python interpreter: {words}", "Give --env another one.")
