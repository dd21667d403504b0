"""Find the folders of kit's caches and the folders that variables name."""

import os
from pathlib import Path

import platformdirs

from kit.model.errors import UsageError


def named_folder(setting: str) -> Path | None:
    """Return the folder that an environment variable names, None if it is not set. `~` is a home folder.

    Raise UsageError if `~name` is not a user.
    """
    name = os.environ.get(setting)
    try:
        return Path(name).expanduser() if name else None
    except RuntimeError as error:
        raise UsageError(f"{setting} is {name!r}, but there is no such user.", "Set it to an absolute path.") from error


def cache_folder() -> Path:
    """Return `KIT_CACHE_DIR`, else the user's cache folder. It holds environments, reference values, and logs of builds
    and crashes. The path is absolute, because processes in other folders get paths below it."""
    return (named_folder("KIT_CACHE_DIR") or platformdirs.user_cache_path("kit")).absolute()
