"""Compare the whole output of commands on a terminal with committed texts. `KIT_UPDATE_GOLDEN=1` writes them again."""

from __future__ import annotations

import errno
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Sequence
from pathlib import Path

import pytest

from kit.model.plan import PlannedLaunch
from kit.model.record import Record
from kit.storage.run_folder import RunFolder
from scenarios.contract.reasons import Code, Status
from tests import examples
from tests.command import RUN
from tests.examples import cell, failed, record, request
from tests.unit.test_golden import GOLDEN, check
from tests.unit.test_terminals import PROGRAM

ROOT = Path(__file__).parents[2]
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")

# Images/s of TensorFlow, ONNX Runtime and PyTorch on the CPU.
SPEEDS = {
    ("mnist-cnn", ""): (6640.0, 4730.0, 3490.0),
    ("catdog-cnn", "conv-dropout"): (1070.0, 906.0, 578.0),
    ("cifar-mlp", ""): (1770.0, 1740.0, 928.0),
}
FRAMEWORKS = ("tensorflow", "onnxruntime", "torch")


def on_terminal(command: Sequence[str], folder: Path, columns: int = 80, **variables: str) -> str:
    """Run a command with stdout and stderr on a pseudo-terminal. Return its output with `\\n` as line break."""
    window, device = pty.openpty()
    fcntl.ioctl(device, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    own = {"PYTHONPATH": str(ROOT), "KIT_CACHE_DIR": "cache", "KIT_DATA_DIR": "data", "TERM": "xterm"} | variables
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    with subprocess.Popen(
        command, cwd=folder, env=environment | own, stdin=device, stdout=device, stderr=device, start_new_session=True
    ) as process:
        os.close(device)
        chunks = []
        try:
            while chunk := os.read(window, 1 << 16):
                chunks.append(chunk)
        except OSError as error:  # Linux reports the end of the other side as EIO
            if error.errno != errno.EIO:
                raise
        finally:
            os.close(window)
    text = b"".join(chunks).decode().replace("\r\n", "\n")
    assert process.returncode in (0, 1), text
    return text


def saved(folder: Path, records: Sequence[Record]) -> None:
    """Write the run reports/r1."""
    plan = examples.plan([PlannedLaunch(cell=r.cell, launch=r.launch, named=False) for r in records])
    made = RunFolder.create(folder / "reports/r1", plan, examples.machine())
    for each in records:
        made.save(each)


def measured(launches: int) -> list[Record]:
    """Launches on the CPU on synthetic data, and skipped ones on the GPU."""
    found = []
    for (scenario, variant), speeds in SPEEDS.items():
        for framework, speed in zip(FRAMEWORKS, speeds, strict=True):
            for number in range(1, launches + 1):
                asked = request(cell(scenario, framework, variant=variant), launch=number)
                found.append(record(asked, speed * (1 + 0.004 * (number % 3)), seconds=9.0))
                on_gpu = request(cell(scenario, framework, "cuda", variant), launch=number)
                found.append(
                    failed(on_gpu, Status.SKIPPED, Code.NO_DEVICE, "No NVIDIA GPU is visible.", Code.NO_DEVICE.remedy)
                )
    return found


def broken() -> list[Record]:
    """Launches of which none is ok."""
    wanted = [request(cell("mnist-cnn", framework)) for framework in FRAMEWORKS]
    message = "The image kit-torch:cpu-37fb4354fc3e cannot be built: no index answers."
    remedy = "Check the connection. Behind a proxy, set HTTP_PROXY and HTTPS_PROXY."
    return [
        failed(wanted[0], Status.OUT_OF_MEMORY, message="The launch needed more than 1 GiB.", remedy="Raise --memory."),
        failed(wanted[1], message=message, remedy=remedy, code=Code.IMAGE_FAILED),
        failed(wanted[2], message=message, remedy=remedy, code=Code.IMAGE_FAILED),
    ]


RUNS = {"single": measured(1), "three-launches": measured(3), "failed": broken()}


@pytest.mark.parametrize("name", RUNS)
def test_the_results_of_a_run_on_a_terminal(tmp_path: Path, name: str) -> None:
    saved(tmp_path, RUNS[name])
    text = on_terminal([sys.executable, "-m", "kit", "report", "reports/r1"], tmp_path)
    check(GOLDEN / f"terminal-{name}.txt", text)
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text


@pytest.mark.parametrize("columns", [60, 200])
def test_the_results_fit_other_terminals(tmp_path: Path, columns: int) -> None:
    saved(tmp_path, RUNS["single"])
    text = on_terminal([sys.executable, "-m", "kit", "report", "reports/r1"], tmp_path, columns)
    assert max(map(len, text.splitlines())) <= min(columns, 80)
    assert "catdog-cnn+conv-dropout" in text


def test_a_run_on_a_terminal_leaves_one_line_per_phase(tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    text = on_terminal([sys.executable, "-c", PROGRAM, *RUN], tmp_path, NO_COLOR="1")
    lines = [line.rstrip() for line in re.split(r"[\r\n]+", CONTROL.sub("", text))]
    kept = [line for line in lines if re.match(r"\w+ +[✓!] ", line)]
    assert kept == ["Data       ✓ synthetic, as requested", "Images     ✓ 3 built", kept[-1]]
    assert kept[-1].startswith("Measuring  ✓ 3 cells, 3 launches")
    assert "3 cells on the CPU, 1 launch each (smoke). 3 on the GPU are skipped." in lines
    (table,) = [line for line in lines if line.startswith("Training, images/s")]
    assert lines.index(kept[-1]) < lines.index(table)
    assert max(map(len, lines)) <= 80
    assert "[32m" not in text
