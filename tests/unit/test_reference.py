"""The reference against finite differences, explicit loops, and numbers computed by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scenarios.proof import reference
from scenarios.spec import (
    Activation,
    Adadelta,
    Adam,
    Conv,
    Dense,
    Dropout,
    Flatten,
    Layer,
    MaxPool,
    Optimizer,
    Scenario,
    Sgd,
    parameters,
    shapes,
)


def scenario(
    layers: tuple[Layer, ...], output: Activation, *, image: tuple[int, int, int] = (7, 6, 2), units: int = 3
) -> Scenario:
    return Scenario(
        name="small",
        title="",
        dataset="mnist",
        image=image,
        layers=(*layers, Dense(units, activation=output)),
        loss="binary" if units == 1 else "categorical",
        optimizer=Sgd(1.0),
        batch=4,
        epochs=1,
    )


def problem(spec: Scenario, seed: int) -> tuple[reference.Tensors, reference.Array, reference.Labels]:
    """Weights (float64, so that finite differences resolve), images and labels."""
    generator = np.random.default_rng(seed)
    weights = {p.name: generator.normal(0, 0.5, p.shape) for p in parameters(spec)}
    return weights, generator.random((4, *spec.image)), generator.integers(0, max(2, spec.output.units), 4)


def assert_gradients_match(spec: Scenario, seed: int, masks: dict[int, reference.Array] | None = None) -> None:
    """Compare each tensor's gradient, along random directions, with central differences of the loss."""
    weights, images, labels = problem(spec, seed)
    generator = np.random.default_rng(seed + 1)
    values = reference.evaluate(spec, weights, images, labels, masks)
    for name, value in weights.items():
        direction = generator.normal(size=value.shape)
        direction /= np.linalg.norm(direction)
        slope = [
            reference.evaluate(spec, weights | {name: value + step * direction}, images, labels, masks).loss
            for step in (1e-6, -1e-6)
        ]
        measured = (slope[0] - slope[1]) / 2e-6
        assert (values.gradients[name] * direction).sum() == pytest.approx(measured, rel=1e-5, abs=1e-8), name


HEADS = [("softmax", 3), ("linear", 3), ("sigmoid", 3), ("sigmoid", 1), ("linear", 1)]


@pytest.mark.parametrize(("output", "units"), HEADS)
def test_gradients_match_finite_differences(output: Activation, units: int) -> None:
    layers = (
        Conv(3, padding="same"),
        MaxPool(2),  # 7 x 6: a row is dropped
        Conv(4, kernel=2, padding="same", activation="linear"),
        Conv(2, kernel=2, padding="valid"),
        Dropout(0.0),
        Flatten(),
        Dense(5),
    )
    for seed in range(3):
        assert_gradients_match(scenario(layers, output, units=units), seed)


layer_lists = st.lists(
    st.one_of(
        st.builds(
            Conv,
            filters=st.integers(1, 3),
            kernel=st.integers(1, 3),
            padding=st.sampled_from(["valid", "same"]),
            activation=st.sampled_from(["relu", "linear"]),
        ),
        st.builds(MaxPool, size=st.integers(1, 3)),
    ),
    max_size=4,
)


@settings(max_examples=40, derandomize=True)
@given(layers=layer_lists, hidden=st.integers(0, 2), head=st.sampled_from(HEADS), seed=st.integers(0, 99))
def test_gradients_of_any_network(layers: list[Layer], hidden: int, head: tuple[Activation, int], seed: int) -> None:
    try:
        spec = scenario((*layers, Flatten(), *[Dense(4)] * hidden), head[0], image=(9, 8, 2), units=head[1])
    except ValueError:
        return  # a layer does not fit
    assert_gradients_match(spec, seed)
    weights, images, _ = problem(spec, seed)
    *_, (_, _, _, after) = shapes(spec)
    assert reference.forward(spec, weights, images).shape == (4, *after)


