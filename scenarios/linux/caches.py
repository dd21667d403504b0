"""How much of memory the processors keep at hand.

Standard library only: both the orchestrator and the worker import it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

CPUS = Path("/sys/devices/system/cpu")


def last_cache_bytes(cpus: Iterable[int], folder: Path = CPUS) -> int:
    """Size of the last-level caches of these logical CPUs together, each cache once; 0 where the kernel does not
    tell."""
    caches: dict[tuple[int, str], int] = {}
    for cpu in cpus:
        for cache in folder.glob(f"cpu{cpu}/cache/index*"):
            try:
                level, shared, size = (
                    (cache / name).read_text().strip() for name in ("level", "shared_cpu_list", "size")
                )
            except OSError:  # some virtual machines name caches, but not their sizes
                continue
            caches[int(level), shared] = int(size.removesuffix("K")) * 1024
    last = max((level for level, _ in caches), default=0)
    return sum(size for (level, _), size in caches.items() if level == last)
