"""The proof passes for every scenario and variant, and fails for every way of computing something else."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toys import Cheat, toy

from scenarios import catalog
from scenarios.adapter import Adapter, NotOffered, Options
from scenarios.contract.cell import Precision
from scenarios.proof import checks
from scenarios.spec import Adadelta, Adam, Conv, Dense, Flatten, MaxPool, Scenario, Sgd
from scenarios.weights import Weights

PRECISION: Precision = os.environ.get("KIT_TEST_PRECISION", "fp32")  # type: ignore[assignment]
SEEDS = int(os.environ.get("KIT_TEST_SEEDS", "2"))
LARGE = 100 * 100  # pixels; a larger scenario takes up to minutes, so it has one seed unless KIT_TEST_SEEDS is set
LARGE_SEEDS = SEEDS if "KIT_TEST_SEEDS" in os.environ else 1
CASES = [
    pytest.param(scenario, seed, id=f"{scenario.label}-{seed}")
    for variants in catalog.load().values()
    for scenario in variants.values()
    for seed in range(SEEDS if scenario.image[0] * scenario.image[1] < LARGE else LARGE_SEEDS)
]


@pytest.fixture(scope="module")
def precise(adapters: type[Adapter], options: Options) -> Adapter:
    """Return the adapter at the precision of KIT_TEST_PRECISION."""
    try:
        return adapters(replace(options, precision=PRECISION))
    except NotOffered as refusal:
        pytest.skip(str(refusal))


@pytest.mark.parametrize(("scenario", "seed"), CASES)
def test_proof_passes(precise: Adapter, scenario: Scenario, seed: int, tmp_path: Path) -> None:
    found = checks.prove(precise, scenario, seed, PRECISION, tmp_path / "reference.npz")
    assert found.passed, [check for check in found.checks if not check.passed]
    assert found.optimizer_form == precise.optimizer_form


NET = toy((Conv(4), MaxPool(4), Flatten(), Dense(8)), optimizer=Adam())
DELTA = replace(NET, optimizer=Adadelta())
TINY = toy((Conv(4, kernel=1), MaxPool(2), Flatten(), Dense(8)), image=(3, 3, 2), optimizer=Sgd(0.1))
BINARY = toy(units=1, output="sigmoid")


def layer(index: int, **changes: Any) -> Callable[[Scenario], Scenario]:
    def changed(scenario: Scenario) -> Scenario:
        layers = list(scenario.layers)
        layers[index] = replace(layers[index], **changes)
        return replace(scenario, layers=tuple(layers))

    return changed


def optimizer(**factors: float) -> Callable[[Scenario], Scenario]:
    """Return a change of the optimizer's numbers. The SGD that shows the gradient stays the same."""

    def changed(scenario: Scenario) -> Scenario:
        present = scenario.optimizer
        if present == Sgd(1.0):
            return scenario
        return replace(scenario, optimizer=replace(present, **{k: getattr(present, k) * f for k, f in factors.items()}))

    return changed


def flip_one(name: str) -> Callable[[Weights], Weights]:
    """Return a change of the sign of the largest weight of a tensor. Applied twice, it changes nothing."""

    def flipped(weights: Weights) -> Weights:
        kernel = weights[name].copy()
        place = np.unravel_index(np.abs(kernel).argmax(), kernel.shape)
        kernel[place] *= -1
        return weights | {name: kernel}

    return flipped


def channels_first(weights: Weights, *, back: bool = False) -> Weights:
    """Reorder the rows of NET's first dense kernel from (H, W, C) to (C, H, W), or back."""
    kernel = weights["3/kernel"]
    shape, axes = ((4, 2, 2, 8), (1, 2, 0, 3)) if back else ((2, 2, 4, 8), (2, 0, 1, 3))
    return weights | {"3/kernel": kernel.reshape(shape).transpose(axes).reshape(kernel.shape)}


CHEATS: dict[str, tuple[Scenario, dict[str, Any], str]] = {
    "one weight": (NET, {"into": flip_one("0/kernel")}, "weights"),
    "one weight, hidden": (NET, {"into": flip_one("0/kernel"), "out": flip_one("0/kernel")}, "logits"),
    "gradient": (
        NET,
        {"scenario": lambda s: replace(s, optimizer=Sgd(1.05)) if s.optimizer == Sgd(1.0) else s},
        "gradient",
    ),
    "padding": (NET, {"scenario": layer(0, padding="same")}, "logits"),
    "stride": (
        TINY,
        {"scenario": lambda s: replace(s, image=(2, 2, 2)), "images": lambda x: np.ascontiguousarray(x[:, ::2, ::2])},
        "logits",
    ),
    "pooling window and stride": (TINY, {"scenario": layer(1, size=3)}, "logits"),
    "activation": (NET, {"scenario": layer(3, activation="linear")}, "logits"),
    "flatten order": (
        NET,
        {"into": channels_first, "out": lambda w: channels_first(w, back=True)},
        "logits",
    ),
    "loss": (NET, {"scenario": layer(-1, activation="sigmoid")}, "loss"),
    "labels": (BINARY, {"labels": lambda y: 1 - y}, "loss"),
    "output": (NET, {"scenario": layer(-1, activation="linear")}, "output at batch 1"),
    "learning rate of SGD": (TINY, {"scenario": optimizer(learning_rate=1.1)}, "update"),
    "learning rate of Adam": (NET, {"scenario": optimizer(learning_rate=0.9)}, "update"),
    "learning rate of Adadelta": (DELTA, {"scenario": optimizer(learning_rate=1.1)}, "update"),
    "epsilon of Adam": (NET, {"scenario": optimizer(epsilon=10)}, "update"),
    "place of epsilon": (NET, {"other_form": True}, "update"),
    "second moment of Adam": (NET, {"scenario": optimizer(beta_2=0.99)}, "update"),
    "memory of Adadelta": (DELTA, {"scenario": optimizer(rho=0.95)}, "update"),
}


@pytest.mark.parametrize("scenario", [NET, DELTA, TINY, BINARY], ids=["net", "delta", "tiny", "binary"])
def test_proof_passes_for_the_scenarios_of_the_cheats(adapter: Adapter, scenario: Scenario) -> None:
    found = checks.prove(adapter, scenario, 0, "fp32", None)
    assert found.passed, found.checks


@pytest.mark.parametrize("name", CHEATS)
def test_proof_fails_if_something_else_is_computed(adapter: Adapter, name: str) -> None:
    scenario, changes, check = CHEATS[name]
    found = checks.prove(Cheat(adapter, **changes), scenario, 0, "fp32", None)
    failed = [found_check.name for found_check in found.checks if not found_check.passed]
    assert not found.passed
    assert any(name.startswith(check) for name in failed), found.checks
    assert check == "weights" or "weights" not in failed, "the cheat must be invisible in the weights"
