"""The contract suite: what every adapter must do.

It runs inside the framework's environment, with the folder that contains `scenarios` on PYTHONPATH.

KIT_TEST_FRAMEWORK   the adapter, a folder of scenarios/frameworks; required
KIT_TEST_DEVICE      cpu (default) or cuda
KIT_TEST_THREADS     intra-op threads, 1 by default
KIT_TEST_SEEDS       seeds of the proof per scenario and variant; 2 by default, 1 at 128x128
KIT_TEST_PRECISION   precision of these proofs, fp32 by default
KIT_TEST_TUNED       if set, the tuned lane with each setting at the first value that is not the stock lane's
KIT_TEST_EXCHANGE    folder through which frameworks exchange trained weights and predictions
KIT_TEST_PHOTOS      folder of at least 200 photos of cats and dogs; by default, synthetic ones
KIT_TEST_CUDA_STUBS  if set, every graph of ONNX Runtime is also opened on CUDA, whose libraries are stubs
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from toys import each_net_tuned, named_adapter

from scenarios.adapter import Adapter, Options
from scenarios.contract import allocators

pytest_plugins = ["on_stub_cuda"] if "KIT_TEST_CUDA_STUBS" in os.environ else []

SEED = 11
# An allocator is set before the process starts, and denormals apply to all of it. Compiling every net of the suite
# takes minutes.
EXCLUDED = {allocators.AXIS, "denormals", "network"}


@pytest.fixture(scope="session")
def adapters() -> type[Adapter]:
    return each_net_tuned(named_adapter(), EXCLUDED) if "KIT_TEST_TUNED" in os.environ else named_adapter()


@pytest.fixture(scope="session")
def options() -> Options:
    return Options(
        device=os.environ.get("KIT_TEST_DEVICE", "cpu"),  # type: ignore[arg-type]
        threads=int(os.environ.get("KIT_TEST_THREADS", "1")),
        seed=SEED,
    )


@pytest.fixture(scope="session")
def adapter(adapters: type[Adapter], options: Options) -> Adapter:
    return adapters(options)


@pytest.fixture
def exchange() -> Path:
    folder = os.environ.get("KIT_TEST_EXCHANGE")
    if not folder:
        pytest.skip("KIT_TEST_EXCHANGE does not name a folder for the weights")
    return Path(folder)


@pytest.fixture
def torch(adapter: Adapter) -> ModuleType:
    if adapter.name != "torch":
        pytest.skip("another adapter is under test")
    return importlib.import_module("torch")


@pytest.fixture(params=["own", "apart"])
def each_device(
    torch: ModuleType, options: Options, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Options]:
    """Yield the options, and in a second test those of the stand-in for a GPU, which runs everywhere."""
    if request.param == "own":
        yield options
        return
    apart = importlib.import_module("apart")  # imports PyTorch
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda device: False)  # does not know the device
    with apart.ApartDevice():
        yield replace(options, device=apart.DEVICE)
