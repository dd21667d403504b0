"""Keep two machines that share a disk from measuring the same run. `kit.host.machine_lock` covers one machine only.

The lock is an flock(2) on a file in the folder of the run. The kernel releases it when the process ends, and passes it
through network file systems that support it. The file stays.
"""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kit.model.errors import EngineError, UsageError
from kit.storage.files import disk_errors

LOCK_FILE = "run.lock"
NO_LOCKS = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS}  # errors of file systems without locks


@contextmanager
def held(run: Path) -> Iterator[None]:
    """Hold the lock of the run in this folder. On a file system without locks, do nothing.

    Raise EngineError if another process holds it, UsageError if it is a link or a folder, and DiskError if the file
    cannot be opened.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK  # the folder may come from a stranger
    if (run / LOCK_FILE).is_symlink() or (run / LOCK_FILE).is_dir():
        raise UsageError(f"{run / LOCK_FILE} is a link or a folder.", "Remove it.")
    with disk_errors(run / LOCK_FILE):
        descriptor = os.open(run / LOCK_FILE, flags, 0o666)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise EngineError(
                f"Another process, perhaps on another machine, is measuring the run in {run}.",
                "Wait until it ends, or stop it there.",
            ) from error
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
        yield
    finally:
        os.close(descriptor)
