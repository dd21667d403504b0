"""Small files of the kernel's sysfs."""

from __future__ import annotations

from pathlib import Path


def number(path: Path) -> int | None:
    """The whole number in a file; None where there is none, or this user may not read it."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # a driver that does not know writes words, such as <unknown>
        return None
