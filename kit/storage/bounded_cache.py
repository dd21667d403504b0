"""Folders of files that only save time: each may go at any time, and those unused for longest go first."""

from __future__ import annotations

import os
from pathlib import Path


def keep(file: Path, content: bytes, most_bytes: int) -> None:
    """Write a file, whole or not at all, and remove others of its kind from its folder until all of them have at most
    so many bytes. Raises OSError."""
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_suffix(f".{os.getpid()}.new")
    try:
        temporary.write_bytes(content)
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)
    _prune(file.parent, f"*{file.suffix}", most_bytes)


def _prune(folder: Path, pattern: str, most_bytes: int) -> None:
    sizes = {file: file.stat() for file in folder.glob(pattern)}
    excess = sum(stat.st_size for stat in sizes.values()) - most_bytes
    for file, stat in sorted(sizes.items(), key=lambda item: item[1].st_mtime):
        if excess <= 0:
            return
        file.unlink(missing_ok=True)
        excess -= stat.st_size
