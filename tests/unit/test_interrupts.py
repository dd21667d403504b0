"""Test Ctrl-C, SIGTERM and SIGHUP at any time of a command, and signals that the parent process ignores."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kit.execution.interrupts import interrupts

ROOT = Path(__file__).parents[2]


def send(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


def test_ignored_signals_stay_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interrupts.handled():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            send(signal.SIGHUP)
            assert not interrupts.pending()
            with pytest.raises(KeyboardInterrupt):
                send(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_an_inner_context_leaves_the_handling_to_the_outer_one():
    with interrupts.handled():
        with pytest.raises(KeyboardInterrupt), interrupts.handled():
            send(signal.SIGINT)
        send(signal.SIGINT)  # ignored, because the clean-up is running
        assert interrupts.pending()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_signal_during_a_destructor_is_not_lost():
    class Interrupted:
        def __del__(self) -> None:
            send(signal.SIGINT)

    def interrupt() -> None:
        with interrupts.handled():
            Interrupted()  # Python discards the exception of a destructor
            time.sleep(60)

    with pytest.raises(KeyboardInterrupt):
        interrupt()


# Sends itself a signal when it imports a module for the first time, or when the interpreter ends.
INTERRUPTED = """
import atexit, os, signal, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == moment:
            os.kill(os.getpid(), number)

moment, number, *arguments = sys.argv[1:]
number = int(number)
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Finder())
if moment == "exit":
    atexit.register(os.kill, os.getpid(), number)
sys.argv = ["kit", *arguments]
import kit.__main__
"""


def python(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    variables = os.environ | {"PYTHONPATH": str(ROOT), "KIT_CACHE_DIR": "cache", "KIT_DATA_DIR": "data"}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)


IMPORTS = {
    "typer": "list",
    "kit.cli.listing": "list",
    "kit.execution.workflow": "plan --all",
    "kit.engines.registry": "build",
    "kit.datasets.service": "data fetch mnist",
    "kit.doctor": "doctor",
}


@pytest.mark.parametrize(
    ("module", "command", "number"),
    [(*each, number) for each in IMPORTS.items() for number in (signal.SIGINT, signal.SIGTERM)]
    + [("kit.assets", "list", signal.SIGINT)],  # the first milliseconds have no handler for SIGTERM
)
def test_a_signal_during_the_imports_ends_with_one_line(tmp_path, module, command, number):
    ended = python("-c", INTERRUPTED, module, str(int(number)), *command.split(), folder=tmp_path)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "Interrupted.\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_after_the_command_changes_nothing(tmp_path, number):
    ended = python("-c", INTERRUPTED, "exit", str(int(number)), "--version", folder=tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")


# As a module of `python -m`: CPython then ends with SIGINT if a plain KeyboardInterrupt passed through `exec`.
EXEC = """
import os, signal
from kit.cli import commands, main

signal.signal(signal.SIGINT, signal.default_int_handler)
commands.app = lambda: exec("os.kill(os.getpid(), signal.SIGINT)")
main()
"""


def test_a_signal_inside_exec_keeps_the_exit_code(tmp_path):
    (tmp_path / "interrupted.py").write_text(EXEC)
    ended = python("-m", "interrupted", folder=tmp_path)
    assert (ended.returncode, ended.stderr) == (130, "Interrupted.\n")


# Gets a signal every half a millisecond, until it has ended.
PESTERED = """
import os, signal, time
from kit.cli import commands, main

def app():
    parent = os.getpid()
    if os.fork() == 0:
        while os.getppid() == parent:
            os.kill(parent, signal.SIGINT)
            time.sleep(0.0005)
        os._exit(0)
    time.sleep(60)

commands.app = app
main()
"""


def test_more_signals_while_python_ends_keep_the_exit_code(tmp_path):
    ended = python("-c", PESTERED, folder=tmp_path)
    assert (ended.returncode, ended.stderr) == (130, "Interrupted.\n")


# Builds with a fake engine that gets a signal, and another one during its clean-up.
BUILD = """
import os, signal, sys
from pathlib import Path
from kit.cli import main
from kit.engines import registry
from kit.host import machine_lock
from kit.planning import catalog
from tests import fakes
from tests.campaigns import FRAMEWORKS

def prepare(name):
    try:
        os.kill(os.getpid(), number)
    finally:
        os.kill(os.getpid(), signal.SIGINT)
        Path("cleaned").touch()

number = int(sys.argv[1])
signal.signal(signal.SIGINT, signal.default_int_handler)
machine_lock.PATH = Path("lock")
catalog.frameworks = lambda: FRAMEWORKS
registry.choose = lambda *arguments: (fakes.FakeEngine(on_call=prepare), "Using the fake engine.")
sys.argv = ["kit", "build"]
main()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_a_build_ends_it_in_good_order(tmp_path, number):
    ended = python("-c", BUILD, str(int(number)), folder=tmp_path)
    assert (ended.returncode, ended.stdout) == (130, "")
    first, *phase, last = ended.stderr.splitlines()
    assert (first, last) == ("Using the fake engine.", "Interrupted.")
    assert [line.partition(",")[0] for line in phase] == ["Images ...", "Images: ! stopped"]
    assert (tmp_path / "cleaned").exists()
