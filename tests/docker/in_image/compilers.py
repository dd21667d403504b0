"""Compile for GPUs that are not here, with each compiler that a framework uses at run time.

    python compilers.py FRAMEWORK

All frameworks: NVRTC, which cuDNN loads, in a process in which the adapter has tried to use CUDA. TensorFlow: `ptxas`
and NVIDIA's bitcode, where XLA looks for them. PyTorch: Triton compiles a kernel with its own `ptxas`, and starts a C
compiler for the code that launches it.
"""

import ctypes
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from no_driver import start_on_cuda

PACKAGES = Path(sysconfig.get_path("purelib"))
CUDA_SOURCE = b'extern "C" __global__ void one(float* x) { *x = 1.0f; }'
PTX = """
.version 7.0
.target sm_75
.address_size 64
.visible .entry nothing() { ret; }
"""
C_SOURCE = """
#include <Python.h>
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "nothing"};
PyMODINIT_FUNC PyInit_nothing(void) { return PyModule_Create(&definition); }
"""


def compile_with_nvrtc() -> None:
    """Compile CUDA C++ to device code."""
    (path,) = PACKAGES.glob("nvidia/*/lib/libnvrtc.so.*")
    library, program, size = ctypes.CDLL(str(path)), ctypes.c_void_p(), ctypes.c_size_t()
    options = (ctypes.c_char_p * 1)(b"--gpu-architecture=sm_90")
    assert library.nvrtcCreateProgram(ctypes.byref(program), CUDA_SOURCE, b"one.cu", 0, None, None) == 0
    assert library.nvrtcCompileProgram(program, 1, options) == 0
    assert library.nvrtcGetCUBINSize(program, ctypes.byref(size)) == 0
    assert size.value > 0


def compile_with_ptxas() -> None:
    """Compile PTX with the program that XLA finds next to TensorFlow's folder."""
    tools = PACKAGES / "nvidia/cuda_nvcc"
    assert (tools / "nvvm/libdevice/libdevice.10.bc").is_file()
    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as source:
        source.write(PTX)
        source.flush()
        output = Path(source.name).with_suffix(".cubin")
        subprocess.run([tools / "bin/ptxas", "--gpu-name=sm_90", f"--output-file={output}", source.name], check=True)
        assert output.read_bytes()[:4] == b"\x7fELF"


def compile_with_triton() -> None:
    """Compile a kernel for GPUs before and since Blackwell, which need different programs, and a module in C."""
    import triton
    import triton.language as tl
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    from triton.runtime.build import compile_module_from_src

    @triton.jit
    def double(values, count, size: tl.constexpr):
        at = tl.program_id(0) * size + tl.arange(0, size)
        tl.store(values + at, 2 * tl.load(values + at, at < count), at < count)

    for capability in (75, 120):
        source = ASTSource(double, {"values": "*fp32", "count": "i32", "size": "constexpr"}, {"size": 64})
        compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32))
        assert compiled.asm["cubin"][:4] == b"\x7fELF"
    assert compile_module_from_src(C_SOURCE, "nothing").__name__ == "nothing"


start_on_cuda(sys.argv[1])
compile_with_nvrtc()
if sys.argv[1] == "tensorflow":
    compile_with_ptxas()
if sys.argv[1] == "torch":
    compile_with_triton()
