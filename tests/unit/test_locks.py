"""Test the machine lock: only one run may measure at a time."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from kit.host import machine_lock
from kit.model.errors import EngineError
from tests import fakes
from tests.campaigns import execute, new_run

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


def test_every_user_may_take_the_lock():
    before = os.umask(0o077)
    try:
        with machine_lock.measuring("r1"):
            assert machine_lock.PATH.stat().st_mode & 0o777 == 0o666
    finally:
        os.umask(before)
