"""Allow one run or build per machine, for all users: two at a time would slow each other down.

The lock is an flock(2) on one file in /tmp, which the kernel releases when the process ends. The file stays. It holds
the process id of the lock's holder, and its run id or the name of its command, for messages and to distinguish living
from dead runs. It is in /tmp because every user of the machine can write there, and because that folder does not depend
on the user (TMPDIR may). The file is opened without following links and must be a plain file. Its content is shown only
if it is a run id and a number. So a file that another user planted there can hold the lock, but nothing more.
"""

import errno
import fcntl
import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kit.model.errors import DiskError, EngineError
from scenarios.contract.disk import NO_SPACE

PATH = Path("/tmp/kit-measuring.lock")  # noqa: S108 - see the module's docstring
FULL_OR_BROKEN = {*NO_SPACE, errno.EIO}
PATIENCE_S = 1.0  # `is_alive` holds the lock for a moment, which must not look like a run
ANY_RUN = ""
COMMANDS = {"build", "clean", "predict", "weights"}  # kit's commands that hold the lock without a run
HOLDER = re.compile(r"([\w.-]{1,100}) ([0-9]{1,10})\n")


@dataclass(frozen=True)
class Holder:
    """The process that holds the lock. run: run id or name of a command. Both are "?" if the file does not contain
    them."""

    run: str
    pid: str

    def __str__(self) -> str:
        return f"{f'`kit {self.run}`' if self.run in COMMANDS else f'run {self.run}'} (process {self.pid})"


@contextmanager
def measuring(run: str) -> Iterator[None]:
    """Hold the machine's lock for the run of this id. Raise EngineError if another run holds it, and DiskError if the
    lock file cannot be written."""
    descriptor = _open()
    try:
        if not _acquire(descriptor, PATIENCE_S):
            holder = _holder(descriptor)
            raise EngineError(
                f"Another kit process is using this machine: {holder}. "
                "Two at the same time would slow each other down.",
                f"Wait until it ends, or stop it (kill {holder.pid}), then try again.",
            )
        with _errors():
            os.truncate(descriptor, 0)
            os.pwrite(descriptor, f"{run} {os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def is_alive(run: str) -> bool:
    """Return whether the run of this id, or with ANY_RUN any process, holds the lock, in this process or another."""
    descriptor = _open()
    try:
        if _acquire(descriptor, patience_s=0):
            return False
        # "?": it may be this run, so its containers must stay.
        return run == ANY_RUN or _holder(descriptor).run in {run, "?"}
    finally:
        os.close(descriptor)


def _open() -> int:
    """Open the lock file. Make it if it is missing. Raise EngineError if it is not a plain file or cannot be opened.

    This takes two steps: the kernel may refuse O_CREAT for another user's file in a sticky folder
    (fs.protected_regular).
    """
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK
    with _errors():
        try:
            descriptor = os.open(PATH, flags | os.O_CREAT | os.O_EXCL, 0o666)
            os.fchmod(descriptor, 0o666)  # despite the umask: other users must be able to take the lock
        except FileExistsError:
            descriptor = os.open(PATH, flags)
        plain = stat.S_ISREG(os.fstat(descriptor).st_mode)
    if not plain:
        os.close(descriptor)
        raise EngineError(f"The machine's lock {PATH} is not a plain file.", f"Remove {PATH} and try again.")
    return descriptor


def _acquire(descriptor: int, patience_s: float) -> bool:
    give_up_at = time.monotonic() + patience_s
    while True:
        try:
            with _errors():
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= give_up_at:
                return False
            time.sleep(0.05)
        else:
            return True


@contextmanager
def _errors() -> Iterator[None]:
    """Turn every OSError, except that the lock is held, into a DiskError, or an EngineError for another user's file."""
    try:
        yield
    except BlockingIOError:
        raise
    except OSError as error:
        message = f"The machine's lock {PATH} cannot be used: {error.strerror}."
        if error.errno in FULL_OR_BROKEN:
            raise DiskError(message, f"Free disk space in {PATH.parent}, or check its disk.") from error
        raise EngineError(message, f"Remove {PATH} and try again.") from error


def _holder(descriptor: int) -> Holder:
    found = HOLDER.fullmatch(os.pread(descriptor, 200, 0).decode("ascii", errors="replace"))
    return Holder(found[1], found[2]) if found else Holder("?", "?")
