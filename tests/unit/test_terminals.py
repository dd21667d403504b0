"""Test that a run survives the loss of its terminal and of its output, with real pseudo-terminals and a fake engine."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from kit.storage.run_folder import RunFolder
from tests.command import RUN

ROOT = Path(__file__).parents[2]

# `kit` with a fake engine. Its second launch waits until the test has made the file "go".
PROGRAM = """
import sys, time
from pathlib import Path
from kit.cli import main
from kit.engines import registry
from kit.execution import campaign
from kit.host import machine_lock, pip_config
from kit.planning import catalog
from tests import fakes
from tests.campaigns import FRAMEWORKS
from tests.command import NO_GPU

def wait_in_the_second_launch(request, folder):
    if len(engine.launched) == 1:
        Path("waiting").touch()
        while not Path("go").exists():
            time.sleep(0.01)
    return fakes.works(request, folder)

engine = fakes.FakeEngine(wait_in_the_second_launch, refused=NO_GPU)
registry.choose = lambda *arguments: (engine, "Using the fake engine.")
pip_config.read = lambda environment: {}  # pip starts slowly
machine_lock.PATH = Path("lock")
campaign.measure_load = lambda seconds: None  # other programs may run now
catalog.frameworks = lambda: FRAMEWORKS
sys.argv[0] = "kit"
main()
"""
KIT = (sys.executable, "-c", PROGRAM)


class Terminal:
    """A pseudo-terminal. `window` shows its output, as that of a terminal program or of `sshd`."""

    def __init__(self) -> None:
        self.window, self.device = pty.openpty()
        os.set_blocking(self.window, False)
        self.is_open = True

    def show(self) -> None:
        """Read the output, so that the terminal accepts more."""
        with suppress(BlockingIOError):
            os.read(self.window, 1 << 16)

    def close(self) -> None:
        """Close the window. The kernel sends SIGHUP to the session whose terminal this is. Its output fails then."""
        if self.is_open:
            os.close(self.window)
            os.close(self.device)
            self.is_open = False


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    made = Terminal()
    yield made
    made.close()


class Run:
    """A run that waits in its second launch until `finish`."""

    def __init__(self, folder: Path, command: Sequence[str], terminal: Terminal | None = None, **options) -> None:
        """Start it. options: of Popen. Without a terminal, the output goes to a file."""
        self.folder = folder
        variables = {"PYTHONPATH": str(ROOT), "KIT_CACHE_DIR": "cache", "KIT_DATA_DIR": "data", "TERM": "xterm"}
        with open(folder / "output", "w") as file:
            streams = dict.fromkeys(("stdin", "stdout", "stderr"), terminal.device) if terminal else {"stdout": file}
            self.process = subprocess.Popen(command, cwd=folder, env=os.environ | variables, **streams | options)
        while not (folder / "waiting").exists():
            assert self.process.poll() is None, (folder / "output").read_text()
            if terminal:
                terminal.show()
            time.sleep(0.01)

    def finish(self) -> int:
        """Let the run continue. Return its exit code."""
        (self.folder / "go").touch()
        return self.process.wait()

    def records(self) -> int:
        (folder,) = (self.folder / "reports").glob("*/")
        return len(RunFolder.open(folder).records())

    def log(self) -> list[str]:
        """Return the lines of the log of the run, without their times."""
        (file,) = (self.folder / "reports").glob("*/run.log")
        lines = file.read_text().splitlines()
        assert all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00 ", line) for line in lines)
        return [line.partition(" ")[2] for line in lines]


def in_foreground(terminal: Terminal) -> dict[str, object]:
    """Return options of Popen that make the process the leader of the terminal's session, as a shell does."""
    return {"start_new_session": True, "preexec_fn": lambda: fcntl.ioctl(terminal.device, termios.TIOCSCTTY, 0)}


@pytest.fixture(autouse=True)
def _hangup() -> Iterator[None]:
    """Let SIGHUP have its default effect in the runs, also if these tests themselves run under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def test_nohup_lets_a_run_survive_the_end_of_its_terminal(tmp_path, terminal):
    run = Run(tmp_path, ("nohup", *KIT, *RUN), terminal, **in_foreground(terminal))
    terminal.close()
    run.process.send_signal(signal.SIGHUP)
    assert run.finish() == 0
    assert run.records() == 6


@pytest.mark.parametrize("new_session", [True, False], ids=["setsid", "same session"])
def test_a_run_survives_the_end_of_a_terminal_that_does_not_control_it(tmp_path, terminal, new_session):
    run = Run(tmp_path, (*KIT, *RUN), terminal, start_new_session=new_session)
    terminal.close()
    assert run.finish() == 0
    assert run.records() == 6
    assert run.log()[0].endswith("the fake engine")
    assert sum("images/s" in line for line in run.log()) == 3
    assert re.fullmatch(r"Report: reports/.*/index\.html", run.log()[-1])


def test_the_end_of_the_terminal_stops_a_run_in_the_foreground_in_good_order(tmp_path, terminal):
    run = Run(tmp_path, (*KIT, *RUN), terminal, **in_foreground(terminal))
    terminal.close()
    assert run.finish() == 130
    assert run.records() < 6
    message = " ".join(run.log()[-2:])
    command = re.search(r"Continue with `kit (run --resume reports/\S+)`", message)
    assert command, message
    resumed = Run(tmp_path, (*KIT, *command[1].split()))
    assert resumed.finish() == 0
    assert resumed.records() == 6
    assert message in " ".join(resumed.log()[:-1]), "the resumed run continues the log"
    assert resumed.log()[-1].startswith("Report: ")


def test_a_run_whose_messages_have_no_disk_space_finishes(tmp_path):
    with open("/dev/full", "w") as full:
        run = Run(tmp_path, (*KIT, *RUN), stderr=full)
    assert run.finish() == 0
    assert run.records() == 6


def test_a_run_in_the_background_of_a_script_ignores_sigint(tmp_path):
    run = Run(tmp_path, ("sh", "-c", 'trap "" INT; exec "$0" "$@"', *KIT, *RUN))
    run.process.send_signal(signal.SIGINT)
    assert run.finish() == 0
    assert run.records() == 6
