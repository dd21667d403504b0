"""Run the real worker or a copy of kit on the example scenario and framework, with the interpreter of the tests."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from scenarios.contract.codec import from_json
from scenarios.contract.request import RESULT_FILE
from scenarios.contract.result import Result

ROOT = Path(__file__).parents[1]
HERE = ("--engine", "example", "--env", sys.executable)
SMOKE = (
    *("--scenario", "tiny-cnn", "--framework", "plain", "--device", "cpu", "--profile", "smoke", "--data", "synthetic"),
    *HERE,
)


def copy_assets(folder: Path) -> None:
    """Copy the folders `docker` and `scenarios`, and add the files of the example."""
    for source in (ROOT, ROOT / "tests/example"):
        for name in ("docker", "scenarios"):
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source / name, folder / name, dirs_exist_ok=True, ignore=ignored)


def request_of(assets: Path, io: Path, **changes: object) -> None:
    """Write a request for the example into `io`. changes: fields of the request or of its cell."""
    variables = {**os.environ, "PYTHONPATH": str(assets)}
    program = (
        "import json, sys; from scenarios import catalog, spec; s = catalog.load()['tiny-cnn'][''];"
        "print(json.dumps({'spec': spec.digest(s), 'batch': s.batch}))"
    )
    command = [sys.executable, "-c", program]
    finished = subprocess.run(command, env=variables, cwd=io, capture_output=True, text=True, check=True)
    scenario = json.loads(finished.stdout)
    cell: dict[str, object] = {
        "scenario": "tiny-cnn",
        "variant": "",
        "framework": "plain",
        "device": "cpu",
        "devices": 1,
        "lane": "stock",
        "precision": "fp32",
        "batch": scenario["batch"],
    }
    fields: dict[str, object] = {
        "schema": 1,
        "cell": cell | {name: value for name, value in changes.items() if name in cell},
        "launch": 1,
        "spec": scenario["spec"],
        "seed": 0,
        "threads": 1,
        "data": "synthetic",
        "budget": {"steps": 3, "test_images": 20},
        **{name: value for name, value in changes.items() if name not in cell},
    }
    (io / "request.json").write_text(json.dumps(fields))


def work(assets: Path, io: Path, **variables: str) -> Result:
    """Run the worker as an engine does. Return its result."""
    subprocess.run(
        [sys.executable, "-m", "scenarios.worker", str(io)],
        env={**os.environ, "PYTHONPATH": str(assets), **variables},
        cwd=io,
        check=True,
        capture_output=True,
    )
    return from_json(Result, (io / RESULT_FILE).read_bytes())


def copy_of_kit(assets: Path, folder: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Copy kit/ and add the example's modules. Return a function that calls its command line in `folder`."""
    ignored = shutil.ignore_patterns("__pycache__")
    for source in (ROOT, ROOT / "tests/example"):
        shutil.copytree(source / "kit", folder / "site/kit", dirs_exist_ok=True, ignore=ignored)
    lock = folder / "site/kit/host/machine_lock.py"  # its own lock: another run may measure on this machine now
    own = f"PATH = Path({str(folder / 'machine.lock')!r})"
    lock.write_text(re.sub(r"(?m)^PATH = .*$", own, lock.read_text()))

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        folders = {"KIT_ASSETS": assets, "KIT_CACHE_DIR": folder / "cache", "PYTHONPATH": folder / "site"}
        variables = {**os.environ, **{name: str(place) for name, place in folders.items()}}
        command = [sys.executable, "-m", "kit", *arguments]
        return subprocess.run(command, env=variables, cwd=folder, capture_output=True, text=True, check=False)

    return call
