"""Name the memory allocators that a launch can start with, and the environment variables that select them.

Training allocates and frees the same arrays in every step. The malloc of glibc returns memory to the system if enough
of it is free at the end of its heap, and gets it back in the next step, page by page.
"""

import functools
import os
from collections.abc import Mapping
from ctypes.util import find_library
from pathlib import Path

AXIS = "allocator"
STOCK = "glibc"
KEEPS, HUGE, TCMALLOC = "glibc that keeps", "glibc that keeps huge pages", "tcmalloc"
LIBRARY = "libtcmalloc_minimal.so.4"
KEEP = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(1 << 36)}
VARIABLES: Mapping[str, Mapping[str, str]] = {
    STOCK: {},
    KEEPS: KEEP,
    HUGE: {**KEEP, "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"},
    TCMALLOC: {"LD_PRELOAD": LIBRARY},
}
LIKELY = (TCMALLOC, KEEPS)  # likely to be faster in every framework; the first that is available
# Older versions accept no threshold above 32 MiB and do not know huge pages.
MIN_GLIBC = (2, 35)
HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


@functools.cache
def offered() -> tuple[str, ...]:
    """Return the allocators that this system has. The stock allocator is the first."""
    name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    glibc = name == "glibc" and tuple(map(int, version.split("."))) >= MIN_GLIBC
    asked_for = HUGE_PAGES.is_file() and "[madvise]" in HUGE_PAGES.read_text(encoding="utf-8")
    found = {KEEPS: glibc, HUGE: glibc and asked_for, TCMALLOC: find_library("tcmalloc_minimal") == LIBRARY}
    return (STOCK, *(name for name, here in found.items() if here))


def check(settings: Mapping[str, str]) -> None:
    """Raise ValueError if the settings name an unknown allocator. A launch cannot start with such settings."""
    if (name := settings.get(AXIS, STOCK)) not in VARIABLES:
        raise ValueError(f"it has the unknown allocator {name!r:.100}; known are: {', '.join(VARIABLES)}")


def variables(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables that the settings need. Raise KeyError for an unknown allocator."""
    return dict(VARIABLES[settings.get(AXIS, STOCK)])


def absent(environment: Mapping[str, str]) -> str | None:
    """Return the library that the environment preloads if this process runs without it, else None.

    The system's loader only warns if a library is not installed.
    """
    library = environment.get("LD_PRELOAD", "")
    return library if library and library not in Path("/proc/self/maps").read_text(encoding="utf-8") else None
