"""Test `kit predict` from the command line to the adapter: the real worker, with the example scenario and framework."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.pictures import FAULTY, make_faulty, make_unusual
from tests.workers import HERE, ROOT, SMOKE, copy_assets, copy_of_kit

NAMES = [str(digit) for digit in range(10)]
WRITE = """
import sys
from pathlib import Path
from scenarios import catalog
from tests.kept import write_weights
write_weights(Path(sys.argv[1]), catalog.load()["tiny-cnn"][sys.argv[2]], "plain")
"""


@pytest.fixture(scope="module")
def assets(tmp_path_factory) -> Path:
    folder: Path = tmp_path_factory.mktemp("assets")
    copy_assets(folder)
    return folder


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    folder: Path = tmp_path_factory.mktemp("place")
    return folder


@pytest.fixture(scope="module")
def kit(assets, place):
    return copy_of_kit(assets, place)


@pytest.fixture(scope="module")
def run(kit, place) -> Path:
    """Return a run of the example. Its weights come from `keep`."""
    finished = kit("run", *SMOKE)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    (record,) = (place / "reports").glob("*/records/*.json")
    folder: Path = record.parents[1]
    (folder / "weights").mkdir(exist_ok=True)
    return folder


@pytest.fixture
def keep(assets, run):
    """Write weights of this variant of the example as those of the run, and return the file."""
    (record,) = (run / "records").glob("*.json")

    def call(variant: str = "") -> Path:
        file = run / "weights" / f"{record.stem}__last.safetensors"
        variables = {**os.environ, "PYTHONPATH": os.pathsep.join([str(assets), str(ROOT)])}
        subprocess.run([sys.executable, "-c", WRITE, str(file), variant], env=variables, cwd=run, check=True)
        return file

    return call


def test_unusual_pictures_are_predicted_and_faulty_files_are_named(kit, keep, run, tmp_path):
    keep()
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
    ("variant", "change", "message"),
    [
        ("", lambda content: content[:-100], "is truncated or not a safetensors file"),
        ("", lambda content: content[:-1] + bytes([content[-1] ^ 1]), "was altered"),
        ("", lambda content: b"cos\nsystem\n(S'false'\ntR.", "is truncated or not a safetensors file"),
        ("large-batch", lambda content: content, "was trained for tiny-cnn+large-batch"),
    ],
    ids=["truncated", "altered", "pickle", "other specification"],
)
def test_weights_that_do_not_fit_are_refused(kit, keep, run, tmp_path, variant, change, message):
    file = keep(variant)
    file.write_bytes(change(file.read_bytes()))
    called = kit("predict", str(run), "--scenario", "tiny-cnn", *HERE, *map(str, make_unusual(tmp_path)[:1]))
    assert called.returncode == 2, called.stderr
    assert f"NumPy predicted nothing. {file} {message}" in called.stdout
