"""Run a program that builds, and end it with all its processes if the build is interrupted."""

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from kit.model.errors import EngineError


@contextmanager
def running(
    command: Sequence[str],
    variables: Mapping[str, str],
    *,
    cwd: Path | None = None,
    stdin: IO[bytes] | int = subprocess.DEVNULL,
) -> Iterator[subprocess.Popen[str]]:
    """Start a program whose stdout and stderr are read together as text. Wait for its end.

    It leads a process group, which is killed if the block raises. Raise EngineError if the program cannot be started.
    """
    try:
        process = subprocess.Popen(
            command, cwd=cwd, env=variables, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace", start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise EngineError(
            f"{command[0]} cannot be run: {error.strerror or error}.",
            "Check its permissions and its file system, or use another --engine.",
        ) from error
    with process:
        try:
            yield process
        except BaseException:
            with suppress(ProcessLookupError):  # it has ended
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
