"""Runs by name: a new run's id, and the folder that a person means."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from pathlib import Path

from kit.model.errors import UsageError, unknown
from kit.storage.run_folder import PLAN_FILE


def new_run_id(now: datetime | None = None) -> str:
    """As `20261120-110210-ab12`: the time in UTC, so that names sort by time, and four random digits."""
    return f"{(now or datetime.now(UTC)):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def find_run(name: str, out: Path) -> Path:
    """The folder of a run, named by its path or by its id below `out`. Raises UsageError listing the runs there."""
    try:
        for folder in (out / name, Path(name)):
            if (folder / PLAN_FILE).exists():
                return folder
        is_folder = bool(name) and Path(name).is_dir()
    except OSError as error:  # as a name that is too long
        raise UsageError(f"{name!r} cannot be a folder: {error.strerror}.", "Name the folder of a run.") from error
    if is_folder:
        raise UsageError(f"{name} is not the folder of a run: it has no {PLAN_FILE}.", "Name a folder that kit wrote.")
    known = [path.parent.name for path in out.glob(f"*/{PLAN_FILE}")]
    if not known:
        raise UsageError(f"There is no run {name!r}, and none below {out}.", "Name its folder, or the --out it is in.")
    raise unknown("run", name, known)
