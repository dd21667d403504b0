"""Keep cache files in a folder of limited size. Any of these files may be deleted at any time."""

from pathlib import Path

from kit.storage.files import write_atomic


def keep(file: Path, content: bytes, max_bytes: int, *, mode: int = 0o666) -> None:
    """Write a file atomically, with these permissions. Then delete the least recently used files with the same suffix
    from its folder until all of them together have at most `max_bytes`. Raise OSError if the folder cannot be written.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(file, content, mode=mode)
    stats = {path: path.stat() for path in file.parent.glob(f"*{file.suffix}")}
    excess = sum(stat.st_size for stat in stats.values()) - max_bytes
    for path, stat in sorted(stats.items(), key=lambda item: item[1].st_mtime):
        if excess <= 0:
            return
        path.unlink(missing_ok=True)
        excess -= stat.st_size
