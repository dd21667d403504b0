"""Memory allocators that a framework can be started with, and the environment variables that choose them.

Training allocates and frees the same arrays at every step. glibc's malloc gives memory back to the system where enough
of it is free at the end of its heap, and gets it anew at the next step, page by page.

Standard library only: the orchestrator starts launches with these variables, too.
"""

from __future__ import annotations

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
LIKELY = (TCMALLOC, KEEPS)  # to gain in whichever framework; the first that there is
# Before, glibc took no threshold above 32 MiB, and knew nothing of huge pages.
MIN_GLIBC = (2, 35)
HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


@functools.cache
def offered() -> tuple[str, ...]:
    """The allocators that this system has, stock's own first."""
    name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    glibc = name == "glibc" and tuple(map(int, version.split("."))) >= MIN_GLIBC
    asked_for = HUGE_PAGES.is_file() and "[madvise]" in HUGE_PAGES.read_text(encoding="utf-8")
    found = {KEEPS: glibc, HUGE: glibc and asked_for, TCMALLOC: find_library("tcmalloc_minimal") == LIBRARY}
    return (STOCK, *(name for name, here in found.items() if here))


def variables(settings: Mapping[str, str]) -> dict[str, str]:
    """The environment variables that settings ask for. Raises KeyError for an allocator that is none of VARIABLES."""
    return dict(VARIABLES[settings.get(AXIS, STOCK)])


def absent(environment: Mapping[str, str]) -> str | None:
    """The library that the environment asks for and this process runs without, as where it is not installed: the
    system's loader only warns of that."""
    library = environment.get("LD_PRELOAD", "")
    return library if library and library not in Path("/proc/self/maps").read_text(encoding="utf-8") else None
