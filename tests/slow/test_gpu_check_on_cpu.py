"""Run the whole check of a GPU machine, with the CPU in the place of the GPU."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path


def test_the_check_of_a_gpu_machine_passes_on_the_cpu(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.gpu_check", "--device", "cpu", "--out", str(tmp_path / "check")]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    page = (tmp_path / "check/page.txt").read_text()
    assert page in finished.stdout
    assert page.splitlines()[-1].endswith(" passed, 0 failed, 1 skipped"), page  # ONNX Runtime has no bf16 on the CPU
    with tarfile.open(tmp_path / "check.tar.gz") as archive:
        names = archive.getnames()
    assert "check/page.txt" in names
    assert [name for name in names if name.startswith("check/stock-cells-torch/") and "/records/" in name]
