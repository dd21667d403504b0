"""Kill real trainings with signal 9 in the middle of an epoch, resume them, and compare them with whole ones.

The network has dropout, and its photos are augmented, so a resumed training is only equal if it draws the same random
numbers. The test needs the machine's lock: it fails while another run measures.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from scenarios.weights_file import read

ROOT = Path(__file__).parents[2]
EPOCHS = 6
OPTIONS = (
    *("--scenario", "catdog-cnn", "--variant", "conv-dropout", "--device", "cpu", "--data", "synthetic"),
    *("--profile", "full", "--epochs", str(EPOCHS), "--engine", "local"),
)
CHECKPOINT = "*/work/*/io/epochs/checkpoint-*.safetensors"
POLL_S = 0.02
OTHER_SEEDS = (1, 2)
CURVES = ("train_loss", "train_accuracy", "test_loss", "test_accuracy")


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "kit", "run", *arguments]


def run(*arguments: str) -> None:
    finished = subprocess.run(command(*arguments), cwd=ROOT, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stdout + finished.stderr


def run_whole(out: Path, framework: str, seed: int = 0) -> Path:
    """Return the folder of a run that was not interrupted."""
    run(*OPTIONS, "--framework", framework, "--seed", str(seed), "--out", str(out))
    return only(out, "*/plan.json").parent


def only(folder: Path, pattern: str) -> Path:
    (path,) = folder.glob(pattern)
    return path


def training(folder: Path) -> dict[str, Any]:
    record = json.loads(only(folder, "records/*.json").read_text())
    assert record["status"] == "ok", record["reason"]
    found: dict[str, Any] = record["result"]["training"]
    return found


def curves(folder: Path) -> list[list[float]]:
    return [[epoch[name] for name in CURVES] for epoch in training(folder)["epochs"]]


def weights(folder: Path) -> tuple[str, np.ndarray[Any, np.dtype[np.float32]]]:
    """Return the digest of the last weights, and all of them in one row."""
    found, about = read(only(folder, "weights/*__last.safetensors"))
    assert about.epoch == EPOCHS
    return about.digest, np.concatenate([value.ravel() for value in found.values()])


def checkpoints(out: Path) -> list[int]:
    """Return the epochs of the checkpoints that the running launch has written."""
    return sorted(int(path.stem.split("-")[1]) for path in out.glob(CHECKPOINT))


def worker_of(process: subprocess.Popen[bytes]) -> psutil.Process:
    for child in psutil.Process(process.pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if "scenarios.worker" in child.cmdline():
                return child
    raise AssertionError("no worker runs")


def cpu_s(worker: psutil.Process) -> float:
    """Return the CPU time of a process with its children, also of those that have ended."""
    seconds = 0.0
    for process in (worker, *worker.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            seconds += sum(process.cpu_times()[:4])
    return seconds


def wait_for_the_middle_of_an_epoch(process: subprocess.Popen[bytes], out: Path) -> psutil.Process:
    """Wait until the worker has computed half an epoch since a checkpoint, the second one or a later one.

    Half an epoch is half the CPU time between two checkpoints, so this does not depend on the speed of the machine.
    Return the worker.
    """
    newest, seen = 0, list[float]()  # CPU times at new checkpoints
    while True:
        assert process.poll() is None, "kit ended before the training was in the middle of an epoch"
        if found := checkpoints(out):
            worker = worker_of(process)
            now = cpu_s(worker)
            if found[-1] != newest:
                newest = found[-1]
                seen.append(now)
            if len(seen) > 1 and now - seen[-1] >= (seen[-1] - seen[-2]) / 2:
                return worker
        time.sleep(POLL_S)


def kill_and_resume(out: Path, framework: str) -> tuple[Path, int]:
    """Kill a run and its worker, and resume the run. Return its folder, and the epoch of its newest checkpoint."""
    with subprocess.Popen(
        command(*OPTIONS, "--framework", framework, "--out", str(out)),
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        worker = wait_for_the_middle_of_an_epoch(process, out)
        process.kill()
        with suppress(psutil.NoSuchProcess):  # it dies with kit
            worker.kill()
        process.wait()
        psutil.wait_procs([worker])
    folder, newest = only(out, "*/plan.json").parent, checkpoints(out)[-1]
    assert 2 <= newest < EPOCHS
    assert not list(folder.glob("records/*"))
    run("--resume", str(folder))
    assert not [*folder.glob("checkpoints/*"), *folder.glob("work/*")]
    return folder, newest


@pytest.mark.parametrize("framework", ["onnxruntime", "tensorflow", "torch"])
def test_a_killed_training_continues_from_its_last_checkpoint_and_ends_like_a_whole_one(
    framework: str, tmp_path: Path
) -> None:
    whole = run_whole(tmp_path / "whole", framework)
    resumed, newest = kill_and_resume(tmp_path / "killed", framework)
    found, expected = training(resumed), training(whole)
    assert (found["resumed_from"], found["ignored_checkpoints"]) == ([newest], [])
    assert [epoch["index"] for epoch in found["epochs"]] == list(range(1, EPOCHS + 1))
    assert found["steps"] == expected["steps"]
    if framework != "tensorflow":
        assert curves(resumed) == curves(whole)
        assert weights(resumed)[0] == weights(whole)[0]
        return
    # TensorFlow sums gradients in another order each time, so not even two whole trainings are equal.
    others = [run_whole(tmp_path / str(seed), framework, seed) for seed in OTHER_SEEDS]
    last = np.array([curves(folder)[-1] for folder in (whole, *others)])
    spread = np.ptp(last, axis=0)
    assert np.all(np.array(curves(resumed)[-1]) >= last.min(axis=0) - spread), (curves(resumed)[-1], last)
    assert np.all(np.array(curves(resumed)[-1]) <= last.max(axis=0) + spread), (curves(resumed)[-1], last)
    own = weights(whole)[1]
    moved, apart = (np.linalg.norm(weights(folder)[1] - own) for folder in (resumed, others[0]))
    assert moved < apart / 10, "it is nearer to the training with its seed than to that with another one"
