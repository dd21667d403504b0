"""What every adapter must do, whatever the framework. Runs inside the framework's environment, with the folder that
holds `scenarios` on PYTHONPATH.

KIT_TEST_FRAMEWORK  the adapter: scenarios/frameworks/<it>.py; required
KIT_TEST_DEVICE     cpu (default) or cuda
KIT_TEST_THREADS    intra-op threads, 1 by default
KIT_TEST_SEEDS      seeds of the proof per scenario and variant; 2 by default, 1 at 128x128
KIT_TEST_TUNED      where set: the tuned lane, each setting at the first value that is not stock's
KIT_TEST_EXCHANGE   folder through which frameworks hand each other trained weights
"""

from __future__ import annotations

import os

import pytest
from toys import each_net_tuned, named_adapter

from scenarios.adapter import Adapter, Options
from scenarios.contract import allocators

SEED = 11
# The first is set before a process starts, the second for all of it; the third takes minutes to compile every net of
# the suite.
LEFT_OUT = {allocators.AXIS, "denormals", "network"}


@pytest.fixture(scope="session")
def adapters() -> type[Adapter]:
    return each_net_tuned(named_adapter(), LEFT_OUT) if "KIT_TEST_TUNED" in os.environ else named_adapter()


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
