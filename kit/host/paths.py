"""Where kit keeps what it can make again."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

from kit.model.errors import UsageError


def named_folder(setting: str) -> Path | None:
    """The folder that an environment variable names, None where it is not set. `~` is a home folder. Raises UsageError
    where that belongs to nobody."""
    name = os.environ.get(setting)
    try:
        return Path(name).expanduser() if name else None
    except RuntimeError as error:
        raise UsageError(f"{setting} is {name!r}, and there is no such user.", "Name the whole path.") from error


def cache_folder() -> Path:
    """`KIT_CACHE_DIR`, else the user's cache folder: environments, reference values, logs of builds and crashes.
    Absolute, because processes that work in other folders get paths below it."""
    return (named_folder("KIT_CACHE_DIR") or platformdirs.user_cache_path("kit")).absolute()
