"""Tell a framework's CUDA build from its CPU build."""

from __future__ import annotations

import subprocess

HAS_CUDA = {
    "onnxruntime": "import onnxruntime; has = 'CUDAExecutionProvider' in onnxruntime.get_available_providers()",
    "tensorflow": "import tensorflow; has = tensorflow.test.is_built_with_cuda()",
    "torch": "import torch; has = torch.version.cuda is not None",
}


def built_with_cuda(framework: str, python: str) -> bool:
    """Return whether this interpreter's package of the framework is a CUDA build. A GPU is not needed.

    Raise CalledProcessError if the framework cannot be imported.
    """
    command = [python, "-c", f"{HAS_CUDA[framework]}; print(has)"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return printed.split()[-1] == "True"
