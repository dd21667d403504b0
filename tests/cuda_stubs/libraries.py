"""Stub CUDA libraries: ONNX Runtime's real CUDA provider loads and runs without a GPU, but computes nothing.

Host memory stands in for the device's, so that what is copied to the device can be read back. Kernels, products and
convolutions do nothing. The functions that must return something are in the C files of this folder. The others are
generated. They return 0, which means success, and those that create a handle return one.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

SOURCES = Path(__file__).parent
TOOLS = COMPILER, SYMBOLS, HEADERS = "cc", "nm", "readelf"
CUDNN = "libcudnn.so.9"  # the provider opens it by name and looks up its functions
CREATE = "int {}(void **handle) {{ return *handle = malloc(8), 0; }}\n"
SUCCEED = "int {}() {{ return 0; }}\n"
CUDNN_FUNCTION = re.compile(rb"\x00(cudnn[A-Z]\w+)(?=\x00)")


def missing_tools() -> list[str]:
    """Return the programs that `build` needs and that this machine lacks."""
    return [tool for tool in TOOLS if shutil.which(tool) is None]


def build(provider: Path, folder: Path) -> None:
    """Compile into `folder` a stub of each CUDA library that this provider (libonnxruntime_providers_cuda.so) needs.

    Raise CalledProcessError if a tool fails.
    """
    versioned = _versioned_functions(provider)
    for name in re.findall(r"\[(libcu\S+)\]", _run(HEADERS, "--dynamic", "--wide", str(provider))):
        _compile(name, versioned.get(name, set()), folder, versioned=name in versioned)
    cudnn = {found.decode() for found in CUDNN_FUNCTION.findall(provider.read_bytes())}
    _compile(CUDNN, cudnn, folder, versioned=False)


def _versioned_functions(provider: Path) -> dict[str, set[str]]:
    """Return the functions that the provider takes from each library: CUDA names symbol versions after libraries."""
    found: dict[str, set[str]] = {}
    for function, library in re.findall(r" U (\w+)@(libcu\S+)", _run(SYMBOLS, "--dynamic", str(provider))):
        found.setdefault(library, set()).add(function)
    return found


def _compile(name: str, functions: set[str], folder: Path, *, versioned: bool) -> None:
    """Compile one library. versioned: its symbols carry the library's name as their version."""
    own = SOURCES / f"{name.removeprefix('lib').split('.')[0]}.c"
    written = own.read_text(encoding="utf-8") if own.is_file() else ""
    rest = [
        (CREATE if "Create" in function else SUCCEED).format(function)
        for function in sorted(functions)
        if f"{function}(" not in written
    ]
    source, versions = folder / f"{name}.c", folder / f"{name}.map"
    source.write_text("".join(["#include <stdlib.h>\n", written, *rest]), encoding="utf-8")
    versions.write_text(f"{name} {{ global: *; }};\n" if versioned else "{ global: *; };\n", encoding="utf-8")
    options = ("-std=gnu11", "-w", "-shared", "-fPIC", "-O1", f"-Wl,-soname,{name}", f"-Wl,--version-script={versions}")
    _run(COMPILER, *options, "-o", str(folder / name), str(source))


def _run(*command: str) -> str:
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
