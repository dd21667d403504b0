"""Test CUDA cells on a real GPU, with the packages that `python3` of this machine has, for example on a cluster."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kit.environments import interpreters
from kit.host import gpus
from kit.planning import catalog
from tests.cuda_builds import built_with_cuda

FRAMEWORKS = catalog.frameworks()
SCENARIOS = catalog.scenarios()

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module", autouse=True)
def gpu() -> None:
    """Skip the tests with the reason if no GPU is available."""
    if absence := gpus.absence():
        pytest.skip(absence)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_cuda_cells_of_an_installed_framework_are_ok(framework: str, tmp_path: Path) -> None:
    modules = (*FRAMEWORKS[framework].modules, *interpreters.NEEDED)
    if missing := interpreters.probe(interpreters.find("system"), modules).missing:
        pytest.skip(f"python3 lacks {', '.join(missing)}")
    if not built_with_cuda(framework, interpreters.find("system")):
        pytest.skip(f"python3 has a build of {framework} without CUDA")
    command = ("run", "--framework", framework, "--device", "cuda", "--engine", "local", "--env", "system")
    options = ("--profile", "smoke", "--data", "synthetic", "--out", str(tmp_path))
    finished = subprocess.run(
        [sys.executable, "-m", "kit", *command, *options], text=True, capture_output=True, check=False
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    records = [json.loads(path.read_text()) for path in tmp_path.glob("*/records/*.json")]
    assert len(records) == len(SCENARIOS)
    for record in records:
        assert record["status"] == "ok", record["reason"]
        placement = record["result"]["evidence"]["placement"]
        assert (placement["device"].split(":")[0], placement["tf32"]) == ("cuda", False)  # cuda or cuda:0
