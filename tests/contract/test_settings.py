"""Every setting that an adapter offers computes the scenario's function, in steps, epochs and predictions.

The net has no dropout and no photos. `test_torch` and the tuned pass of `test_training` test the settings for these.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from toys import RecordingMeter, named_adapter, noise, toy

from scenarios import catalog
from scenarios.adapter import Adapter, Arrays, NotOffered, Options
from scenarios.contract import allocators
from scenarios.proof import checks
from scenarios.spec import Adam, Conv, Dense, Flatten, MaxPool, Scenario, Sgd
from scenarios.weights import check_weights

NET = toy((Conv(4), MaxPool(4), Flatten(), Dense(8)), optimizer=Adam())
PLAIN = replace(NET, optimizer=Sgd(0.1))  # for the settings that exist only with SGD
PROCESS_WIDE = {allocators.AXIS, "threads"}  # can be set only once, at the start of the process


def offered(net: Scenario) -> set[tuple[str, str, str]]:
    """Return objective, name and value of each setting that the adapter has for a net."""
    axes = named_adapter().axes(Options(device=os.environ.get("KIT_TEST_DEVICE", "cpu")), net)  # type: ignore[arg-type]
    return {
        (objective, name, value) for objective in axes for name in axes[objective] for value in axes[objective][name]
    }


VALUES = [
    pytest.param(net, *value, id="-".join(value))
    for net, values in ((NET, offered(NET)), (PLAIN, offered(PLAIN) - offered(NET)))
    for value in sorted(values)
    if value[1] not in PROCESS_WIDE
]

pytestmark = pytest.mark.skipif("KIT_TEST_TUNED" in os.environ, reason="sets its own settings")


@pytest.fixture
def tuned(adapters: type[Adapter], options: Options, name: str, value: str) -> Adapter:
    return adapters(replace(options, lane="tuned", settings={name: value}))


def test_likely_settings_are_offered_for_some_cell(adapters: type[Adapter]) -> None:
    offered = (
        {
            (name, value)
            for device in ("cpu", "cuda")
            for variants in catalog.load().values()
            for net in variants.values()
            for axes in adapters.axes(Options(device=device), net).values()  # type: ignore[arg-type]
            for name, values in axes.items()
            for value in values[1:]
        }
        | {(allocators.AXIS, name) for name in allocators.VARIABLES}
    )
    assert {(name, value) for name, values in adapters.likely.items() for value in values} <= offered


@pytest.mark.parametrize(("net", "objective", "name", "value"), VALUES)
def test_a_setting_does_not_change_what_is_computed(
    tuned: Adapter, net: Scenario, objective: str, tmp_path: Path
) -> None:
    if objective == "training":
        found = checks.prove(tuned, net, 0, "fp32", tmp_path / "reference.npz")
        assert found.passed, found.checks
    weights = check_weights(net, seed=0)
    images, labels = noise(net, net.batch)
    model, by_epoch = tuned.build(net, weights), tuned.build(net, weights)
    for epoch in range(3):
        model.step(images, labels)
        by_epoch.train_epoch(Arrays(images, labels), epoch, RecordingMeter())
    for name, expected in model.weights().items():
        np.testing.assert_allclose(by_epoch.weights()[name], expected, rtol=2e-4, atol=2e-5, err_msg=name)
    logits = model.logits(images).astype(np.float64)
    shares = np.exp(logits - logits.max(1, keepdims=True))
    shares /= shares.sum(1, keepdims=True)
    for batch in (1, len(images)):
        np.testing.assert_allclose(model.predictor(batch)(images[:batch]), shares[:batch], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("settings", [{"colour": "red"}, {"threads": "7"}, {allocators.AXIS: "mine"}])
def test_an_unknown_setting_is_refused(adapters: type[Adapter], options: Options, settings: dict[str, str]) -> None:
    with pytest.raises(NotOffered, match=r"setting (colour = red|threads = 7|allocator = mine)"):
        adapters(replace(options, lane="tuned", settings=settings)).build(NET, check_weights(NET, seed=0))
