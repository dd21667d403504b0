"""Operations and bytes counted from the layers, against counts by hand and against the reference's own arithmetic."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios import catalog
from scenarios.proof import reference
from scenarios.spec import Adadelta, Adam, Conv, Dense, Dropout, Flatten, MaxPool, Scenario, Sgd, parameters
from scenarios.spec.flops import forward_flops, training_bytes, training_flops

CATALOG = catalog.load()
ALL = [variant for variants in CATALOG.values() for variant in variants.values()]


def test_mnist_cnn_by_hand():
    # 28x28x1 -> conv 26x26x32 -> pool 13x13x32 -> conv 11x11x64 -> pool 5x5x64 -> 1600 -> 128 -> 10
    scenario = CATALOG["mnist-cnn"][""]
    first = 2 * 26 * 26 * 32 * (3 * 3 * 1)  # 389,376
    second = 2 * 11 * 11 * 64 * (3 * 3 * 32)  # 4,460,544
    dense = 2 * 1600 * 128 + 2 * 128 * 10  # 409,600 + 2,560
    assert forward_flops(scenario) == first + second + dense == 5_262_080
    assert training_flops(scenario) == 2 * first + 3 * (second + dense) == 15_396_864

    outputs = 26 * 26 * 32 + 13 * 13 * 32 + 11 * 11 * 64 + 5 * 5 * 64 + 128 + 10  # 36,522
    weights = (3 * 3 * 1 * 32 + 32) + (3 * 3 * 32 * 64 + 64) + (1600 * 128 + 128) + (128 * 10 + 10)
    assert weights == 225_034
    # outputs: value and gradient, each written and read; images read twice; weight, gradient and Adam's two moments
    assert training_bytes(scenario, 64) == 4 * (64 * (4 * outputs + 2 * 28 * 28) + weights * 4 * 2)


def test_catdog_cnn_by_hand():
    # 64x64x3 -> conv 62x62x32 -> pool 31x31x32 -> conv 29x29x32 -> pool 14x14x32 -> 6272 -> 128 -> 1
    scenario = CATALOG["catdog-cnn"][""]
    first = 2 * 62 * 62 * 32 * (3 * 3 * 3)  # 6,642,432
    second = 2 * 29 * 29 * 32 * (3 * 3 * 32)  # 15,501,312
    dense = 2 * 6272 * 128 + 2 * 128 * 1  # 1,605,632 + 256
    assert forward_flops(scenario) == first + second + dense == 23_749_632
    assert training_flops(scenario) == 2 * first + 3 * (second + dense) == 64_606_464

    outputs = 62 * 62 * 32 + 31 * 31 * 32 + 29 * 29 * 32 + 14 * 14 * 32 + 128 + 1
    weights = (3 * 3 * 3 * 32 + 32) + (3 * 3 * 32 * 32 + 32) + (6272 * 128 + 128) + (128 + 1)
    assert training_bytes(scenario, 32) == 4 * (32 * (4 * outputs + 2 * 64 * 64 * 3) + weights * 4 * 2)


def net(layers, units=2, image=(12, 10, 3)):
    return Scenario(
        name="net",
        title="",
        dataset="mnist",
        image=image,
        layers=(*layers, Flatten(), Dense(units, activation="linear")),
        loss="binary" if units == 1 else "categorical",
        optimizer=Sgd(),
        batch=1,
        epochs=1,
    )


@given(st.integers(1, 5), st.integers(1, 4), st.integers(1, 3), st.integers(5, 9))
def test_a_network_of_ones_counts_its_multiply_adds(filters, kernel, channels, height):
    """With weights and inputs of 1, each output is its number of products. The last layer, also of ones, adds them."""
    scenario = net([Conv(filters, kernel, activation="linear")], units=1, image=(height, 6, channels))
    ones = {p.name: np.full(p.shape, float(p.name.endswith("kernel")), np.float32) for p in parameters(scenario)}
    (products,) = reference.forward(scenario, ones, np.ones((1, height, 6, channels), np.float32))[0]
    summed = filters * (height - kernel + 1) * (6 - kernel + 1)
    assert forward_flops(scenario) == 2 * (products + summed)


def test_operations_on_padding_count():
    valid, same = (net([Conv(4, 3, padding=padding)], units=1) for padding in ("valid", "same"))
    assert forward_flops(valid) == 2 * (10 * 8 * 4 * 27 + 10 * 8 * 4)
    assert forward_flops(same) == 2 * (12 * 10 * 4 * 27 + 12 * 10 * 4)


@given(st.lists(st.sampled_from([Conv(4), Conv(3, 2, "same"), MaxPool(), Dropout(0.5)]), max_size=3), st.data())
def test_relations_that_hold_for_every_network(layers, data):
    scenario = net(layers, image=(32, 30, 3))
    forward, training = forward_flops(scenario), training_flops(scenario)
    assert 2 * forward <= training < 3 * forward
    place = data.draw(st.integers(0, len(layers)))
    dropped = net([*layers[:place], Dropout(0.3), *layers[place:]], image=(32, 30, 3))
    assert (forward_flops(dropped), training_flops(dropped)) == (forward, training)
    few, more, most = (training_bytes(scenario, batch) for batch in (1, 2, 3))
    assert 0 < few < more
    assert more - few == most - more  # apart from the weights, proportional to the batch
    assert training_bytes(dropped, 7) == training_bytes(scenario, 7)
    weights = sum(int(np.prod(p.shape)) for p in parameters(scenario))
    for optimizer in (Adam(), Adadelta()):
        assert training_bytes(replace(scenario, optimizer=optimizer), 1) - few == 4 * 2 * 2 * weights


@pytest.mark.parametrize("scenario", ALL, ids=lambda s: s.label)
def test_every_scenario_has_a_count(scenario):
    assert training_flops(scenario) >= 2 * forward_flops(scenario) > 0
    assert training_bytes(scenario, scenario.batch) > 4 * sum(int(np.prod(p.shape)) for p in parameters(scenario))
