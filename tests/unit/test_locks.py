"""Test the machine lock: only one run may measure at a time."""

from __future__ import annotations

import errno
import os
import subprocess
import sys

import pytest

from kit.host import machine_lock
from kit.model.errors import DiskError, EngineError
from tests import fakes, faults
from tests.campaigns import ONE, execute, new_run
from tests.command import RUN, Called, Kit

pytestmark = pytest.mark.usefixtures("machine")

HOLD = """
import sys
from pathlib import Path
from kit.host import machine_lock
machine_lock.PATH = Path(sys.argv[1])
with machine_lock.measuring("other-run"):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def other_process():
    """Start another process that measures on this machine."""
    command = [sys.executable, "-c", HOLD, str(machine_lock.PATH)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_second_run_is_refused_until_the_first_has_ended(tmp_path, other_process):
    folder, engine = new_run(tmp_path / "run"), fakes.FakeEngine()
    with pytest.raises(EngineError, match=rf"other-run \(process {other_process.pid}\)"):
        execute(folder, engine)
    assert engine.calls == []
    assert machine_lock.is_alive("other-run")
    assert not machine_lock.is_alive("r1")
    other_process.kill()
    other_process.wait()
    assert not machine_lock.is_alive("other-run")
    assert len(execute(folder, engine)) == 6


def test_unexpected_content_of_the_lock_file_is_not_shown(other_process):
    machine_lock.PATH.write_bytes(b"\x1b]0;evil\x07 \xff")
    with pytest.raises(EngineError, match=r"\? \(process \?\)"), machine_lock.measuring("r1"):
        pass
    assert machine_lock.is_alive("r1")  # it may be this run, so its containers must stay


def test_a_link_or_a_pipe_instead_of_the_lock_file_is_an_error(tmp_path):
    target = tmp_path / "target"
    target.write_text("precious")
    machine_lock.PATH.symlink_to(target)
    with pytest.raises(EngineError, match="lock"), machine_lock.measuring("r1"):
        pass
    assert target.read_text() == "precious"
    machine_lock.PATH.unlink()
    os.mkfifo(machine_lock.PATH)
    with pytest.raises(EngineError, match="not a plain file"), machine_lock.measuring("r1"):
        pass


@pytest.mark.parametrize("function", ["os.open", "os.fstat", "fcntl.flock", "os.truncate", "os.pwrite"])
def test_a_lock_on_a_full_disk_is_a_disk_error_that_names_it(function):
    full = OSError(errno.ENOSPC, "No space left on device")
    expected = pytest.raises(DiskError, match=str(machine_lock.PATH))
    with expected, faults.at(1, full, (function,)), machine_lock.measuring("r1"):
        pass
    with machine_lock.measuring("r1"):
        pass


def test_every_user_may_take_the_lock():
    before = os.umask(0o077)
    try:
        with machine_lock.measuring("r1"):
            assert machine_lock.PATH.stat().st_mode & 0o777 == 0o666
    finally:
        os.umask(before)


@pytest.mark.parametrize("command", [("build",), ("clean", "--images"), (*RUN, "--framework", "torch")])
def test_a_command_during_a_build_is_refused_with_the_name_of_the_build(kit: Kit, engine, monkeypatch, command):
    monkeypatch.setattr("kit.engines.registry.entries", list)  # `kit clean` must not remove the images of this machine
    refused = list[Called]()

    def call_another(name):
        if name.startswith("prepare") and not refused:
            refused.append(kit(*command))

    engine.on_call = call_another
    assert kit("build").code == 0
    (called,) = refused
    assert (called.code, called.out) == (EngineError.exit_code, "")
    assert called.err.endswith(
        f"Another kit process is using this machine: `kit build` (process {os.getpid()}). Two at the same time would "
        f"slow each other down.\nWait until it ends, or stop it (kill {os.getpid()}), then try again.\n"
    )
    assert kit("build").code == 0


def test_a_refused_resume_writes_nothing_to_the_log_of_the_run(kit: Kit, engine, tmp_path):
    folder = new_run(tmp_path / "run", ONE, profile="smoke", data="synthetic")
    resume = ("run", "--resume", str(folder.path))
    with machine_lock.measuring("20261120-110210-ab12"):
        refused = kit(*resume)
    assert (refused.code, "run 20261120-110210-ab12" in refused.err) == (EngineError.exit_code, True)
    assert "Left to measure" not in refused.err
    assert not (folder.path / "run.log").exists()
    assert kit(*resume).code == 0
    assert "Left to measure" in (folder.path / "run.log").read_text()
