"""Test `kit predict` from training to the prediction: the real worker, with the example scenario and framework."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from scenarios.weights import digest
from scenarios.weights_file import read, write
from tests.pictures import FAULTY, make_faulty, make_unusual
from tests.workers import HERE, SMOKE, copy_assets, copy_of_kit

NAMES = [str(digit) for digit in range(10)]


@pytest.fixture(scope="module")
def kit(tmp_path_factory):
    assets, place = tmp_path_factory.mktemp("assets"), tmp_path_factory.mktemp("place")
    copy_assets(assets)
    return copy_of_kit(assets, place)


@pytest.fixture(scope="module")
def run(kit, tmp_path_factory) -> Path:
    """Return a run that trained the example for one epoch."""
    out = tmp_path_factory.mktemp("reports")
    training = [("full" if word == "smoke" else word) for word in SMOKE]
    finished = kit("run", *training, "--epochs", "1", "--out", str(out))
    assert finished.returncode == 0, finished.stdout + finished.stderr
    (folder,) = out.glob("*/")
    return folder


@pytest.fixture
def weights(run):
    """Return the file of weights, which the test may change."""
    (file,) = (run / "weights").iterdir()
    content = file.read_bytes()
    yield file
    file.write_bytes(content)


def truncate(file):
    file.write_bytes(file.read_bytes()[:-100])


def exchange(file):
    found, about = read(file)
    other = {name: value + 1 for name, value in found.items()}
    write(file, other, replace(about, digest=digest(other)))


def specify(file):
    found, about = read(file)
    write(file, found, replace(about, scenario="tiny-cnn+large-batch", spec="0" * 64))


def test_unusual_pictures_are_predicted_and_faulty_files_are_named(kit, run, tmp_path):
    good, bad = make_unusual(tmp_path), make_faulty(tmp_path)
    called = kit("predict", str(run), "--scenario", "tiny-cnn", *HERE, *map(str, [*bad, *good]), "--json")
    assert called.returncode == 2, called.stderr
    found = json.loads(called.stdout)
    assert (found["classes"], found["failures"]) == (NAMES, {})
    pictures = {Path(each["picture"]).name: each for each in found["pictures"]}
    for name, fault in FAULTY.items():
        assert pictures[name]["fault"].startswith(fault)
        assert pictures[name]["predictions"] == {}
    chances = {}
    for path in good:
        answer = pictures[path.name]["predictions"]["plain"]
        chances[path.name] = list(answer["probabilities"].values())
        assert sum(chances[path.name]) == pytest.approx(1)
        assert answer["class"] == NAMES[int(np.argmax(chances[path.name]))]
    assert len({tuple(np.round(each, 6)) for each in chances.values()}) > 7, "the network sees the pictures"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (truncate, "is truncated or not a safetensors file"),
        (exchange, "does not hold the weights that the launch kept"),
        (specify, "was trained for tiny-cnn+large-batch, with another specification than tiny-cnn"),
    ],
)
def test_weights_that_do_not_fit_are_refused(kit, run, weights, tmp_path, change, message):
    change(weights)
    called = kit("predict", str(run), "--scenario", "tiny-cnn", *HERE, *map(str, make_unusual(tmp_path)[:1]))
    assert called.returncode == 2, called.stderr
    assert f"NumPy predicted nothing. {weights.name} {message}" in called.stdout
