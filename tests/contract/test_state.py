"""The state of a training: a model that continues from it ends like one that was never interrupted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from toys import RecordingMeter, noise, save_photo, toy

from scenarios.adapter import Adapter, Arrays, Model, Options, Photos, State, TrainSet
from scenarios.spec import Adadelta, Adam, Augment, Conv, Dense, Dropout, Flatten, MaxPool, Optimizer, Scenario, Sgd
from scenarios.weights import check_weights, digest
from scenarios.weights_file import read_tensors, write_tensors

EPOCHS = 3
LAYERS = (Conv(3), MaxPool(), Dropout(0.25), Flatten(), Dense(6), Dropout(0.5))


def small(optimizer: Optimizer, *, dropout: bool = True) -> Scenario:
    layers = tuple(layer for layer in LAYERS if dropout or not isinstance(layer, Dropout))
    return toy(layers, image=(12, 12, 3), optimizer=optimizer, dataset="cats-dogs")


def train_set(kind: str, scenario: Scenario, folder: Path) -> TrainSet:
    """Return 44 images of four classes: the last batch of an epoch is a short one."""
    images, labels = noise(scenario, 44)
    if kind == "arrays":
        return Arrays(images, labels)
    pixels = (255 * images).astype(np.uint8)
    paths = [save_photo(folder / f"{index}.jpg", photo) for index, photo in enumerate(pixels)]
    return Photos(paths, labels, scenario.image[:2], Augment(shear=10.0))


def through_a_file(state: State, folder: Path) -> State:
    write_tensors(folder / "state.safetensors", state, {})
    return read_tensors(folder / "state.safetensors")[0]


def require_equal(model: Model, expected: Model, *, exactly: bool) -> None:
    if exactly:
        assert digest(model.weights()) == digest(expected.weights())
    for name, value in expected.weights().items():
        np.testing.assert_allclose(model.weights()[name], value, rtol=1e-4, atol=1e-6, err_msg=name)


@pytest.mark.parametrize(
    ("optimizer", "kind"),
    [(Sgd(0.1), "arrays"), (Adam(0.01), "arrays"), (Adadelta(), "arrays"), (Adam(0.01), "photos")],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_training_continues_from_a_state_as_if_it_had_not_stopped(
    adapter: Adapter, options: Options, optimizer: Optimizer, kind: str, tmp_path: Path
) -> None:
    # TensorFlow, and any framework on a GPU, may sum gradients in another order each time.
    exactly = adapter.name != "tensorflow" and options.device == "cpu"
    # On a GPU, a kernel of ONNX Runtime cannot continue its sequence of masks.
    scenario = small(optimizer, dropout=(adapter.name, options.device) != ("onnxruntime", "cuda"))
    train, weights = train_set(kind, scenario, tmp_path), check_weights(scenario, 1)
    whole = adapter.build(scenario, weights)
    states = []
    for epoch in range(EPOCHS):
        whole.train_epoch(train, epoch, RecordingMeter())
        whole.logits(noise(scenario, 5)[0])  # as in the evaluation, which changes nothing
        states.append(through_a_file(whole.state(), tmp_path))
    assert digest({name: states[-1][name] for name in weights}) == digest(whole.weights())
    for first in range(1, EPOCHS):
        resumed = adapter.build(scenario, check_weights(scenario, 2))
        resumed.train_epoch(train, 0, RecordingMeter())  # leaves a state, which must not remain
        resumed.restore(states[first - 1])
        for epoch in range(first, EPOCHS):
            resumed.train_epoch(train, epoch, RecordingMeter())
            states.append(through_a_file(resumed.state(), tmp_path))  # also after several restarts
        require_equal(resumed, whole, exactly=exactly)
    again = adapter.build(scenario, weights)
    again.restore(states[EPOCHS])
    again.train_epoch(train, EPOCHS - 1, RecordingMeter())
    require_equal(again, whole, exactly=exactly)


def test_a_state_is_a_copy_and_that_of_another_optimizer_is_refused(adapter: Adapter, tmp_path: Path) -> None:
    scenario = small(Adam(0.01))
    model = adapter.build(scenario, check_weights(scenario, 1))
    train = train_set("arrays", scenario, tmp_path)
    model.train_epoch(train, 0, RecordingMeter())
    state = model.state()
    before = {name: value.copy() for name, value in state.items()}
    model.train_epoch(train, 1, RecordingMeter())
    for name, value in before.items():
        np.testing.assert_array_equal(state[name], value, err_msg=name)
    weights_only = {name: state[name] for name in model.weights()}
    with pytest.raises(ValueError, match="the state"):
        model.restore(weights_only)
