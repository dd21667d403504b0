"""Test whole runs from the command line, in containers with the real frameworks."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

from kit.engines.docker import RUN_LABEL
from kit.environments.images import BUILD_CONTAINER, IMAGE_LABEL

ROOT = Path(__file__).parents[2]
SMOKE = ("--profile", "smoke", "--data", "synthetic", "--engine", "docker")
ONE_CELL = ("--scenario", "mnist-cnn", "--framework", "onnxruntime", "--device", "cpu")
NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}  # these tests are about machines without one
TIMEOUT_S = 900

pytestmark = pytest.mark.slow


def kit(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command and return the finished process."""
    return subprocess.run(
        [sys.executable, "-m", "kit", *arguments],
        env={**os.environ, **NO_GPU, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )


def start(*arguments: str, **variables: str) -> subprocess.Popen[str]:
    """Start a command in the background, so that a test can send it signals."""
    return subprocess.Popen(
        [sys.executable, "-m", "kit", *arguments],
        env={**os.environ, **NO_GPU, **variables},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def example_assets(folder: Path) -> Path:
    """Copy the folders `docker` and `scenarios`, with the example's framework `plain`."""
    for source in (ROOT, ROOT / "tests/example"):
        for name in ("docker", "scenarios"):
            shutil.copytree(source / name, folder / name, dirs_exist_ok=True)
    return folder


def records(out: Path) -> dict[str, dict[str, Any]]:
    """Return the records of the only run below `out` by file name."""
    return {path.name: json.loads(path.read_text()) for path in sorted(out.glob("*/records/*.json"))}


def report(out: Path) -> str:
    """Return the HTML of the only run below `out`."""
    (page,) = out.glob("*/index.html")
    return page.read_text()


@pytest.fixture(autouse=True)
def no_container_left(client: docker.APIClient) -> Iterator[None]:
    yield
    assert not client.containers(all=True, filters={"label": RUN_LABEL})


def test_every_stock_cell_is_ok_on_the_cpu_and_skipped_without_a_gpu(tmp_path):
    finished = kit("run", "--all", *SMOKE, "--out", str(tmp_path))
    found = records(tmp_path)
    failures = {str(r["cell"]): r["reason"] for r in found.values() if r["status"] not in ("ok", "skipped")}
    assert finished.returncode == 0, f"{finished.stderr}{failures}"
    assert Counter((r["cell"]["device"], r["status"]) for r in found.values()) == {
        ("cpu", "ok"): 18,
        ("cuda", "skipped"): 18,
    }
    assert {r["reason"]["code"] for r in found.values() if r["status"] == "skipped"} == {"no_device"}
    for record in found.values():
        if record["status"] == "ok":
            assert record["image"]["digest"].startswith("sha256:")
            assert record["result"]["proof"]["passed"]
            assert record["result"]["evidence"]["data_kind"] == "synthetic"
    assert "synthetic data" in report(tmp_path)


@pytest.mark.parametrize(
    ("option", "status", "code"),
    [
        (("--memory", "100m"), "out_of_memory", "memory_limit"),
        (("--timeout", "1s", "--batch", "8192"), "timeout", "deadline"),  # the training alone needs 2,600 GFLOP
    ],
)
def test_a_launch_that_hits_a_limit_is_recorded_and_reported(tmp_path, option, status, code):
    finished = kit("run", *ONE_CELL, *SMOKE, *option, "--out", str(tmp_path))
    assert finished.returncode == 1
    (record,) = records(tmp_path).values()
    assert (record["status"], record["reason"]["code"], record["result"]) == (status, code, None)
    assert record["reason"]["remedy"] in report(tmp_path)


def test_requested_cuda_without_a_gpu_is_an_error_before_anything_runs(tmp_path):
    finished = kit("run", *ONE_CELL[:-1], "cuda", *SMOKE, "--out", str(tmp_path))
    assert finished.returncode == 3
    assert "GPU" in finished.stderr
    assert not records(tmp_path)


def test_exit_code_0_without_a_result_breaks_the_contract(tmp_path):
    assets = example_assets(tmp_path / "assets")
    (assets / "scenarios/frameworks/plain/adapter.py").write_text("import os\nos._exit(0)\n")
    selection = ("--scenario", "mnist-cnn", "--framework", "plain", "--device", "cpu")
    finished = kit("run", *selection, *SMOKE, "--out", str(tmp_path / "out"), KIT_ASSETS=str(assets))
    assert finished.returncode == 1, finished.stderr
    (record,) = records(tmp_path / "out").values()
    assert (record["status"], record["reason"]["code"]) == ("broken_contract", "no_result")


def test_an_interrupt_during_a_build_ends_the_run_in_good_order_and_leaves_no_password(tmp_path, client):
    assets = example_assets(tmp_path / "assets")
    (assets / "docker/plain/cpu.lock").write_text(f"kit-missing==1 --hash=sha256:{'0' * 64}\n")  # pip asks the index
    selection = ("--scenario", "mnist-cnn", "--framework", "plain", "--device", "cpu")
    sources = {"KIT_ASSETS": str(assets), "KIT_INDEX_URL": "http://bob:secret@mirror.invalid/simple"}
    process = start("run", *selection, *SMOKE, "--out", str(tmp_path / "out"), **sources)
    deadline = time.monotonic() + TIMEOUT_S
    while not (found := client.containers(filters={"name": BUILD_CONTAINER, "status": "running"})):
        assert process.poll() is None, "the run ended before it could be interrupted"
        assert time.monotonic() < deadline
        time.sleep(0.05)
    inspected = client.inspect_container(found[0]["Id"])
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert "run --resume" in stderr
    assert "secret" not in stderr + json.dumps(inspected)
    assert not client.containers(all=True, filters={"name": BUILD_CONTAINER})
    assert not client.images(filters={"dangling": True, "label": IMAGE_LABEL})
    assert records(tmp_path / "out") == {}


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_resume_completes_an_interrupted_run_and_no_container_is_left(tmp_path, client, signal_number):
    selection = ("--study", "mnist-cpu-vs-gpu", "--framework", "onnxruntime", "--framework", "torch")
    process = start("run", *selection, *SMOKE, "--out", str(tmp_path))
    deadline = time.monotonic() + TIMEOUT_S
    # wait until the first record exists and the container of the second launch runs
    while not (any("cpu" in name for name in records(tmp_path)) and client.containers(filters={"label": RUN_LABEL})):
        assert process.poll() is None, "the run ended before it could be interrupted"
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal_number)
    process.communicate(timeout=60)
    assert process.returncode == (-signal.SIGKILL if signal_number == signal.SIGKILL else 130)
    before = records(tmp_path)
    assert "docker was not cleaned" not in kit("clean").stderr  # Podman may be installed and not running
    assert not client.containers(all=True, filters={"label": RUN_LABEL})

    (folder,) = tmp_path.glob("*/")
    finished = kit("run", "--resume", str(folder))
    assert finished.returncode == 0, finished.stderr
    after = records(tmp_path)
    assert sorted(after) == [
        f"mnist-cnn__{framework}__{device}__stock__fp32__b64__001.json"
        for framework in ("onnxruntime", "torch")
        for device in ("cpu", "cuda")
    ]
    assert {name: after[name] for name in before} == before
    assert {r["status"] for r in after.values() if r["cell"]["device"] == "cpu"} == {"ok"}
    assert 'id="study-mnist-cpu-vs-gpu"' in report(tmp_path)
