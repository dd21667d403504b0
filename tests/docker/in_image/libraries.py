"""Fail if a shared library of the packages needs one that cannot be found.

    python libraries.py FRAMEWORK

`ldd` finds a library as the loader does: in the search paths of the library that needs it, and of the system. A library
also counts as found if this process has loaded one of that name after the adapter has tried to use CUDA, because the
loader then takes that one. Some adapters and frameworks load libraries ahead for that reason.

Not checked: symbols, and libraries that are opened by name while a program runs, except for those of TensorFlow.
"""

import ctypes
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

from no_driver import start_on_cuda

PACKAGES = Path(sysconfig.get_path("purelib"))
DRIVER = {"libcuda.so.1"}  # comes with the GPU
# Needed only by plugins that kit never loads.
TENSORRT = {"libnvinfer.so.10", "libnvonnxparser.so.10"}  # ONNX Runtime's other provider for NVIDIA's GPUs
NETWORKS = {"libfabric.so.1", "libibverbs.so.1", "libmlx5.so.1", "librdmacm.so.1", "libucp.so.0", "libucs.so.0"}
JOBS = {"libmpi.so.40", "liboshmem.so.40", "libpmix.so.2"}  # NVSHMEM on several machines; NETWORKS: also cuFile
# A function of TensorFlow 2.21 that opens all CUDA libraries. TensorFlow registers no GPU if this fails.
OPEN_CUDA_LIBRARIES = "_ZN3tsl8internal9DsoLoader22TryDlopenCUDALibrariesEv"
STATUS_OK = 1  # in the only field of absl::Status, which the function returns in memory of the caller


def is_elf(path: Path) -> bool:
    """Return whether this is a library, and not for example a linker script."""
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def missing(library: Path) -> set[str]:
    """Return the names that the loader does not find for this library."""
    printed = subprocess.run(["ldd", library], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"^\s*(\S+) => not found", printed, re.MULTILINE))


def opens_cuda_libraries() -> bool:
    """Return whether TensorFlow finds the CUDA libraries that it opens by name."""
    status = ctypes.c_uint64()
    ctypes.CDLL(str(PACKAGES / "tensorflow/libtensorflow_framework.so.2"))[OPEN_CUDA_LIBRARIES](ctypes.byref(status))
    return status.value == STATUS_OK


start_on_cuda(sys.argv[1])
loaded = {Path(line.split()[-1]).name for line in Path("/proc/self/maps").read_text().splitlines() if ".so" in line}
known = loaded | DRIVER | TENSORRT | NETWORKS | JOBS
libraries = [path for path in PACKAGES.rglob("*.so*") if path.is_file() and is_elf(path)]
failures = {str(path.relative_to(PACKAGES)): names for path in libraries if (names := missing(path) - known)}
if failures or not libraries:
    sys.exit(f"{len(libraries)} libraries, of which some need others that are missing: {failures}")
if sys.argv[1] == "tensorflow" and not opens_cuda_libraries():
    sys.exit("TensorFlow does not find all CUDA libraries, so it would not use a GPU.")
