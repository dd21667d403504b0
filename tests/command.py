"""Types and arguments for unit tests of the command line. The fixtures are in `tests/unit/conftest.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

NO_GPU = {(framework, "cuda"): "No GPU." for framework in ("onnxruntime", "tensorflow", "torch")}
RUN = ("run", "--scenario", "mnist-cnn", "--profile", "smoke", "--data", "synthetic")


class Called(NamedTuple):
    """Exit code and output of a finished command."""

    code: int
    out: str
    err: str


Kit = Callable[..., Called]
