"""Test how a worker loads CUDA libraries ahead, and reads the versions of those that it has loaded."""

from __future__ import annotations

import ctypes
import importlib
import os
from pathlib import Path
from typing import Any

import pytest

from scenarios.frameworks import cuda_libraries

MAPPED = """\
55d0c8a00000-55d0c8a01000 r-xp 00000000 fe:00 1311 /usr/bin/python3.11
7f12a0000000-7f12a0001000 r--p 00000000 fe:00 1312 /opt/a b/nvidia/lib/libcudart-5f1a.so.12
7f12a0001000-7f12a0002000 r-xp 00001000 fe:00 1312 /opt/a b/nvidia/lib/libcudart-5f1a.so.12
7f12a0002000-7f12a0003000 r-xp 00000000 fe:00 1313 /opt/a b/nvidia/lib/libcublas.so.12
7f12a0003000-7f12a0004000 r-xp 00000000 fe:00 1314 /opt/a b/nvidia/lib/libcublasLt.so.12
7f12a0004000-7f12a0005000 r-xp 00000000 fe:00 1315 /opt/a b/nvidia/lib/libcudnn.so.9.28.0
7f12a0005000-7f12a0006000 r-xp 00000000 fe:00 1316 /opt/a b/nvidia/lib/libcudnn_graph.so.9
7f12a0006000-7f12a0007000 rw-p 00000000 00:00 0
"""


class FakeLibrary(dict[str, Any]):
    """A CDLL with the functions that report versions. properties: what they report."""

    def __init__(self, path: str, mode: int) -> None:
        assert mode & os.RTLD_NOLOAD, "would load a library that the framework does not use"
        assert path.startswith("/opt/a b/nvidia/lib/")
        name = Path(path).name
        if name.startswith("libcublas."):
            self["cublasGetProperty"] = self.reporting(12, 9, 3)
        elif name.startswith("libcudnn."):
            self["cudnnGetProperty"] = self.reporting(9, 28, 0)

    @staticmethod
    def reporting(*parts: int) -> Any:
        return lambda place, pointer: setattr(pointer._obj, "value", parts[place])

    def cudaRuntimeGetVersion(self, pointer: Any) -> None:  # noqa: N802 - CUDA's name
        pointer._obj.value = 12090


def test_loaded_libraries_report_their_versions(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    maps = tmp_path / "maps"
    monkeypatch.setattr(cuda_libraries, "MAPS", maps)
    monkeypatch.setattr(ctypes, "CDLL", FakeLibrary)
    maps.write_text(MAPPED)
    assert cuda_libraries.loaded_versions() == {"cuda": "12.9", "cublas": "12.9.3", "cudnn": "9.28.0"}
    maps.write_text(MAPPED.split("\n", 1)[0])
    assert cuda_libraries.loaded_versions() == {}


def test_libraries_are_loaded_from_the_wheels_that_are_installed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    loaded: list[str] = []
    monkeypatch.setattr(ctypes, "CDLL", loaded.append)
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    cuda_libraries.load_from_wheels("libone.so.*")
    assert loaded == []
    folder = tmp_path / "nvidia" / "one" / "lib"
    folder.mkdir(parents=True)
    for name in ("libone.so.1", "libone.alt.so.1", "libother.so.1"):
        (folder / name).touch()
    importlib.invalidate_caches()
    cuda_libraries.load_from_wheels("libone.so.*")
    assert loaded == [str(folder / "libone.so.1")]
