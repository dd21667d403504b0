"""Predict the classes of pictures with trained weights, or write a trained network as an ONNX model.

The orchestrator puts the weights and the pictures into the scratch folder of the launch. Nothing is measured.
"""

import hashlib
import importlib.util
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from scenarios import weights_file
from scenarios.adapter import Model, NotOffered
from scenarios.contract.codec import write_bytes
from scenarios.contract.predictions import Prediction
from scenarios.contract.reasons import Code
from scenarios.contract.request import MODEL_FILE, PICTURES, THUMBNAILS, WEIGHTS_FILE, picture_name
from scenarios.data.pictures import UnreadablePicture, make_thumbnail, read_picture, to_pixels
from scenarios.data.readers import Bytes
from scenarios.launch import Launch
from scenarios.prepare import Refused, find_scenario, start_adapter
from scenarios.proof.reference import probabilities
from scenarios.spec import Scenario
from scenarios.weights import Weights
from scenarios.weights_file import About


def predict_launch(launch: Launch) -> None:
    """Predict the classes of all pictures. Raise Refused and whatever the framework raises.

    A picture that cannot be read has a fault instead of probabilities. Each other one also gets a thumbnail.
    """
    request = launch.request
    scenario = find_scenario(request)
    weights, _ = _weights(launch, scenario)
    with launch.phase("import"):
        adapter = start_adapter(request)
    with launch.phase("build"):
        model = adapter.build(scenario, weights)
    (launch.io / THUMBNAILS).mkdir(exist_ok=True)
    with launch.phase("prediction"):
        names = [picture_name(index) for index in range(request.pictures)]
        found = [
            prediction
            for start in range(0, len(names), scenario.inference_batch)
            for prediction in _predict(model, scenario, launch.io, names[start : start + scenario.inference_batch])
        ]
    launch.draft = replace(launch.draft, predictions=found)


def export_launch(launch: Launch) -> None:
    """Write the network with its weights as an ONNX model. Raise Refused or NotOffered.

    A framework that writes ONNX has a module `export.py` with `export(scenario, weights, about)`.
    """
    framework = launch.request.cell.framework
    scenario = find_scenario(launch.request)
    weights, about = _weights(launch, scenario)
    name = f"scenarios.frameworks.{framework}.export"
    if importlib.util.find_spec(name) is None:
        raise NotOffered(f"{framework} does not write ONNX models.")
    metadata = {key: str(value) for key, value in asdict(about).items()}
    with launch.phase("export"):
        model: bytes = importlib.import_module(name).export(scenario, weights, metadata)
        write_bytes(launch.io / MODEL_FILE, model)
    launch.draft = replace(launch.draft, model_digest=hashlib.sha256(model).hexdigest())


def _weights(launch: Launch, scenario: Scenario) -> tuple[Weights, About]:
    """Return the weights of the launch and what their file says about them. Raise Refused if they are not valid."""
    try:
        weights, about = weights_file.read(launch.io / WEIGHTS_FILE, scenario)
    except weights_file.WeightsError as error:
        raise Refused(Code.INVALID_WEIGHTS, str(error)) from error
    if about.digest != launch.request.weights_digest:
        raise Refused(Code.INVALID_WEIGHTS, f"{WEIGHTS_FILE} does not hold the weights that the launch kept.")
    return weights, about


def _predict(model: Model, scenario: Scenario, io: Path, names: Sequence[str]) -> Iterator[Prediction]:
    """Yield the prediction for each of these pictures. They are one batch."""
    read = [_read(io / PICTURES / name, scenario, io / THUMBNAILS / name) for name in names]
    readable = [pixels for pixels in read if not isinstance(pixels, str)]
    found: Iterator[list[float]] = iter(())
    if readable:
        images = np.divide(np.stack(readable), np.float32(255), dtype=np.float32)
        logits = model.logits(images)
        if not np.isfinite(logits).all():
            raise Refused(Code.INVALID_WEIGHTS, f"With the weights of {WEIGHTS_FILE}, the output is not a number.")
        found = iter(probabilities(scenario, logits).clip(0, 1).tolist())
    for pixels in read:
        yield Prediction([], pixels) if isinstance(pixels, str) else Prediction(next(found))


def _read(path: Path, scenario: Scenario, thumbnail: Path) -> Bytes | str:
    """Return a picture as the network sees it, (H, W, C), and write its thumbnail. Return the fault if it has one.

    Raise OSError if the thumbnail cannot be written.
    """
    try:
        picture = read_picture(path)
        pixels, small = to_pixels(picture, scenario.image), make_thumbnail(picture)
    except UnreadablePicture as error:
        return str(error)
    except Exception as error:  # noqa: BLE001 - decoders raise more for damaged files than they document
        traceback.print_exc()
        return f"It cannot be read ({type(error).__name__})."
    thumbnail.write_bytes(small)
    return pixels
