"""Read the sizes of the processors' caches.

Standard library only: both the orchestrator and the worker import it.
"""

from collections.abc import Iterable
from pathlib import Path

from scenarios.linux.files import text

CPUS = Path("/sys/devices/system/cpu")


def last_cache_bytes(cpus: Iterable[int], folder: Path = CPUS) -> int:
    """Return the total size of the last-level caches of these logical CPUs in bytes, each cache once. Return 0 if the
    kernel does not show it."""
    caches: dict[tuple[int, str], int] = {}
    for cpu in cpus:
        for cache in folder.glob(f"cpu{cpu}/cache/index*"):
            level, shared, size = (text(cache / name) for name in ("level", "shared_cpu_list", "size"))
            if level and shared and size:  # some virtual machines list caches without their sizes
                caches[int(level), shared] = int(size.removesuffix("K")) * 1024
    last = max((level for level, _ in caches), default=0)
    return sum(size for (level, _), size in caches.items() if level == last)
