"""The proof refuses adapters that are wrong in one respect, at each precision that the framework offers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import wrong
from toys import toy
from wrong import Wrong

from scenarios.adapter import Adapter, NotOffered, Options
from scenarios.contract.result import Proof
from scenarios.proof import checks, dropout
from scenarios.spec import Adam, Augment, Conv, Dense, Dropout, Flatten, MaxPool, Scenario

SEED = 1
# As in the catalog, but small. The short last batch has half of the images.
LAYERS = (Conv(8), MaxPool(2), Dropout(0.25), Flatten(), Dense(64), Dropout(0.5))
NET = toy(LAYERS, image=(12, 12, 1), optimizer=Adam(), units=10, batch=32)
PHOTOS = replace(
    toy(
        (Conv(4), MaxPool(2), Flatten(), Dense(16)),
        "sigmoid",
        image=(48, 48, 3),
        units=1,
        optimizer=Adam(),
        batch=32,
        dataset="cats-dogs",
    ),
    augment=Augment(),
)

Break = Callable[[Adapter], Any]


def augmented(change: Callable[[Any], Augment | None]) -> Break:
    return partial(Wrong, model=wrong.other_augmentation(change))


WRAPPED: dict[str, tuple[Scenario, Break, str]] = {
    "dropout never applied": (NET, partial(Wrong, scenario=wrong.other_dropout(lambda rate: 0.0)), "dropout"),
    "dropout rate": (NET, partial(Wrong, scenario=wrong.other_dropout(lambda rate: rate * 0.8)), "dropout"),
    "learning rate": (NET, partial(Wrong, scenario=wrong.other_optimizer(learning_rate=1.05e-3)), "update"),
    "beta_1": (NET, partial(Wrong, scenario=wrong.other_optimizer(beta_1=0.89)), "moments"),
    "beta_2": (NET, partial(Wrong, scenario=wrong.other_optimizer(beta_2=0.9999)), "moments"),
    "half gradients": (NET, partial(Wrong, scenario=wrong.half_gradients), "gradient"),
    "last batch skipped": (NET, partial(Wrong, model=wrong.SkipsLastBatch), "loop: weights"),
    "updates dropped": (NET, partial(Wrong, model=wrong.DropsUpdates), "loop: weights"),
    "same order in each epoch": (NET, partial(Wrong, model=wrong.SameOrder), "feed: another order"),
    "drawn with replacement": (NET, partial(Wrong, model=wrong.DrawsWithReplacement), "feed: each image once"),
    "labels of other images": (NET, partial(Wrong, model=wrong.OtherLabels), "feed: images"),
    "images counted twice": (NET, partial(Wrong, model=wrong.CountsTwice), "loop: loss"),
    "stale predictor": (NET, partial(Wrong, model=wrong.StalePredictor), "output at batch"),
    "large batches cut": (NET, partial(Wrong, model=wrong.LargeBatchesAreCut), "output at batch 256"),
    "no augmentation": (PHOTOS, augmented(lambda augment: None), "augmentation"),
    "same augmentation": (PHOTOS, partial(Wrong, model=wrong.SameOrder), "feed: another order"),
    "shear of twice the angle": (PHOTOS, augmented(lambda augment: replace(augment, shear=0.4)), "augmentation"),
    "half of the zoom": (PHOTOS, augmented(lambda augment: replace(augment, zoom=0.1)), "augmentation"),
    "no flips": (PHOTOS, augmented(lambda augment: replace(augment, flip=False)), "augmentation: flips"),
    "bilinear training photos": (PHOTOS, wrong.bilinear_training, "augmentation: zoom"),
    "bilinear training photos, not augmented": (
        replace(PHOTOS, augment=None),
        wrong.bilinear_training,
        "feed: images",
    ),
    "bilinear test photos": (PHOTOS, wrong.BilinearEvaluation, "photos"),
}
PATCHED: dict[str, tuple[Callable[[Adapter, pytest.MonkeyPatch], None], str]] = {
    "weight decay in the gradients": (wrong.decay_gradients, "weights without gradient"),
    "AdamW": (wrong.use_adamw, "weights without gradient"),
    "dropout without scaling": (wrong.unscaled_dropout, "dropout 5: scaling"),
}


@pytest.fixture(params=["fp32", "bf16"])
def precise(adapters: type[Adapter], options: Options, request: pytest.FixtureRequest) -> Adapter:
    """Return the adapter at each precision."""
    try:
        return adapters(replace(options, precision=request.param))
    except NotOffered as refusal:
        pytest.skip(str(refusal))


def proof(adapter: Any, scenario: Scenario, precise: Adapter, cache: Path | None = None) -> Proof:
    return checks.prove(adapter, scenario, SEED, precise._options.precision, cache)  # type: ignore[attr-defined]


@pytest.mark.parametrize("scenario", [NET, PHOTOS], ids=["net", "photos"])
def test_the_real_adapter_passes(precise: Adapter, scenario: Scenario) -> None:
    found = proof(precise, scenario, precise)
    assert found.passed, found.checks


@pytest.mark.parametrize("name", WRAPPED)
def test_a_wrong_adapter_is_refused(precise: Adapter, name: str) -> None:
    scenario, broken, check = WRAPPED[name]
    refused(proof(broken(precise), scenario, precise), check)


@pytest.mark.parametrize("name", PATCHED)
def test_a_wrong_framework_is_refused(precise: Adapter, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    change, check = PATCHED[name]
    change(precise, monkeypatch)
    refused(proof(precise, NET, precise), check)


def refused(found: Proof, check: str) -> None:
    """Require that a check of this name failed, and that the function itself is right."""
    failed = [each.name for each in found.checks if not each.passed]
    assert any(name.startswith(check) for name in failed), found.checks
    assert not {"weights", "logits"} & set(failed), found.checks


# Read in a network of its own: before a Conv, and before another Dropout.
EACH_DROPOUT = {1: (Conv(8), Dropout(0.4), Conv(8), Flatten()), 2: (Conv(8), Flatten(), Dropout(0.4), Dropout(0.3))}


@pytest.mark.parametrize("index", EACH_DROPOUT)
def test_a_dropout_that_no_dense_layer_follows_is_proven(adapter: Adapter, index: int) -> None:
    scenario = toy(EACH_DROPOUT[index], image=(8, 8, 1), units=10)
    found = [*dropout.checks(adapter, scenario, SEED)]
    assert all(check.passed for check in found), found

    def without(changed: Scenario) -> Scenario:
        layers = [Dropout(0.0) if layer == Dropout(0.4) else layer for layer in changed.layers]
        return replace(changed, layers=tuple(layers))

    failed = {check.name for check in dropout.checks(Wrong(adapter, without), scenario, SEED) if not check.passed}
    assert failed >= {f"dropout {index}: rate"}
    assert all(name.startswith(f"dropout {index}: ") for name in failed), failed


LATER = [
    "last batch skipped",
    "updates dropped",
    "images counted twice",
    "bilinear training photos",
    "bilinear test photos",
]


@pytest.mark.parametrize("name", LATER)
def test_a_wrong_loop_is_refused_in_later_launches_too(precise: Adapter, name: str) -> None:
    scenario, broken, _ = WRAPPED[name]
    precision = precise._options.precision  # type: ignore[attr-defined]
    found = checks.prove(broken(precise), scenario, SEED, precision, None, full=False)
    assert not found.passed, found.checks
