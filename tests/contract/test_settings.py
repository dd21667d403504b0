"""Every setting that an adapter offers computes the scenario's function, in steps, epochs and predictions."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from toys import RecordingMeter, named_adapter, noise, toy

from scenarios import allocators, proof
from scenarios.frameworks.base import Adapter, Arrays, NotOffered, Options
from scenarios.spec import Adam, Conv, Dense, Flatten, MaxPool
from scenarios.weights import check_weights

NET = toy((Conv(4), MaxPool(4), Flatten(), Dense(8)), optimizer=Adam())
OF_THE_PROCESS = {allocators.AXIS, "threads"}  # can be set once, before it does anything
VALUES = [
    pytest.param(objective, name, value, id=f"{objective}-{name}-{value}")
    for objective, axes in named_adapter().axes(Options(device=os.environ.get("KIT_TEST_DEVICE", "cpu")), NET).items()  # type: ignore[arg-type]
    for name, values in axes.items()
    for value in values
    if name not in OF_THE_PROCESS
]

pytestmark = pytest.mark.skipif("KIT_TEST_TUNED" in os.environ, reason="sets its own settings")


@pytest.fixture
def tuned(adapters: type[Adapter], options: Options, name: str, value: str) -> Adapter:
    return adapters(replace(options, lane="tuned", settings={name: value}))


@pytest.mark.parametrize(("objective", "name", "value"), VALUES)
def test_a_setting_changes_nothing_of_what_is_computed(tuned: Adapter, objective: str, tmp_path: Path) -> None:
    if objective == "training":
        found = proof.prove(tuned, NET, 0, "fp32", tmp_path / "reference.npz")
        assert found.passed, found.checks
    weights = check_weights(NET, seed=0)
    images, labels = noise(NET, NET.batch)
    model, by_epoch = tuned.build(NET, weights), tuned.build(NET, weights)
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
def test_a_setting_that_is_none_is_refused(adapters: type[Adapter], options: Options, settings: dict[str, str]) -> None:
    with pytest.raises(NotOffered, match=r"setting (colour = red|threads = 7|allocator = mine)"):
        adapters(replace(options, lane="tuned", settings=settings)).build(NET, check_weights(NET, seed=0))
