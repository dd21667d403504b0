"""One measuring run a machine, whoever starts it: two would measure each other.

The lock is an flock(2) on one file in /tmp, which the kernel releases when the process ends, however it ends. The
file stays and holds the run id and process id of its holder, for messages and to tell living runs from dead ones.
/tmp because it is the one folder that every user of the machine can write and that does not depend on the user
(TMPDIR may). The file is opened without following links, must be a plain file, and its content is shown only where
it is a run id and a number: a file that somebody planted there can hold the lock, but do no more.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kit.model.errors import EngineError

PATH = Path("/tmp/kit-measuring.lock")  # noqa: S108 - see the module's text
PATIENCE_S = 1.0  # a glance by `is_alive` holds the lock for a moment; it must not look like a run
HOLDER = re.compile(r"([\w.-]{1,100}) ([0-9]{1,10})\n")


@dataclass(frozen=True)
class Holder:
    """Who measures. run and pid are "?" where the file does not say."""

    run: str
    pid: str


@contextmanager
def measuring(run: str) -> Iterator[None]:
    """Hold the machine's lock for the run of this id. Raises EngineError where another run holds it."""
    descriptor = _open()
    try:
        if not _acquire(descriptor, PATIENCE_S):
            holder = _holder(descriptor)
            raise EngineError(
                f"Another run is measuring on this machine: {holder.run} (process {holder.pid}). "
                "Two at a time would slow each other down.",
                f"Wait for it to end, or stop it (kill {holder.pid}), then start this again.",
            )
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, f"{run} {os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def is_alive(run: str) -> bool:
    """Whether the run of this id is measuring now, in this process or another one."""
    descriptor = _open()
    try:
        if _acquire(descriptor, patience_s=0):
            return False
        return _holder(descriptor).run in {run, "?"}  # somebody unknown: rather leave his containers alone
    finally:
        os.close(descriptor)


def _open() -> int:
    """The lock file, made where it is not there yet. Raises EngineError where something else is in its place.

    Two steps, because the kernel may refuse O_CREAT on another user's file in a sticky folder (fs.protected_regular).
    """
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK
    remedy = f"Remove {PATH} and try again."
    try:
        try:
            descriptor = os.open(PATH, flags | os.O_CREAT | os.O_EXCL, 0o666)
            os.fchmod(descriptor, 0o666)  # whatever the umask says: other users must be able to take the lock
        except FileExistsError:
            descriptor = os.open(PATH, flags)
    except OSError as error:
        raise EngineError(f"The machine's lock cannot be opened: {error}.", remedy) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise EngineError(f"The machine's lock {PATH} is not a plain file.", remedy)
    return descriptor


def _acquire(descriptor: int, patience_s: float) -> bool:
    give_up_at = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= give_up_at:
                return False
            time.sleep(0.05)
        else:
            return True


def _holder(descriptor: int) -> Holder:
    found = HOLDER.fullmatch(os.pread(descriptor, 200, 0).decode("ascii", errors="replace"))
    return Holder(found[1], found[2]) if found else Holder("?", "?")
