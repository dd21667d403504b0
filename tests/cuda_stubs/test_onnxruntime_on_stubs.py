"""Run ONNX Runtime's contract suite with the CUDA package, on stub libraries instead of a GPU.

These tests need a C compiler, and the package of the CUDA lock without NVIDIA's libraries (340 MB, kept in the cache
folder). Without a compiler they are skipped, or fail if KIT_REQUIRE_COMPILER is set.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from kit import assets
from kit.environments import uv_environments
from kit.environments.package_sources import Sources
from kit.model.environment import Environment
from kit.model.progress import PlainProgress
from kit.planning import catalog
from tests.cuda_stubs import libraries
from tests.run_contract import install_tools, run_suite

PROVIDER = "lib/python3.11/site-packages/onnxruntime/capi/libonnxruntime_providers_cuda.so"

Suite = Callable[..., bool]


@pytest.fixture(scope="module", autouse=True)
def compiler() -> None:
    """Skip the tests if the compiler or binutils are missing, or fail if KIT_REQUIRE_COMPILER is set."""
    if missing := libraries.missing_tools():
        reason = f"{', '.join(missing)} missing; install gcc and binutils"
        (pytest.fail if os.environ.get("KIT_REQUIRE_COMPILER") else pytest.skip)(reason)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Return an environment with the packages of the CUDA lock, except for NVIDIA's libraries."""
    framework = catalog.frameworks()["onnxruntime"]
    folder = tmp_path_factory.mktemp("lock") / framework.name
    folder.mkdir()
    packages = re.split(r"^(?=\S)", (framework.folder / "cuda.lock").read_text(encoding="utf-8"), flags=re.MULTILINE)
    kept = [p for p in packages if not p.startswith("nvidia-") or p.startswith("nvidia-ml-py==")]
    assert len(kept) < len(packages)
    (folder / "cuda.lock").write_text("".join(kept), encoding="utf-8")
    without_libraries = replace(framework, folder=folder)
    progress = PlainProgress(partial(print, flush=True))
    return uv_environments.ensure(without_libraries, "cuda", Sources.from_environment(), assets.ROOT, progress)


@pytest.fixture(scope="module")
def suite(environment: Environment, tmp_path_factory: pytest.TempPathFactory) -> Suite:
    """Return a function that runs the selected tests of the contract suite."""
    tools, scratch = tmp_path_factory.mktemp("tools"), tmp_path_factory.mktemp("scratch")
    install_tools(tools, environment.reference)
    return partial(run_suite, environment, tools, scratch)


@pytest.fixture
def stubs(environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the suite find the stub libraries."""
    libraries.build(Path(environment.reference).parents[1] / PROVIDER, tmp_path)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))


@pytest.mark.usefixtures("stubs")
def test_the_contract_suite_opens_every_graph_on_cuda_alone(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KIT_TEST_CUDA_STUBS", "1")
    monkeypatch.setenv("KIT_TEST_SEEDS", "1")  # other seeds have the same graphs
    assert suite("-k", "not exchange")


@pytest.mark.usefixtures("stubs")
def test_the_backward_pass_is_tested_on_the_device_that_is_named(
    suite: Suite, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On CUDA the stubs compute the wrong gradients, which the tests must find."""
    monkeypatch.setenv("KIT_TEST_DEVICE", "cuda")
    assert not suite("-k", "test_every_layer_agrees_with_the_reference")
    assert "4 failed, " in capsys.readouterr().out


def test_cuda_without_a_driver_is_unavailable(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert suite("-k", "test_cuda_without_a_gpu_is_an_error")
