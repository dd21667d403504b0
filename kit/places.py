"""Where kit keeps what it can make again."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs


def cache_folder() -> Path:
    """`KIT_CACHE_DIR`, else the user's cache folder: environments, reference values, logs of builds and crashes.
    Absolute, because processes that work in other folders get paths below it."""
    return Path(os.environ.get("KIT_CACHE_DIR") or platformdirs.user_cache_path("kit")).expanduser().absolute()
