"""Where the folders `docker` and `scenarios` are: the one function that knows."""

from __future__ import annotations

import os
from pathlib import Path


def find_root() -> Path:
    """The folder that holds `docker` and `scenarios`: `KIT_ASSETS` where set, the checkout, else the wheel's own."""
    if chosen := os.environ.get("KIT_ASSETS"):
        return Path(chosen).resolve()
    package = Path(__file__).resolve().parent
    checkout = package.parent
    return checkout if (checkout / "docker").is_dir() and (checkout / "scenarios").is_dir() else package / "_assets"


ROOT = find_root()
