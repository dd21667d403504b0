"""The proof with the example framework: what it accepts, refuses and caches."""

from __future__ import annotations

import importlib.util
import math
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from scenarios import catalog
from scenarios.adapter import Adapter, Images, Options
from scenarios.contract.codec import from_json, to_json
from scenarios.contract.result import Proof
from scenarios.data import photos
from scenarios.proof import case, checks, reference
from scenarios.spec import Adam, Conv, Dense, Flatten, MaxPool, Scenario, Sgd, without_randomness
from scenarios.weights import Weights

EXAMPLE = Path(__file__).parents[1] / "example/scenarios/frameworks/plain/adapter.py"
SCENARIO = Scenario(
    name="small",
    title="",
    study="",
    dataset="mnist",
    image=(8, 8, 1),
    layers=(Conv(3), MaxPool(2), Flatten(), Dense(4, activation="softmax")),
    loss="categorical",
    optimizer=Adam(),
    batch=4,
    epochs=1,
    proof_batch=6,
)


@pytest.fixture(scope="module")
def plain() -> Any:
    spec = importlib.util.spec_from_file_location("plain", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["plain"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def adapter(plain: Any) -> Adapter:
    made: Adapter = plain.ADAPTER(Options())
    return made


def failed(found: Proof) -> list[str]:
    return [check.name for check in found.checks if not check.passed]


@pytest.mark.parametrize("optimizer", [Adam(), Sgd(0.5)])
def test_a_correct_adapter_passes_and_the_checks_are_named(adapter: Adapter, optimizer: Any) -> None:
    found = checks.prove(adapter, replace(SCENARIO, optimizer=optimizer), 3, "fp32", None)
    assert found.passed, found.checks
    names = [check.name for check in found.checks]
    parts = [re.sub(r" \d+/\w+", "", name) for name in names]
    assert parts == [
        "weights",
        "logits",
        "loop: loss of each image once",
        "loop: weights",
        "loop: weights size",
        "output at batch 1",
        "output at batch 256",
        "loss",
        "gradient",
        "gradient size",
        parts[10],
        "moments",
        "weights without gradient",
        "feed: each image once",
        "feed: another order in each epoch",
        "feed: images",
    ]
    assert parts[10].startswith("update at step ")
    assert (found.optimizer_form, found.cached) == ("torch", False)
    assert from_json(Proof, to_json(found)) == found


def test_gradients_too_small_to_be_read_do_not_fail_a_correct_update(adapter: Adapter) -> None:
    """With these seeds the gradient of a weight is near its rounding. Adam's step for it may have either sign."""
    layers = (Conv(8), MaxPool(2), Flatten(), Dense(64), Dense(10, activation="softmax"))
    for seed in range(4, 9):
        found = checks.prove(adapter, replace(SCENARIO, layers=layers), seed, "fp32", None)
        assert found.passed, found.checks


def test_a_wrong_update_or_form_fails_only_the_checks_of_updates(adapter: Adapter, plain: Any) -> None:
    class Faster(plain.ADAPTER):  # type: ignore[misc]
        def build(self, scenario: Scenario, weights: Weights) -> Any:
            present = scenario.optimizer
            if present != Sgd(1.0):
                scenario = replace(scenario, optimizer=replace(present, learning_rate=present.learning_rate * 1.03))
            return super().build(scenario, weights)

    class OtherForm(plain.ADAPTER):  # type: ignore[misc]
        optimizer_form = "keras"

    for wrong in (Faster, OtherForm):
        names = failed(checks.prove(wrong(Options()), SCENARIO, 0, "fp32", None))
        assert any(name.startswith("update ") for name in names)
        assert all(name.startswith(("update ", "moments", "loop: ", "feed: each")) for name in names), names


def test_other_scaling_of_photos_fails_in_evaluation_and_in_the_loop(
    adapter: Adapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A position that is not rounded from the pixel's center is enough."""
    scenario = replace(SCENARIO, dataset="cats-dogs", image=(16, 16, 3))
    assert checks.prove(adapter, scenario, 0, "fp32", None).passed
    monkeypatch.setattr(
        photos, "scale", lambda pixels, size: cv2.resize(pixels, size[::-1], interpolation=cv2.INTER_NEAREST)
    )
    for full in (True, False):
        names = failed(checks.prove(adapter, scenario, 0, "fp32", None, full=full))
        assert "photos: gray levels" in names
        assert any(name.startswith("loop: weights") for name in names)
        assert ("feed: images" in names) == full


def test_nan_and_wrong_shapes_fail_and_can_be_written(plain: Any) -> None:
    class Broken(plain.PlainModel):  # type: ignore[misc]
        def logits(self, images: Images) -> Any:
            return super().logits(images) * np.nan

        def predictor(self, batch: int) -> Any:
            predict = super().predictor(batch)
            return lambda images: predict(images)[:1, :1]

    class Adapted(plain.ADAPTER):  # type: ignore[misc]
        def build(self, scenario: Scenario, weights: Weights) -> Any:
            return Broken(self._options, scenario, weights)

    found = checks.prove(Adapted(Options()), SCENARIO, 0, "fp32", None)
    assert failed(found) == ["logits", "output at batch 1", "output at batch 256"]
    assert from_json(Proof, to_json(found)) == found


def test_exceptions_of_the_framework_pass_through(plain: Any) -> None:
    class Refusing(plain.ADAPTER):  # type: ignore[misc]
        def build(self, scenario: Scenario, weights: Weights) -> Any:
            raise MemoryError("of the device")

    with pytest.raises(MemoryError, match="device"):
        checks.prove(Refusing(Options()), SCENARIO, 0, "fp32", None)


def test_lower_precision_is_compared_by_the_norm(plain: Any) -> None:
    """Logits that are 1% off pass in bf16 and fail in tf32. Logits that are 20% off fail in both."""

    def adapter(error: float) -> Adapter:
        class Rounded(plain.PlainModel):  # type: ignore[misc]
            def logits(self, images: Images) -> Any:
                return super().logits(images) * (1 + error)

        class Adapted(plain.ADAPTER):  # type: ignore[misc]
            def build(self, scenario: Scenario, weights: Weights) -> Any:
                return Rounded(self._options, scenario, weights)

        made: Adapter = Adapted(Options())
        return made

    assert checks.prove(adapter(0.01), SCENARIO, 0, "bf16", None).passed
    assert failed(checks.prove(adapter(0.01), SCENARIO, 0, "tf32", None)) == ["logits"]
    assert failed(checks.prove(adapter(0.2), SCENARIO, 0, "bf16", None)) == ["logits"]


def test_the_cache_is_used_only_for_the_same_case(
    adapter: Adapter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "reference.npz"
    monkeypatch.setattr(case, "MIN_CACHED_S", math.inf)
    first = checks.prove(adapter, SCENARIO, 0, "fp32", cache)
    assert not cache.exists(), "values that are computed fast need no file"
    monkeypatch.setattr(case, "MIN_CACHED_S", -1.0)
    assert not checks.prove(adapter, SCENARIO, 0, "fp32", cache).cached
    again = checks.prove(adapter, SCENARIO, 0, "fp32", cache)
    assert again.cached
    assert again.checks == first.checks
    assert checks.prove(adapter, replace(SCENARIO, inference_batch=99, epochs=7), 0, "fp32", cache).cached
    assert checks.prove(adapter, SCENARIO, 0, "fp32", cache, full=False).cached
    others = replace(SCENARIO, proof_batch=5), replace(SCENARIO, batch=5), replace(SCENARIO, optimizer=Sgd(0.1))
    for other, seed in ((SCENARIO, 1), *((other, 1) for other in others)):
        assert not checks.prove(adapter, other, seed, "fp32", cache).cached
        assert checks.prove(adapter, other, seed, "fp32", cache).cached, "the new values were not cached"
    assert [path.name for path in tmp_path.iterdir()] == ["reference.npz"]


def test_a_damaged_cache_is_replaced(adapter: Adapter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(case, "MIN_CACHED_S", -1.0)
    cache = tmp_path / "reference.npz"
    checks.prove(adapter, SCENARIO, 0, "fp32", cache)
    whole = cache.read_bytes()
    np.savez(tmp_path / "objects.npz", key=np.array([{}], dtype=object))
    damaged = [b"", b"no archive", whole[: len(whole) // 2], whole[:-30], (tmp_path / "objects.npz").read_bytes()]
    flipped = (whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :] for place in range(0, len(whole), 53))
    damaged.extend(flipped)
    wanted = case.make_case(SCENARIO, 0)
    for content in damaged:
        cache.write_bytes(content)
        found, fresh = case.Expected(wanted, cache), case.Expected(wanted, None)
        values, correct = found.function(), fresh.function()
        assert values.loss == correct.loss
        assert all(np.array_equal(values.gradients[name], value) for name, value in correct.gradients.items())
        assert np.array_equal(found.loop("torch").losses, fresh.loop("torch").losses)
        found.save()
        again = case.Expected(wanted, cache)
        again.function(), again.loop("torch")
        assert again.cached, "the damaged file was not replaced"


def test_only_deep_networks_have_the_larger_tolerance_of_bf16() -> None:
    cases = {name: case.make_case(variant, 0) for name, variant in catalog.load()["catdog-cnn"].items()}
    assert {checks.gradient_tolerance(made, "fp32") for made in cases.values()} == {1e-2}
    assert checks.gradient_tolerance(cases.pop("deep"), "bf16") == 5e-1
    assert {checks.gradient_tolerance(made, "bf16") for made in cases.values()} == {1.5e-1}


def rounded(values: Any) -> Any:
    """Round float32 values to the 8 significant bits of bfloat16."""
    bits = np.asarray(values, np.float32).view(np.uint32)
    return ((bits + 0x8000) & 0xFFFF0000).astype(np.uint32).view(np.float32).astype(np.float64)


DEEP = replace(
    SCENARIO,
    image=(12, 12, 3),
    layers=(Conv(16), MaxPool(2), *[Conv(16, padding="same")] * 30, Flatten(), Dense(1, activation="sigmoid")),
    loss="binary",
)


@pytest.mark.parametrize("seed", range(3))
def test_the_gradient_of_a_deep_network_survives_weights_in_bf16(seed: int) -> None:
    made = case.make_case(DEEP, seed)
    exact = reference.evaluate(made.scenario, made.weights, made.images, made.labels).gradients
    weights = {name: rounded(value) for name, value in made.weights.items()}
    found = reference.evaluate(made.scenario, weights, made.images, made.labels).gradients
    worst = max(np.linalg.norm(found[name] - exact[name]) / np.linalg.norm(exact[name]) for name in exact)
    assert worst < checks.gradient_tolerance(made, "bf16") / 2


def test_with_a_single_output_the_gradients_of_the_two_labels_do_not_cancel() -> None:
    scenario = without_randomness(catalog.load()["catdog-cnn"][""])
    for seed in range(8):
        labels = case.make_case(scenario, seed).labels
        assert sorted(np.bincount(labels, minlength=2)) == [1, len(labels) - 1]
