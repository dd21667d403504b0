"""Train in containers, then predict pictures and export a model from the kept weights, also in containers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
from PIL import Image

from scenarios.data import synthetic
from scenarios.spec import DATASETS

ROOT = Path(__file__).parents[2]
NETWORK = ("--scenario", "fashion-mlp")
TRAINING = (
    *(*NETWORK, "--batch", "512", "--device", "cpu", "--data", "synthetic"),
    *("--profile", "full", "--epochs", "1", "--engine", "docker"),
)
FRAMEWORKS = {"onnxruntime", "tensorflow", "torch"}
PICTURES = 20
LEARNED = 18  # of these pictures; by chance, 2 are right
WEIGHTS_BYTES = 4 * (784 * 500 + 500 + 4 * (500 * 500 + 500) + 500 * 10 + 10)


def kit(*arguments: str) -> str:
    """Run a command, and return its output."""
    command = [sys.executable, "-m", "kit", *arguments]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


def write_pictures(folder: Path) -> dict[str, str]:
    """Write pictures of the synthetic test set. Return the name of each one's class by its path."""
    dataset = DATASETS["fashion-mnist"]
    images, labels = synthetic.images(dataset)["test"]
    found = {}
    for index in range(PICTURES):
        path = folder / f"{index}.png"
        Image.fromarray(np.squeeze(images[index])).save(path)
        found[str(path)] = dataset.classes[labels[index]]
    return found


def test_weights_that_were_trained_in_containers_predict_and_are_exported_there(tmp_path: Path) -> None:
    kit("run", *TRAINING, "--out", str(tmp_path / "out"))
    (plan,) = (tmp_path / "out").glob("*/plan.json")
    run, labels = str(plan.parent), write_pictures(tmp_path)
    found = json.loads(kit("predict", run, *NETWORK, "--engine", "docker", "--json", *labels))
    assert found["weights"].keys() == FRAMEWORKS
    for framework in FRAMEWORKS:
        answers = [picture["predictions"][framework]["class"] for picture in found["pictures"]]
        right = sum(answer == label for answer, label in zip(answers, labels.values(), strict=True))
        assert right >= LEARNED, framework
    model = tmp_path / "model.onnx"
    kit("weights", "export", run, "fashion-mlp/torch/cpu/stock/fp32/b512", "--engine", "docker", "--onnx", str(model))
    assert model.stat().st_size > WEIGHTS_BYTES
