"""Test stdout and stderr if they cannot be written: a closed pipe or terminal, a full disk, a stream that is closed."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from kit.cli import streams
from kit.cli.streams import Output


def closed_pipe() -> int:
    """Return the end for writing of a pipe that nobody reads any more, as after `head -1`."""
    reading, writing = os.pipe()
    os.close(reading)
    return writing


def closed_terminal() -> int:
    """Return a pseudo-terminal whose window is closed."""
    window, terminal = pty.openpty()
    os.close(window)
    return terminal


def full_disk() -> int:
    return os.open("/dev/full", os.O_WRONLY)


def broken_disk() -> int:
    """Return a file whose write fails with EIO, because nothing is mapped at address 0."""
    return os.open("/proc/self/mem", os.O_WRONLY)


@pytest.mark.parametrize("lost", [closed_pipe, closed_terminal])
@pytest.mark.parametrize("complete", [True, False])
def test_the_output_for_a_lost_reader_is_discarded(lost, complete):
    output = Output(lost(), complete=complete)
    with io.TextIOWrapper(io.BufferedWriter(output), line_buffering=True) as stream:
        assert [stream.write("a line\n") for _ in range(3)] == [7, 7, 7]
        assert output.write(b"more") == 4, "the caller must take it for written"


@pytest.mark.parametrize("broken", [full_disk, broken_disk])
def test_a_disk_that_fails_is_an_error_only_of_output_that_must_be_complete(broken):
    with io.BufferedWriter(Output(broken(), complete=False)) as stream:
        stream.write(b"progress")
    with io.BufferedWriter(Output(broken(), complete=True)) as stream:
        stream.write(b"result")
        with pytest.raises(OSError, match=r"No space left|Input/output error"):
            stream.flush()
        stream.write(b"more")  # what the buffer still holds is discarded, so closing it does not fail again


def test_output_waits_for_the_reader_of_a_non_blocking_pipe():
    reading, writing = os.pipe()
    os.set_blocking(writing, False)  # as another program may do to a shared terminal
    text = b"x" * (1 << 20)  # more than a pipe holds
    received: list[bytes] = []

    def read() -> None:
        with open(reading, "rb") as pipe:
            received.append(pipe.read())

    reader = threading.Thread(target=read)
    reader.start()
    with io.BufferedWriter(Output(writing, complete=True)) as stream:
        stream.write(text)
    os.close(writing)
    reader.join()
    assert received == [text]


def test_closed_streams_are_replaced_and_those_of_a_test_are_kept(monkeypatch):
    buffer = io.StringIO()
    monkeypatch.setattr(sys, "stdout", buffer)
    monkeypatch.setattr(sys, "stderr", None)
    streams.protect()
    assert sys.stdout is buffer
    assert Path(sys.stderr.name) == Path(os.devnull)
    sys.stderr.close()


def test_a_closed_stdin_is_replaced():
    program = "import os; from kit.cli import streams; streams.protect(); print(os.path.samefile(0, os.devnull))"
    done = subprocess.run(
        ["sh", "-c", 'exec "$0" -c "$1" <&-', sys.executable, program], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")
