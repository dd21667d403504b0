"""Photos are predicted through the worker: one file of weights gives the same probabilities in all frameworks.

First all frameworks export the weights that they trained, with their predictions. Then all import those of the others.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from test_exchange import TOLERANCE
from toys import noise

from scenarios import spec, worker
from scenarios.adapter import Adapter
from scenarios.catalog.catdog_cnn import SCENARIO
from scenarios.contract.cell import Cell
from scenarios.contract.reasons import Code
from scenarios.contract.request import (
    MODEL_FILE,
    PICTURES,
    THUMBNAILS,
    WEIGHTS_FILE,
    Budget,
    Purpose,
    Request,
    picture_name,
)
from scenarios.contract.result import Result
from scenarios.data import synthetic
from scenarios.spec import DATASETS
from scenarios.weights import digest, initial_weights
from scenarios.weights_file import About, read, write
from tests.pictures import FAULTY, make_faulty, make_unusual

PHOTOS = 200
STEPS = 20


@pytest.fixture
def photos(tmp_path: Path) -> list[Path]:
    """Return photos that the networks do not train on. KIT_TEST_PHOTOS names a folder of real ones."""
    folder = os.environ.get("KIT_TEST_PHOTOS")
    if not folder:
        folder = str(tmp_path / "photos")
        synthetic.write_photos(DATASETS[SCENARIO.dataset], Path(folder), PHOTOS)
    found = sorted(Path(folder).rglob("*.jpg"), key=lambda path: path.name)[:PHOTOS]
    assert len(found) == PHOTOS
    return found


def request_of(adapter: Adapter, purpose: Purpose, weights: Path, pictures: int = 0) -> Request:
    device: Any = os.environ.get("KIT_TEST_DEVICE", "cpu")
    cell = Cell(SCENARIO.name, "", adapter.name, device, 1, "stock", "fp32", SCENARIO.batch)
    kept: dict[str, Any] = {"pictures": pictures, "weights_digest": read(weights)[1].digest}
    return Request(cell, 1, spec.digest(SCENARIO), 0, 1, "synthetic", Budget(), purpose, **kept)


def launch(request: Request, io: Path) -> Result:
    """Run the worker as a launch does."""
    result = worker.run(request, io, None)
    if result.reason is None:
        result.check_against(request)
    return result


def predict(adapter: Adapter, weights: Path, pictures: list[Path], io: Path) -> Result:
    (io / PICTURES).mkdir(parents=True)
    (io / WEIGHTS_FILE).symlink_to(weights)
    for index, picture in enumerate(pictures):
        (io / PICTURES / picture_name(index)).symlink_to(picture)
    return launch(request_of(adapter, "predict", weights, len(pictures)), io)


def dogs(result: Result) -> npt.NDArray[np.float64]:
    assert result.predictions
    return np.array([prediction.probabilities[1] for prediction in result.predictions])


def trained(adapter: Adapter, path: Path) -> Path:
    """Write the weights after a few steps in this framework. They tell bright images from dark ones."""
    model = adapter.build(SCENARIO, initial_weights(SCENARIO, 0))
    for seed in range(STEPS):
        images, labels = noise(SCENARIO, SCENARIO.batch, seed)
        model.step((images + labels.reshape(-1, 1, 1, 1).astype("f4")) / 2, labels)
    weights = model.weights()
    write(path, weights, About(SCENARIO.label, spec.digest(SCENARIO), adapter.name, 1, digest(weights)))
    return path


def test_exchange_export_predictions(adapter: Adapter, photos: list[Path], exchange: Path, tmp_path: Path) -> None:
    weights = trained(adapter, exchange / f"{adapter.name}.safetensors")
    found = dogs(predict(adapter, weights, photos, tmp_path / "io"))
    assert np.ptp(found) > 0.5, "the photos differ"
    (exchange / f"{adapter.name}.json").write_text(json.dumps(found.tolist()))


def test_exchange_import_predictions(adapter: Adapter, photos: list[Path], exchange: Path, tmp_path: Path) -> None:
    others = sorted(file for file in exchange.glob("*.safetensors") if file.stem != adapter.name)
    if not others:
        pytest.skip(f"{exchange} has no weights of other frameworks yet")
    for file in others:
        expected = np.array(json.loads(file.with_suffix(".json").read_text()))
        found = dogs(predict(adapter, file, photos, tmp_path / file.stem))
        assert np.abs(found - expected).max() <= TOLERANCE, file.stem


def test_unusual_pictures_are_predicted_and_faulty_ones_named(adapter: Adapter, tmp_path: Path) -> None:
    good, bad = make_unusual(tmp_path), make_faulty(tmp_path)
    result = predict(adapter, trained(adapter, tmp_path / "own.safetensors"), [*bad, *good], tmp_path / "io")
    assert result.predictions
    for path, prediction in zip([*bad, *good], result.predictions, strict=True):
        assert prediction.fault.startswith(FAULTY.get(path.name, ""))
        assert bool(prediction.fault) == (path in bad)
        if path in good:
            assert sum(prediction.probabilities) == pytest.approx(1)
    assert len(list((tmp_path / "io" / THUMBNAILS).iterdir())) == len(good)


def test_weights_without_meaning_are_refused(adapter: Adapter, tmp_path: Path) -> None:
    file = trained(adapter, tmp_path / "own.safetensors")
    weights, about = read(file, SCENARIO)
    broken = {name: value * np.float32(np.nan) for name, value in weights.items()}
    write(file, broken, About(about.scenario, about.spec, about.framework, 1, digest(broken)))
    reason = predict(adapter, file, make_unusual(tmp_path)[:1], tmp_path / "io").reason
    assert reason
    assert reason.code is Code.INVALID_WEIGHTS


def test_the_worker_writes_an_onnx_model_in_the_framework_that_can(adapter: Adapter, tmp_path: Path) -> None:
    weights = trained(adapter, tmp_path / WEIGHTS_FILE)
    result = launch(request_of(adapter, "export", weights), tmp_path)
    if adapter.name != "onnxruntime":
        assert result.reason
        assert result.reason.code is Code.NOT_OFFERED
        assert not (tmp_path / MODEL_FILE).exists()
        return
    model = (tmp_path / MODEL_FILE).read_bytes()
    assert result.model_digest == hashlib.sha256(model).hexdigest()
    assert b"probabilities" in model
    assert read(weights)[1].digest.encode() in model, "its metadata name the weights"
