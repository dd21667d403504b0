"""Name new runs, find the folder of a run by its name, and check the folder for runs."""

import secrets
import shlex
from datetime import UTC, datetime
from pathlib import Path

from kit.model.errors import UsageError, unknown
from kit.storage.files import disk_errors
from kit.storage.packs import SUFFIX as PACK_SUFFIX
from kit.storage.run_folder import PLAN_FILE, UNWRITABLE


def new_run_id() -> str:
    """Return an id such as `20261120-110210-ab12`: the UTC time, so that ids sort by time, and four random digits."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def find_run(name: str, out: Path) -> Path:
    """Return the folder of a run, given its path or its id below `out`. Raise UsageError, which lists the runs below
    `out`, if there is no such run."""
    try:
        for folder in (out / name, Path(name)):
            if (folder / PLAN_FILE).exists():
                return folder
        is_folder = bool(name) and Path(name).is_dir()
    except OSError as error:  # for example if the name is too long
        raise UsageError(f"{name!r} cannot be a folder: {error.strerror}.", "Give the id of a run.") from error
    if is_folder:
        raise UsageError(f"{name} is not the folder of a run: it has no {PLAN_FILE}.", "Give a folder that kit wrote.")
    if Path(name).is_file():
        remedy = "Give the folder that holds the file."
        if name.endswith(PACK_SUFFIX):
            remedy = f"Unpack it with `kit unpack {shlex.quote(name)}`."
        raise UsageError(f"{name} is a file, not the folder of a run.", remedy)
    known = [path.parent.name for path in out.glob(f"*/{PLAN_FILE}")]
    if not known:
        raise UsageError(f"There is no run {name!r}, and {out} has no runs.", "Give the folder of a run.")
    raise unknown("run", name, known)


def require_out_folder(out: Path) -> None:
    """Raise UsageError if a part of the path is a file, or if Docker could not be given the path."""
    try:
        str(out.absolute()).encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"{out} is not UTF-8.", "Name another folder with --out.") from error
    with disk_errors(out, UNWRITABLE):
        for place in (out, *out.parents):
            if place.exists() and not place.is_dir():
                raise UsageError(
                    f"{place} is a file, so {out} cannot be a folder.",
                    "Name a folder with --out. It is created if it does not exist.",
                )
