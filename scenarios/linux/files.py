"""Read small files of the kernel, in /proc and /sys.

Standard library only: both the orchestrator and the worker import it.
"""

from pathlib import Path


def text(path: Path) -> str | None:
    """Return the stripped text of a file, None if it is missing or may not be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def number(path: Path) -> int | None:
    """Return the integer in a file, None if it has no integer or may not be read."""
    try:
        return int(text(path) or "")
    except ValueError:  # some drivers write words, for example <unknown>
        return None
