"""Test that the wheel is complete: it plans a run in a clean environment outside the checkout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import uv

ROOT = Path(__file__).parents[2]


def test_the_wheel_plans_a_run_in_a_clean_environment(tmp_path):
    def run(*command: str, **variables: str) -> str:
        inherited = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "KIT_ASSETS")}
        finished = subprocess.run(
            command, cwd=tmp_path, env={**inherited, **variables}, capture_output=True, text=True, check=False
        )
        assert finished.returncode == 0, finished.stderr
        return finished.stdout

    tool = uv.find_uv_bin()
    source = ("--wheel", "--no-build-isolation", "--python", sys.executable, str(ROOT))
    run(tool, "build", *source, "--out-dir", str(tmp_path))
    run(tool, "venv", "--python", sys.executable, "env")
    python = str(tmp_path / "env/bin/python")
    install = (tool, "pip", "install", "--python", python)
    run(*install, "--require-hashes", "--requirement", str(ROOT / "requirements.lock"))
    (wheel,) = tmp_path.glob("*.whl")
    run(*install, "--no-deps", str(wheel))

    plan = json.loads(run(str(tmp_path / "env/bin/kit"), "plan", "--all", "--json"))
    text = json.dumps(plan)
    for name in ("mnist-cnn/tensorflow/cpu", "catdog-cnn/onnxruntime/cuda", "cifar-mlp/torch/cpu"):
        assert name in text
    path = run(python, "-c", "import kit, scenarios.spec; print(scenarios.spec.__file__)")
    assert "_assets" in path
