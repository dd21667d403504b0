"""Fail if a folder in which a framework or CUDA keeps files is outside the scratch folder.

python caches.py FRAMEWORK
"""

import os
import sys
import tempfile
from pathlib import Path

SCRATCH = Path("/io")


def of_torch() -> dict[str, str]:
    """Return the folders of PyTorch, its compiler and Triton."""
    import torch
    import triton
    from torch._inductor.runtime import cache_dir_utils
    from torch.utils import cpp_extension

    return {
        "downloads": torch.hub.get_dir(),
        "extensions": cpp_extension.get_default_build_root(),
        "inductor": cache_dir_utils.cache_dir(),
        "triton": triton.knobs.cache.dir,
        "triton's dumps": triton.knobs.cache.dump_dir,
    }


def of_tensorflow() -> dict[str, str]:
    """Return the folder of Keras. TensorFlow and XLA use only that for temporary files."""
    import keras

    return {"keras": keras.src.backend.config._KERAS_DIR}


folders = {
    "home": str(Path.home()),
    "temporary files": tempfile.gettempdir(),
    "CUDA driver": os.environ.get("CUDA_CACHE_PATH", "not set"),  # the driver's default is in the home folder
    "XDG": os.environ.get("XDG_CACHE_HOME", "not set"),
}
folders |= {"tensorflow": of_tensorflow, "torch": of_torch}.get(sys.argv[1], dict)()
if outside := {name: folder for name, folder in folders.items() if SCRATCH not in Path(folder).parents}:
    sys.exit(f"These folders are outside the scratch folder: {outside}")
