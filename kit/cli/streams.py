"""Protect stdout and stderr, so that a command survives the loss of its terminal or of the program that reads it."""

from __future__ import annotations

import errno
import io
import os
import select
import stat
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class Output(io.FileIO):
    """Write to a file descriptor. After a failure, discard all output, also what the buffers above still hold.

    complete: raise the failure once, so that nobody takes a truncated file for a whole one. Only the loss of a reader
    is no failure: a closed pipe, for example that of `head -1`, or a closed terminal.
    """

    def __init__(self, descriptor: int, *, complete: bool) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self._complete = complete
        # EIO is a closed terminal, or a broken disk if the output goes to a file.
        terminal = stat.S_ISCHR(os.fstat(descriptor).st_mode)
        self._no_reader = {errno.EPIPE, errno.EIO} if terminal else {errno.EPIPE}
        self._failed = False

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            while not self._failed:
                written: int | None = super().write(data)
                if written is not None:
                    return written
                select.select([], [self], [])  # another program made the terminal or pipe non-blocking, and it is full
        except OSError as error:
            self._failed = True
            if self._complete and error.errno not in self._no_reader:
                error.filename = "The output"
                raise
        return memoryview(data).nbytes


def protect() -> None:
    """Let failing output or a closed stdin not stop this process. What cannot be written to stderr is discarded.

    On stdout, only the loss of the reader is ignored. Any other failure raises OSError.
    """
    try:
        os.fstat(0)
    except OSError:  # closed by the caller (`<&-`): no other file may get its number
        os.open(os.devnull, os.O_RDONLY)
    sys.stdout = _protected(sys.stdout, complete=True)
    sys.stderr = _protected(sys.stderr, complete=False)


def _protected(stream: TextIO | None, *, complete: bool) -> TextIO:
    if stream is None:  # closed by the caller (`>&-`)
        return open(os.devnull, "w", encoding="utf-8")
    try:
        output = Output(stream.fileno(), complete=complete)
    except io.UnsupportedOperation:  # not a file, for example in a test
        return stream
    return io.TextIOWrapper(
        io.BufferedWriter(output),
        encoding=stream.encoding,
        errors="replace",  # an ASCII terminal has no ±
        line_buffering=True,
    )
