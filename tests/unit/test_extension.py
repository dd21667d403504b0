"""How to add a scenario and a framework: drop the files of `tests/example` into the folders; nothing else changes.

And the worker itself, run for real on that example: its adapter is NumPy, which the tests' own interpreter has.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scenarios.contract.reasons import Code, Status
from tests.workers import copy_assets, request_of, work

KIT = [sys.executable, "-m", "kit"]


@pytest.fixture(scope="module")
def assets(tmp_path_factory) -> Path:
    """The folders `docker` and `scenarios` with the example's files added."""
    folder: Path = tmp_path_factory.mktemp("assets")
    copy_assets(folder)
    return folder


@pytest.fixture
def kit(assets, tmp_path):
    """Call the command line with those folders; returns the finished process."""

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        variables = {**os.environ, "KIT_ASSETS": str(assets), "KIT_CACHE_DIR": str(tmp_path / "cache")}
        return subprocess.run(
            [*KIT, *arguments], env=variables, cwd=tmp_path, capture_output=True, text=True, check=False
        )

    return call


RUN = (
    "run",
    "--scenario",
    "tiny-cnn",
    "--framework",
    "plain",
    "--device",
    "cpu",
    "--engine",
    "local",
    "--env",
    sys.executable,
)


def test_added_files_are_found_planned_and_run_to_a_report(kit, tmp_path):
    listed = json.loads(kit("list", "--json").stdout)
    assert "tiny-cnn" in json.dumps(listed["scenarios"])
    assert "plain" in json.dumps(listed["frameworks"])

    done = kit(*RUN, "--data", "synthetic", "--profile", "smoke", "--out", str(tmp_path / "out"))
    assert done.returncode == 0, done.stdout + done.stderr
    (record_file,) = (tmp_path / "out").glob("*/records/*.json")
    record = json.loads(record_file.read_text())
    assert record["status"] == "ok"
    assert record["result"]["proof"]["passed"]
    assert record["result"]["training"]["steps"] == 20
    assert record["result"]["evidence"]["data_kind"] == "synthetic"
    assert "tiny-cnn" in (record_file.parents[1] / "index.html").read_text()


def test_the_worker_tells_its_phases_and_reports_whole_epochs(assets, tmp_path):
    request_of(assets, tmp_path, budget={"epochs": 1, "test_images": 500})
    result = work(assets, tmp_path)
    assert result.status is Status.OK
    assert result.missing() == []
    assert result.training
    assert result.training.epochs[0].images == 60_000
    assert result.training.epochs[0].test_accuracy > 0.9  # the synthetic set can be learned
    assert not result.training.projected
    phases = [json.loads(line)["phase"] for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert phases == ["import", "data", "proof", "build", "training", "inference", "step_timing"]
    assert result.step_timing
    assert [steps.batch for steps in result.step_timing.resident] == [8, 16, 32]


@pytest.mark.parametrize(
    ("changes", "status", "code"),
    [
        ({"spec": "0" * 64}, Status.FAILED, Code.SPEC_MISMATCH),
        ({"scenario": "gone"}, Status.FAILED, Code.SPEC_MISMATCH),
        ({"device": "cuda"}, Status.WRONG_DEVICE, Code.WRONG_DEVICE),
        ({"precision": "bf16"}, Status.SKIPPED, Code.NOT_OFFERED),
        ({"settings": {"threads": "1"}}, Status.SKIPPED, Code.NOT_OFFERED),  # in the stock lane
        ({"lane": "tuned", "settings": {"pace": "fast"}}, Status.SKIPPED, Code.NOT_OFFERED),
        ({"data": "real"}, Status.FAILED, Code.DATA_UNAVAILABLE),
        ({"environment": {"KIT_TEST_VARIABLE": "1"}}, Status.FAILED, Code.MISSING_PROOF),
        ({"framework": "nowhere"}, Status.FAILED, Code.WORKER_ERROR),
    ],
)
def test_what_stops_a_launch_is_a_result_with_its_reason(assets, tmp_path, changes, status, code):
    request_of(assets, tmp_path, **changes)
    result = work(assets, tmp_path)
    assert result.status is status
    assert result.reason
    assert result.reason.code is code
    assert result.reason.remedy
    assert result.training is None


def test_an_adapter_that_computes_something_else_shows_no_speed(assets, tmp_path):
    broken = tmp_path / "broken"
    shutil.copytree(assets, broken)
    module = broken / "scenarios/frameworks/plain/adapter.py"
    module.write_text(
        module.read_text()
        + "\n\nPlainModel.logits = lambda self, images, right=PlainModel.logits: 1.01 * right(self, images)\n"
    )
    request_of(assets, tmp_path)
    result = work(broken, tmp_path)
    assert (result.status, result.reason and result.reason.code) == (Status.FAILED, Code.REFERENCE_MISMATCH)
    assert result.proof
    assert not result.proof.passed
    assert result.training is None
