"""Kill real trainings with signal 9 in the middle, resume them, and compare them with one that was never interrupted.

The network has dropout, and its photos are augmented, so a resumed training is only equal if it draws the same random
numbers.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from scenarios.weights_file import read

ROOT = Path(__file__).parents[2]
EPOCHS = 5
CELL = ("--scenario", "catdog-cnn", "--variant", "conv-dropout", "--device", "cpu", "--data", "synthetic")
FULL = ("--profile", "full", "--epochs", str(EPOCHS), "--engine", "local")
WAIT_S = 600.0


def kit(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "kit", "run", *arguments]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(kit(*arguments), cwd=ROOT, capture_output=True, text=True, check=False)


def only(paths: Any) -> Path:
    (path,) = paths
    return Path(path)


def record(out: Path, launch: int = 1) -> dict[str, Any]:
    path = only(out.glob(f"*/records/*__{launch:03d}.json"))
    document: dict[str, Any] = json.loads(path.read_text())
    assert document["status"] == "ok", document["reason"]
    return document


def last_weights(out: Path) -> Any:
    return read(only(out.glob("*/weights/*__last.safetensors")))


def kill_kit(process: subprocess.Popen[bytes]) -> None:
    process.kill()


def kill_worker(process: subprocess.Popen[bytes]) -> None:
    for child in psutil.Process(process.pid).children(recursive=True):
        if "scenarios.worker" in child.cmdline():
            child.send_signal(signal.SIGKILL)
            return
    raise AssertionError("no worker runs")


def interrupt(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGINT)


@pytest.fixture(scope="module", params=["onnxruntime", "tensorflow", "torch"])
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """Return a framework, and the folder of its run that was never interrupted."""
    out = tmp_path_factory.mktemp(request.param)
    finished = run(*CELL, "--framework", request.param, *FULL, "--out", str(out))
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return request.param, out


@pytest.mark.parametrize("stop", [kill_kit, kill_worker, interrupt], ids=lambda stop: stop.__name__)
def test_a_killed_training_is_resumed_and_ends_like_a_whole_one(
    whole: tuple[str, Path], stop: Callable[[subprocess.Popen[bytes]], None], tmp_path: Path
) -> None:
    framework, reference = whole
    arguments = kit(*CELL, "--framework", framework, *FULL, "--out", str(tmp_path))
    with subprocess.Popen(arguments, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        until = time.monotonic() + WAIT_S
        while not list(tmp_path.glob("*/work/*/io/epochs/checkpoint-00002.safetensors")):
            assert process.poll() is None, "kit ended before the second epoch"
            assert time.monotonic() < until
            time.sleep(0.05)
        stop(process)
        process.wait()
    again = ["--retry-failed"] if stop is kill_worker else []
    resumed = run("--resume", str(only(tmp_path.glob("*/plan.json")).parent), *again)
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    found, expected = record(tmp_path, 2 if again else 1), record(reference)
    training = found["result"]["training"]
    assert [epoch["index"] for epoch in training["epochs"]] == list(range(1, EPOCHS + 1))
    assert training["resumed_from"][0] >= 2
    assert training["steps"] == expected["result"]["training"]["steps"]
    assert not list(tmp_path.glob("*/checkpoints/*"))
    (weights, about), (whole_weights, whole_about) = last_weights(tmp_path), last_weights(reference)
    assert about.epoch == EPOCHS
    assert about.digest == found["result"]["evidence"]["final_weights_digest"]
    if framework == "tensorflow":  # sums gradients in another order each time
        moved = [np.linalg.norm(weights[name] - value) / np.linalg.norm(value) for name, value in whole_weights.items()]
        assert max(moved) < 0.05, moved
    else:
        assert about.digest == whole_about.digest
        losses = ([epoch["train_loss"] for epoch in each["result"]["training"]["epochs"]] for each in (found, expected))
        assert next(losses) == next(losses)
