"""The tuner imports the framework and then forks. A fork has none of the threads that the import started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from toys import named_adapter

from scenarios.tuning.forked_trials import SERVER_VARIABLES

PROGRAM = Path(__file__).parent / "start_without_threads.py"


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_neither_the_import_nor_the_settings_start_a_thread(device: str) -> None:
    command = [sys.executable, "-P", str(PROGRAM), named_adapter().name, device]
    finished = subprocess.run(command, env=os.environ | SERVER_VARIABLES, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
