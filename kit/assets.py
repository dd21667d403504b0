"""Find the folders `docker` and `scenarios`."""

import os
from pathlib import Path


def find_root() -> Path:
    """Return the folder that holds `docker` and `scenarios`: `KIT_ASSETS`, else the checkout, else the wheel's."""
    if chosen := os.environ.get("KIT_ASSETS"):
        return Path(chosen).resolve()
    package = Path(__file__).resolve().parent
    checkout = package.parent
    return checkout if (checkout / "docker").is_dir() and (checkout / "scenarios").is_dir() else package / "_assets"


ROOT = find_root()
