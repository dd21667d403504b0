"""Weights trained in one framework predict the same in the others: first all frameworks export, then all import."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from toys import noise

from scenarios import catalog
from scenarios.adapter import Adapter
from scenarios.spec import Scenario, parameters
from scenarios.weights import initial_weights

TOLERANCE = 1e-4
STEPS = 3
SCENARIOS = [variants[""] for variants in catalog.load().values()]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.label)
def test_exchange_export(adapter: Adapter, scenario: Scenario, exchange: Path) -> None:
    model = adapter.build(scenario, initial_weights(scenario, 0))
    for seed in range(STEPS):
        model.step(*noise(scenario, scenario.proof_batch, seed))
    images, _ = noise(scenario, scenario.proof_batch, STEPS)
    outputs = model.predictor(len(images))(images)
    assert np.isfinite(outputs).all()
    named = {f"weights {name}": value for name, value in model.weights().items()}
    np.savez(exchange / f"{adapter.name}-{scenario.label}.npz", outputs=outputs, **named)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.label)
def test_exchange_import(adapter: Adapter, scenario: Scenario, exchange: Path) -> None:
    others = [file for file in exchange.glob("*.npz") if not file.name.startswith(f"{adapter.name}-")]
    if not others:
        pytest.skip(f"{exchange} has no weights of other frameworks yet")
    files = sorted(file for file in others if file.name.endswith(f"-{scenario.label}.npz"))
    assert files
    images, _ = noise(scenario, scenario.proof_batch, STEPS)
    for file in files:
        with np.load(file, allow_pickle=False) as stored:
            weights = {p.name: stored[f"weights {p.name}"] for p in parameters(scenario)}
            expected = stored["outputs"]
        found = adapter.build(scenario, weights).predictor(len(images))(images)
        assert np.abs(found - expected).max() <= TOLERANCE, file.name
