"""The tuner imports the framework and then forks. A fork has none of the threads that the import started."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from toys import named_adapter

from scenarios.tuning.forked_trials import SERVER_VARIABLES

# What the fork server does before its forks, in the same order. It needs no GPU, also with packages for CUDA.
PROGRAM = """
import sys
from scenarios import catalog
from scenarios.adapter import Options
from scenarios.prepare import load_adapter
from scenarios.tuning.fork_server import require_no_threads

adapter = load_adapter(sys.argv[1])
for variants in catalog.load().values():
    adapter.axes(Options(device=sys.argv[2]), variants[""])
require_no_threads()
"""


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_neither_the_import_nor_the_settings_start_a_thread(device: str) -> None:
    command = [sys.executable, "-P", "-c", PROGRAM, named_adapter().name, device]
    finished = subprocess.run(command, env=os.environ | SERVER_VARIABLES, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
