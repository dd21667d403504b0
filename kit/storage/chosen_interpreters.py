"""Remember which interpreter this user named for a run (`--env`).

The folder of a run may come from a stranger. So its plan must not decide which program `--resume` executes.
"""

from pathlib import Path

from kit.host.paths import cache_folder
from kit.storage.bounded_cache import keep
from kit.storage.safe_read import read_untrusted

MAX_FOLDER_BYTES = 64 << 10  # more than a thousand runs
MAX_PATH_BYTES = 4096  # PATH_MAX of Linux


def remember(run: str, interpreter: str) -> None:
    """Remember the absolute path of the interpreter of a run. run: id of the run. Raise OSError."""
    file = _file(run)
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    keep(file, interpreter.encode(errors="surrogateescape"), MAX_FOLDER_BYTES, mode=0o600)


def recall(run: str) -> str | None:
    """Return the interpreter that this user named for a run, None if it is not known."""
    try:
        content = read_untrusted(_file(run), MAX_PATH_BYTES)
    except (OSError, ValueError):
        return None
    return None if content is None else content.decode(errors="surrogateescape")


def _file(run: str) -> Path:
    """Return the file of a run. Its id can be a file name: see `kit.model.plan.RunId`."""
    return cache_folder() / "interpreters" / f"{run}.txt"
