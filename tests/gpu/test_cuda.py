"""CUDA cells for real, in the packages that this machine's `python3` already has, as on a cluster."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kit.environments import interpreters
from kit.host import gpus
from kit.planning import catalog

FRAMEWORKS = catalog.frameworks()
SCENARIOS = catalog.scenarios()

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module", autouse=True)
def gpu() -> None:
    """A GPU, or a skip that says why not."""
    if absent := gpus.absence():
        pytest.skip(absent)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_cuda_cells_of_a_framework_that_is_installed_are_ok(framework: str, tmp_path: Path) -> None:
    wanted = (*FRAMEWORKS[framework].modules, *interpreters.NEEDED)
    if missing := interpreters.probe(interpreters.find("system"), wanted).missing:
        pytest.skip(f"python3 lacks {', '.join(missing)}")
    command = ("run", "--framework", framework, "--device", "cuda", "--engine", "local", "--env", "system")
    options = ("--profile", "smoke", "--data", "synthetic", "--out", str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-m", "kit", *command, *options], text=True, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    records = [json.loads(path.read_text()) for path in tmp_path.glob("*/records/*.json")]
    assert len(records) == len(SCENARIOS)
    for record in records:
        assert record["status"] == "ok", record["reason"]
        placement = record["result"]["evidence"]["placement"]
        assert (placement["device"].split(":")[0], placement["tf32"]) == ("cuda", False)  # cuda or cuda:0
