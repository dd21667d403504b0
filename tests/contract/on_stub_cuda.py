"""A pytest plugin: every graph that the suite opens on the CPU is also opened on CUDA, on stub libraries.

So the graphs of all contract tests are covered without a list of them. `conftest.py` loads it.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import pytest

from scenarios.adapter import Options
from scenarios.frameworks.onnxruntime.session import Runtime

SESSION = onnxruntime.InferenceSession  # some tests replace it to count what the CPU runs


@functools.cache
def cuda(**settings: str) -> Runtime:
    return Runtime(Options(device="cuda", lane="tuned", settings=settings))


def open_on_cuda(model: bytes, optimized: Path, runtime: Runtime, **options: bool) -> None:
    """Open a session on CUDA. optimized: file for the optimized graph.

    Raise the error of ONNX Runtime if a node is not assigned to CUDA, AssertionError if a tensor is copied to the CPU.
    """

    def saving(model: bytes, settings: Any, **arguments: Any) -> Any:
        settings.optimized_model_filepath = str(optimized)
        settings.log_severity_level = 3  # it warns that the optimized graph is for this machine only
        return SESSION(model, settings, **arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(onnxruntime, "InferenceSession", saving)
        runtime.open(model, **options)
    copies = [node.name for node in onnx.load(optimized).graph.node if node.op_type.startswith("Memcpy")]
    assert not copies, copies


@pytest.fixture(autouse=True, scope="session")
def _each_graph_also_on_cuda(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    cuda()  # now, before a test replaces the class of sessions
    optimized = tmp_path_factory.mktemp("optimized") / "graph.onnx"
    open_as_asked, seen = Runtime.open, set()

    def open_on_both(self: Runtime, model: bytes, **options: bool) -> Any:
        if self.device == "cpu" and (key := hashlib.sha256(model).digest()) not in seen:
            seen.add(key)
            open_on_cuda(model, optimized, cuda(), **options)
        return open_as_asked(self, model, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Runtime, "open", open_on_both)
        yield
    assert seen, "no graph was opened"
