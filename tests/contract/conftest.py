"""What every adapter must do, whatever the framework. Runs inside the framework's environment, with the folder that
holds `scenarios` on PYTHONPATH.

KIT_TEST_FRAMEWORK  the adapter: scenarios/frameworks/<it>.py; required
KIT_TEST_DEVICE     cpu (default) or cuda
KIT_TEST_THREADS    intra-op threads, 1 by default
KIT_TEST_SEEDS      seeds of the proof per scenario and variant; 2 by default, 1 at 128x128
KIT_TEST_EXCHANGE   folder through which frameworks hand each other trained weights
"""

from __future__ import annotations

import importlib
import os

import pytest

from scenarios.frameworks.base import Adapter, Options

SEED = 11


@pytest.fixture(scope="session")
def options() -> Options:
    return Options(
        device=os.environ.get("KIT_TEST_DEVICE", "cpu"),  # type: ignore[arg-type]
        threads=int(os.environ.get("KIT_TEST_THREADS", "1")),
        seed=SEED,
    )


@pytest.fixture(scope="session")
def adapter(options: Options) -> Adapter:
    name = os.environ.get("KIT_TEST_FRAMEWORK")
    if not name:
        pytest.exit("KIT_TEST_FRAMEWORK must name the adapter to be tested", returncode=2)
    made: Adapter = importlib.import_module(f"scenarios.frameworks.{name}").ADAPTER(options)
    return made
