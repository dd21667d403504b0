"""Find processes by a variable in their environment, which every descendant inherits, and end them."""

import hashlib
import os
import platform
import stat
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

import psutil

from kit.host.limits import KILL_S
from kit.model.errors import EngineError

TERM_S = 2
POLL_S = 0.05


def marked(matches: Callable[[Mapping[str, str]], bool]) -> list[psutil.Process]:
    """Return this user's processes whose environment matched when they started, without this process."""
    found = []
    for process in psutil.process_iter():
        try:
            mine = process.pid != os.getpid() and process.uids().real == os.getuid()
            if mine and matches(process.environ()):
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):  # it has ended, or this user may not look at it
            continue
    return found


def identity(pid: int) -> str:
    """Return a name for a running process that no later process gets, even if its number is used again.

    It has a digest of the machine, because several machines may share a folder.
    """
    return f"{pid}@{_state_and_start(pid)[1]}@{_machine()}"


def lives(name: str) -> bool:
    """Return whether the process of this `identity` may still run. A zombie does not; one of another machine may."""
    pid, start, machine = (*name.split("@"), "", "")[:3]
    if machine and machine != _machine():
        return True
    try:
        state, found = _state_and_start(int(pid))
    except (ValueError, OSError):
        return False
    return found == start and state not in {"Z", "X"}


def abandoned(place: Path, prefix: str) -> list[Path]:
    """Return this user's folders in `place` whose process has ended without removing them.

    Their names are the prefix, the `identity` of the process, a hyphen, and anything without a hyphen.
    """
    found = []
    for folder in place.glob(f"{prefix}*"):
        state, owner = folder.lstat(), folder.name.removeprefix(prefix).rpartition("-")[0]
        if stat.S_ISDIR(state.st_mode) and state.st_uid == os.getuid() and not lives(owner):
            found.append(folder)
    return found


@cache
def _machine() -> str:
    """Return eight hexadecimal digits for this machine, or for this container.

    Machines that were installed from one image may have the same id, so the name counts, too.
    """
    try:
        installed = Path("/etc/machine-id").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:  # many containers have none
        installed = ""
    return hashlib.sha256(f"{installed} {platform.node()}".encode()).hexdigest()[:8]


def _state_and_start(pid: int) -> tuple[str, str]:
    """Return state, and start in clock ticks since boot, which no correction of the clock changes: fields 3 and 22 of
    /proc/<pid>/stat, see proc(5)."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    return fields[0], fields[19]


def end(find: Callable[[], list[psutil.Process]], *, gently: bool) -> None:
    """End all processes that `find` returns, until it returns no more. gently: send SIGTERM before SIGKILL.

    Raise EngineError if a process survives. The parents still have to collect the exit codes.
    """
    if gently:
        _signal(find(), psutil.Process.terminate)
        _wait_until_none(find, TERM_S)
    deadline = time.monotonic() + KILL_S
    while left := find():
        if time.monotonic() > deadline:
            raise EngineError(
                f"The processes {', '.join(str(process.pid) for process in left)} could not be killed.",
                "They hang in the kernel, often in a GPU driver or a network disk. Restart the machine.",
            )
        _signal(left, psutil.Process.kill)
        _wait_until_none(find, POLL_S)


def _signal(processes: list[psutil.Process], send: Callable[[psutil.Process], None]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            send(process)


def _wait_until_none(find: Callable[[], list[psutil.Process]], patience_s: float) -> None:
    deadline = time.monotonic() + patience_s
    while find() and time.monotonic() < deadline:
        time.sleep(POLL_S)
