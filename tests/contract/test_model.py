"""A single model: weights, optimizer state, dropout, ties, prediction, placement."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from toys import RecordingMeter, noise, toy

from scenarios.adapter import Adapter, Arrays, Options
from scenarios.contract.codec import from_json, to_json
from scenarios.contract.evidence import BuildInfo, Placement
from scenarios.proof import reference
from scenarios.spec import Activation, Adadelta, Adam, Conv, Dense, Dropout, Flatten, MaxPool, Optimizer, Sgd
from scenarios.weights import check_weights, digest, initial_weights

NET = toy(
    (Conv(3, kernel=2, padding="same"), MaxPool(3), Conv(4), Dropout(0.0), Flatten(), Dense(5), Dropout(0.0)),
    image=(11, 10, 2),
    optimizer=Adam(),
)
HEADS: list[tuple[Activation, int]] = [("softmax", 4), ("linear", 4), ("sigmoid", 4), ("sigmoid", 1)]


def test_weights_are_read_back_as_loaded(adapter: Adapter) -> None:
    first, second = check_weights(NET, 1), initial_weights(NET, 2)
    model = adapter.build(NET, first)
    assert list(model.weights()) == list(first)
    assert digest(model.weights()) == digest(first)
    model.load(second)
    assert digest(model.weights()) == digest(second)
    for value in model.weights().values():
        value[...] = 0
    given = digest(second)
    assert digest(model.weights()) == given, "the returned arrays are not copies"
    model.step(*noise(NET, 8))
    assert digest(second) == given, "training changed the loaded arrays"
    assert digest(model.weights()) != given


@pytest.mark.parametrize("optimizer", [Adam(), Adadelta()], ids=lambda o: type(o).__name__)
def test_load_resets_the_optimizer(adapter: Adapter, optimizer: Optimizer) -> None:
    scenario = replace(NET, optimizer=optimizer)
    weights, batch = check_weights(scenario, 3), noise(scenario, 8)
    model = adapter.build(scenario, weights)
    after = []
    for _ in range(2):
        model.load(weights)
        model.step(*batch)
        after.append(model.weights())
        model.step(*batch)
        model.step(*batch)
    for name, value in weights.items():
        change = after[0][name] - value
        assert np.abs(after[1][name] - after[0][name]).max() <= 1e-3 * np.abs(change).max() + 1e-7, name


def test_step_takes_any_batch_and_returns_the_loss_before_the_update(adapter: Adapter) -> None:
    weights = check_weights(NET, 4)
    model = adapter.build(NET, weights)
    for count in (1, 5, 8, 13):
        model.load(weights)
        images, labels = noise(NET, count)
        expected = reference.evaluate(NET, weights, images, labels).loss
        assert model.step(images, labels) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("rate", [0.25, 0.5])
def test_dropout_drops_at_its_rate_and_scales_the_rest(adapter: Adapter, rate: float) -> None:
    """With one image, the gradient of a dense kernel is the outer product of its input and the gradient of the bias.

    So the test can compute the factor of each input.
    """
    scenario = toy((Flatten(), Dropout(rate)), image=(28, 28, 1), optimizer=Sgd(1e-3))
    weights = check_weights(scenario, 5)
    images, labels = noise(scenario, 1)
    images = 0.5 + images / 2
    model = adapter.build(scenario, weights)
    masks = []
    for _ in range(2):
        before = model.weights()
        model.step(images, labels)
        kernel, bias = (before[name] - after for name, after in model.weights().items())
        factors = kernel @ bias / (bias @ bias) / images.ravel()
        kept = np.abs(factors) > 0.5
        assert factors[~kept] == pytest.approx(0, abs=1e-2)
        assert factors[kept] == pytest.approx(1 / (1 - rate), rel=1e-2)
        assert 1 - kept.mean() == pytest.approx(rate, abs=0.075)  # more than four standard deviations of 784 draws
        masks.append(kept)
    assert (masks[0] != masks[1]).any(), "every step dropped the same"
    found = model.logits(images)
    assert found == pytest.approx(reference.forward(scenario, model.weights(), images), rel=1e-4, abs=1e-5)
    output = reference.output(scenario, found)
    assert model.predictor(1)(images) == pytest.approx(output, abs=1e-5)


def test_ties_and_zeros_are_as_in_the_reference(adapter: Adapter) -> None:
    """On a constant background most pooling windows tie and, without biases, most values are exactly 0."""
    scenario = toy((Conv(4), MaxPool(), Conv(4, padding="same"), MaxPool(3), Flatten()), image=(14, 15, 1))
    images, labels = noise(scenario, 4)
    images[:, :, :9] = 0
    images[:, :4] = 0.5
    for name in ("with biases", "without"):
        weights = check_weights(scenario, 6)
        if name == "without":
            weights |= {n: np.zeros_like(value) for n, value in weights.items() if n.endswith("bias")}
        model = adapter.build(scenario, weights)
        assert model.step(images, labels) > 0
        expected = reference.evaluate(scenario, weights, images, labels).gradients
        for parameter, after in model.weights().items():
            gradient, scale = weights[parameter] - after, np.abs(expected[parameter]).max()
            assert np.abs(gradient - expected[parameter]).max() <= 1e-3 * scale, f"{parameter} {name}"


@pytest.mark.parametrize(("activation", "units"), HEADS)
def test_predictor_returns_the_activated_logits_of_frozen_weights(
    adapter: Adapter, activation: Activation, units: int
) -> None:
    scenario = toy(NET.layers[:-1], activation, units=units, image=NET.image)
    model = adapter.build(scenario, check_weights(scenario, 7))
    images, labels = noise(scenario, 7)
    logits = model.logits(images)
    assert (logits.shape, logits.dtype) == ((7, units), np.float32)
    single = np.concatenate([model.logits(images[i : i + 1]) for i in range(7)])
    assert single == pytest.approx(logits, rel=1e-4, abs=1e-5)
    expected = reference.output(scenario, logits)
    predictors = {batch: model.predictor(batch) for batch in (1, 7)}
    model.step(images, labels)
    for batch, predict in predictors.items():
        found = predict(images[:batch])
        assert isinstance(found, np.ndarray)
        assert (found.shape, found.dtype) == ((batch, units), np.float32)
        assert found == pytest.approx(expected[:batch], abs=1e-5)


def test_models_are_independent_of_each_other(adapter: Adapter) -> None:
    weights, batch = check_weights(NET, 8), noise(NET, 8)
    first, second = adapter.build(NET, weights), adapter.build(replace(NET, optimizer=Sgd(0.1)), weights)
    first.step(*batch)
    assert digest(second.weights()) == digest(weights)
    second.step(*batch)
    assert digest(second.weights()) != digest(weights)


def test_placement_reports_what_ran(adapter: Adapter, options: Options) -> None:
    model = adapter.build(NET, initial_weights(NET, 0))
    model.train_epoch(Arrays(*noise(NET, 20)), 0, RecordingMeter())
    placement = model.placement()
    assert isinstance(placement, Placement)
    assert placement.device.split(":")[0].lower() == options.device
    assert placement.threads == options.threads
    assert all((placement.device_name, placement.provider, placement.layout))
    assert all((placement.training, placement.loader, placement.serving))
    assert placement.layout in ("NHWC", "NCHW", "blocked by oneDNN")
    if options.device == "cpu":
        assert placement.tf32 is None
        assert model.device_peak_bytes() is None
    else:
        assert placement.tf32 is False, "fp32 means IEEE"
        assert (model.device_peak_bytes() or 0) > 0


def test_versions_name_python_and_the_framework(adapter: Adapter) -> None:
    versions = adapter.versions()
    assert versions["python"].startswith("3.")
    assert adapter.name in versions
    assert all(isinstance(value, str) and value for value in versions.values()), versions


def test_a_framework_says_which_devices_it_sees_and_how_it_was_built(adapter: Adapter, options: Options) -> None:
    found = adapter.build_info()
    assert all((*found.devices, *found.flags, *found.flags.values())), found
    assert from_json(BuildInfo, to_json(found)) == found
    assert found.flags
    words = ("cpu",) if options.device == "cpu" else ("cuda", "gpu")
    assert any(word in name.lower() for name in found.devices for word in words), found


def test_versions_of_cuda_are_those_of_the_loaded_libraries(adapter: Adapter, monkeypatch: pytest.MonkeyPatch) -> None:
    if adapter.name not in ("onnxruntime", "tensorflow", "torch"):
        pytest.skip("this adapter has no CUDA")
    loaded = {"cuda": "12.9", "cudnn": "9.28.0"}
    monkeypatch.setattr("scenarios.frameworks.cuda_libraries.loaded_versions", lambda: dict(loaded))
    if adapter.name == "tensorflow":
        built = {"cuda_version": "12.5.1", "cudnn_version": "9"}
        monkeypatch.setattr("tensorflow.sysconfig.get_build_info", lambda: built)
    elif adapter.name == "torch":
        monkeypatch.setattr("torch.version.cuda", "12.5")
    versions = adapter.versions()
    assert loaded.items() <= versions.items(), versions
