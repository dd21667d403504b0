"""Load CUDA libraries ahead, and read the versions of those that this process has loaded.

A framework may have been built with other versions.
"""

import ctypes
import importlib.util
import os
import re
from pathlib import Path

MAPS = Path("/proc/self/maps")
LIBRARY = re.compile(r"(/.*/lib(cudart|cublas|cudnn)(?:-\w+)?\.so[.\d]*)$", re.MULTILINE)
PROPERTIES = 3  # of `libraryPropertyType` in NVIDIA's library_types.h: major, minor, patch


def load_from_wheels(pattern: str) -> None:
    """Load the libraries with matching file names from NVIDIA's wheels, if these are installed.

    A library whose search path lacks their folder then finds them, because the loader first looks for the name among
    the libraries that are loaded.
    """
    package = importlib.util.find_spec("nvidia")
    for folder in (package and package.submodule_search_locations) or ():
        for path in sorted(Path(folder).glob(f"*/lib/{pattern}")):
            ctypes.CDLL(str(path))


def loaded_versions() -> dict[str, str]:
    """Return the versions that the loaded CUDA runtime ("cuda", without its patch), cuBLAS and cuDNN report.

    Libraries that are not loaded are left out. Frameworks load them when they first use them.
    """
    versions = {}
    for path, name in sorted(set(LIBRARY.findall(MAPS.read_text(encoding="utf-8", errors="replace")))):
        library = ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
        if name == "cudart":
            versions["cuda"] = runtime_version(library)
        else:
            versions[name] = library_version(library, f"{name}GetProperty")
    return versions


def runtime_version(library: ctypes.CDLL) -> str:
    """Return what cudaRuntimeGetVersion reports, 1000 * major + 10 * minor, as "major.minor"."""
    number = ctypes.c_int()
    library.cudaRuntimeGetVersion(ctypes.byref(number))
    return f"{number.value // 1000}.{number.value % 1000 // 10}"


def library_version(library: ctypes.CDLL, function: str) -> str:
    """Return "major.minor.patch" from the function that reports one property of this library."""
    parts = [ctypes.c_int() for _ in range(PROPERTIES)]
    for place, part in enumerate(parts):
        library[function](place, ctypes.byref(part))
    return ".".join(str(part.value) for part in parts)
