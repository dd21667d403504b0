"""Test files of trained weights: what is written is read back, and nothing else is."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import save_file

from scenarios import spec
from scenarios.catalog import cifar_mlp, mnist_cnn
from scenarios.contract.request import MAX_WEIGHTS_BYTES
from scenarios.weights import digest, initial_weights
from scenarios.weights_file import FORMAT, About, WeightsError, read, write

SCENARIO = mnist_cnn.SCENARIO
WEIGHTS = initial_weights(SCENARIO, seed=1)
ABOUT = About(SCENARIO.label, spec.digest(SCENARIO), "torch", 12, digest(WEIGHTS))
METADATA = {"format": FORMAT, "scenario": "mnist-cnn", "spec": ABOUT.spec, "framework": "torch", "epoch": "12"}
SMALL = {"0/kernel": np.ones((2, 2), np.float32)}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "kept.safetensors"


def test_weights_are_read_back_in_the_order_of_the_network(path):
    write(path, WEIGHTS, ABOUT)
    weights, about = read(path, SCENARIO)
    assert about == ABOUT
    assert list(weights) == [p.name for p in spec.parameters(SCENARIO)]
    for name, value in WEIGHTS.items():
        np.testing.assert_array_equal(weights[name], value)
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    transposed = {name: np.asfortranarray(value) for name, value in WEIGHTS.items()}
    write(path, transposed, ABOUT)
    assert digest(read(path)[0]) == ABOUT.digest
    deep = {f"{layer}/{kind}": np.zeros(2, np.float32) for layer in (2, 10) for kind in ("kernel", "bias")}
    write(path, deep, replace(ABOUT, digest=digest(deep)))
    assert list(read(path)[0]) == list(deep)  # layer 10 is after layer 2


def test_a_file_that_was_truncated_or_altered_is_refused(path):
    write(path, WEIGHTS, ABOUT)
    content = path.read_bytes()
    for length in (0, 7, 100, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:length])
        with pytest.raises(WeightsError, match=r"kept\.safetensors is truncated"):
            read(path)
    path.write_bytes(content[:-2] + bytes([content[-2] ^ 1]) + content[-1:])
    with pytest.raises(WeightsError, match="was altered"):
        read(path)


@pytest.mark.parametrize(
    ("tensors", "metadata", "reason"),
    [
        (SMALL, {}, "its format is missing, not kit-weights-1"),
        (SMALL, METADATA | {"format": "pt"}, "its format is pt"),
        (SMALL, METADATA, "lacks digest in its metadata"),
        (SMALL, METADATA | {"digest": "0", "epoch": "x"}, "epoch .* is not a number: 'x'"),
        (SMALL, METADATA | {"digest": "0"}, "was altered"),
        ({"a": SMALL["0/kernel"]}, METADATA | {"digest": "0"}, "'a' is not <layer>/kernel"),
        ({"0/gamma": SMALL["0/kernel"]}, METADATA | {"digest": "0"}, "'0/gamma' is not <layer>/kernel"),
        ({"0/bias": np.ones(2)}, METADATA | {"digest": "0"}, "must hold float32, but 0/bias is float64"),
    ],
)
def test_a_file_of_somebody_else_is_refused(path, tensors, metadata, reason):
    save_file(tensors, path, metadata)
    with pytest.raises(WeightsError, match=reason):
        read(path)


def test_weights_of_another_network_or_specification_are_refused(path):
    write(path, WEIGHTS, ABOUT)
    with pytest.raises(WeightsError, match=r"does not fit cifar-mlp: .* has shape .*, expected"):
        read(path, cifar_mlp.SCENARIO)
    with pytest.raises(WeightsError, match="trained for mnist-cnn, with another specification than mnist-cnn"):
        read(path, replace(SCENARIO, epochs=99))
    write(path, dict(list(WEIGHTS.items())[:-1]), ABOUT)
    with pytest.raises(WeightsError, match=r"has shape none, expected \(10,\)"):
        read(path, SCENARIO)


def test_a_type_that_numpy_lacks_a_pipe_and_a_missing_file_are_clear_errors(path):
    header = b'{"0/bias":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]}}'
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"\0\0")
    with pytest.raises(WeightsError):
        read(path)
    with path.open("wb") as file:
        file.truncate(MAX_WEIGHTS_BYTES + 1)
    with pytest.raises(WeightsError, match="is larger than 4 GiB"):
        read(path)
    path.unlink()
    with pytest.raises(FileNotFoundError, match=path.name):
        read(path)
    os.mkfifo(path)
    with pytest.raises(WeightsError, match="not a plain file"):
        read(path)
