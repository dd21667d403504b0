"""The GPU tests skip a framework whose package is a CPU build."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kit.planning import catalog
from tests.cuda_builds import HAS_CUDA, built_with_cuda

BUILDS = {
    "onnxruntime": "get_available_providers = lambda: ['CPUExecutionProvider', 'CUDAExecutionProvider'][: 1 + {cuda}]",
    "tensorflow": "class test: is_built_with_cuda = lambda: bool({cuda})",
    "torch": "class version: cuda = '13.0' if {cuda} else None",
}


@pytest.mark.parametrize("cuda", [True, False], ids=["cuda", "cpu"])
@pytest.mark.parametrize("framework", BUILDS)
def test_a_cpu_build_is_told_from_a_cuda_build(
    framework: str, cuda: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"{framework}.py").write_text(BUILDS[framework].format(cuda=int(cuda)))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert built_with_cuda(framework, sys.executable) == cuda


def test_every_framework_with_cuda_is_known() -> None:
    assert {f.name for f in catalog.frameworks().values() if "cuda" in f.devices} == HAS_CUDA.keys()
