"""The worker run for real, in the tests' own interpreter, on the example scenario and framework."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from scenarios.contract.codec import from_json
from scenarios.contract.request import RESULT_FILE
from scenarios.contract.result import Result

ROOT = Path(__file__).parents[1]


def copy_assets(folder: Path) -> None:
    """The folders `docker` and `scenarios` with the example's files added."""
    for source in (ROOT, ROOT / "tests/example"):
        for name in ("docker", "scenarios"):
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source / name, folder / name, dirs_exist_ok=True, ignore=ignored)


def request_of(assets: Path, io: Path, **changes: object) -> None:
    """Write a request for the example into `io`."""
    variables = {**os.environ, "PYTHONPATH": str(assets)}
    program = (
        "import json, sys; from scenarios import catalog, spec; s = catalog.load()['tiny-cnn'][''];"
        "print(json.dumps({'scenario': s.name, 'variant': '', 'spec': spec.digest(s), 'batch': s.batch}))"
    )
    command = [sys.executable, "-c", program]
    found = subprocess.run(command, env=variables, cwd=io, capture_output=True, text=True, check=True)
    fields: dict[str, object] = {
        "schema": 1,
        "key": "tiny-cnn/plain/cpu/stock/fp32/b32",
        "launch": 1,
        "framework": "plain",
        "device": "cpu",
        "devices": 1,
        "lane": "stock",
        "precision": "fp32",
        "seed": 0,
        "threads": 1,
        "data": "synthetic",
        "budget": {"steps": 3, "test_images": 20},
        **json.loads(found.stdout),
        **changes,
    }
    (io / "request.json").write_text(json.dumps(fields))


def work(assets: Path, io: Path, **variables: str) -> Result:
    """Run the worker as an engine would."""
    subprocess.run(
        [sys.executable, "-m", "scenarios.worker", str(io)],
        env={**os.environ, "PYTHONPATH": str(assets), **variables},
        cwd=io,
        check=True,
        capture_output=True,
    )
    return from_json(Result, (io / RESULT_FILE).read_bytes())