def test_dropout_masks_scale_values_and_gradients() -> None:
    spec = scenario((Conv(2), Dropout(0.5), Flatten()), "softmax")
    mask = np.random.default_rng(5).integers(0, 2, (4, 5, 4, 2)) * 2.0
    assert_gradients_match(spec, 1, {1: mask})
    weights, images, labels = problem(spec, 1)
    assert np.array_equal(
        reference.evaluate(spec, weights, images, labels).logits, reference.forward(spec, weights, images)
    )
    assert not np.allclose(
        reference.evaluate(spec, weights, images, labels, {1: mask}).logits, reference.forward(spec, weights, images)
    )


@pytest.mark.parametrize("padding", ["valid", "same"])
@pytest.mark.parametrize("kernel", [1, 2, 3])
def test_convolution_matches_loops(padding: str, kernel: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "COLUMN_BYTES", 1)  # one image at a time
    layer = Conv(3, kernel=kernel, padding=padding, activation="linear")  # type: ignore[arg-type]
    spec = scenario((layer, Flatten()), "linear", image=(5, 4, 2))
    weights, images, _ = problem(spec, 3)
    before, after = ((kernel - 1) // 2, kernel // 2) if padding == "same" else (0, 0)
    padded = np.pad(images, ((0, 0), (before, after), (before, after), (0, 0)))
    rows, columns = 5 + before + after - kernel + 1, 4 + before + after - kernel + 1
    expected = np.zeros((4, rows, columns, 3))
    for n, y, x, f in np.ndindex(expected.shape):
        window = padded[n, y : y + kernel, x : x + kernel]
        expected[n, y, x, f] = (window * weights["0/kernel"][..., f]).sum() + weights["0/bias"][f]
    logits = expected.reshape(4, -1) @ weights["2/kernel"] + weights["2/bias"]
    assert np.allclose(reference.forward(spec, weights, images), logits, rtol=1e-12)


def test_the_first_of_equal_maxima_gets_the_gradient_and_relu_is_flat_at_zero() -> None:
    spec = scenario((Conv(1, kernel=1, activation="linear"), MaxPool(2), Flatten()), "linear", image=(2, 2, 4), units=2)
    images = np.zeros((1, 2, 2, 4))
    images[0, [0, 0, 1, 1], [0, 1, 0, 1], [0, 1, 2, 3]] = [1, 3, 3, 2]  # pixel (0, 1) and (1, 0) tie
    weights = {
        "0/kernel": np.ones((1, 1, 4, 1)),
        "0/bias": np.zeros(1),
        "3/kernel": np.array([[1.0, 0.0]]),
        "3/bias": np.zeros(2),
    }
    labels = np.array([0])
    slope = 1 / (1 + math.exp(-3)) - 1  # softmax of (3, 0) minus the target
    gradient = reference.evaluate(spec, weights, images, labels).gradients["0/kernel"].ravel()
    assert gradient == pytest.approx([0, 3 * slope, 0, 0])
    rectified = replace(spec, layers=(Conv(1, kernel=1), *spec.layers[1:]))
    weights["0/kernel"][:] = 0  # every value is exactly 0
    assert not reference.evaluate(rectified, weights, images, labels).gradients["0/bias"].any()
    assert reference.evaluate(spec, weights, images, labels).gradients["0/bias"] == pytest.approx([-0.5])


def test_losses_and_outputs_by_hand() -> None:
    logits, labels = np.array([[2.0, -1.0, 0.5], [-30.0, 40.0, 0.0]]), np.array([0, 2])
    softmax, shares = scenario((Flatten(),), "softmax"), scenario((Flatten(),), "sigmoid")
    powers = [[math.exp(z) for z in row] for row in logits]
    assert reference.output(softmax, logits)[0] == pytest.approx([p / sum(powers[0]) for p in powers[0]])
    assert reference.losses(softmax, logits, labels) == pytest.approx(
        [-math.log(powers[0][0] / sum(powers[0])), -math.log(powers[1][2] / sum(powers[1]))]
    )
    chances = [[min(max(1 / (1 + math.exp(-z)), 1e-7), 1 - 1e-7) for z in row] for row in logits]
    assert reference.losses(shares, logits, labels) == pytest.approx(
        [-math.log(chances[0][0] / sum(chances[0])), -math.log(chances[1][2] / sum(chances[1]))]
    )
    assert reference.predictions(softmax, logits).tolist() == [0, 1]
    binary = scenario((Flatten(),), "sigmoid", units=1)
    ones = np.array([[3.0], [-800.0]])
    assert reference.output(binary, ones)[:, 0] == pytest.approx([1 / (1 + math.exp(-3)), 0])
    assert reference.losses(binary, ones, np.array([0, 1])) == pytest.approx([3 + math.log1p(math.exp(-3)), 800])
    assert reference.predictions(binary, ones).tolist() == [1, 0]


def test_clipped_probabilities_pass_no_gradient() -> None:
    spec = scenario((Flatten(),), "sigmoid", image=(1, 1, 1))
    weights = {"1/kernel": np.zeros((1, 3)), "1/bias": np.array([-20.0, 20.0, 0.0])}
    values = reference.evaluate(spec, weights, np.ones((1, 1, 1, 1)), np.array([0]))
    assert values.loss == pytest.approx(-math.log(1e-7 / (1e-7 + 1 - 1e-7 + 0.5)))
    slope = 1 / (1.5)  # the clipped probability of the label is constant; only the total changes
    assert values.gradients["1/bias"] == pytest.approx([0, 0, slope * 0.25])


@pytest.mark.parametrize(
    ("optimizer", "form", "expected"),
    [
        (Sgd(0.1), "torch", [-0.2, 0.1]),
        # gradients 2, -1: m = .2, .08; v = .8, .84; corrections 1 - b1^t = .1, .19 and 1 - b2^t = .2, .36
        (
            Adam(0.1, beta_1=0.9, beta_2=0.8, epsilon=0.5),
            "torch",
            [-0.1 * 2 / (2 + 0.5), -0.1 * (0.08 / 0.19) / (math.sqrt(0.84 / 0.36) + 0.5)],
        ),
        (
            Adam(0.1, beta_1=0.9, beta_2=0.8, epsilon=0.5),
            "keras",
            [
                -0.1 * math.sqrt(0.2) / 0.1 * 0.2 / (math.sqrt(0.8) + 0.5),
                -0.1 * math.sqrt(0.36) / 0.19 * 0.08 / (math.sqrt(0.84) + 0.5),
            ],
        ),
    ],
)
def test_optimizers_by_hand(optimizer: Optimizer, form: reference.Form, expected: list[float]) -> None:
    state = reference.start({"w": np.zeros(1)})
    taken = []
    for gradient in (2.0, -1.0):
        changes, state = reference.update(optimizer, form, state, {"w": np.array([gradient])})
        taken.append(changes["w"][0])
    assert taken == pytest.approx(expected)


def test_adadelta_by_hand() -> None:
    optimizer = Adadelta(learning_rate=0.5, rho=0.75, epsilon=0.01)
    state = reference.start({"w": np.zeros(1)})
    one, state = reference.update(optimizer, "keras", state, {"w": np.array([2.0])})
    two, state = reference.update(optimizer, "keras", state, {"w": np.array([-1.0])})
    first = math.sqrt(0.01) / math.sqrt(0.25 * 4 + 0.01) * 2
    squares = 0.25 * first**2
    second = math.sqrt(squares + 0.01) / math.sqrt(0.75 * 1 + 0.25 * 1 + 0.01) * -1
    assert [one["w"][0], two["w"][0]] == pytest.approx([-0.5 * first, -0.5 * second])
    assert state.step == 2
