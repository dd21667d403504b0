"""Becomes the given command, tied to the process that started it: `python confine.py PARENT CPUS COMMAND...`.

Run by path, standard library only. PARENT: process id; the command dies with it, even where that is killed. CPUS:
logical CPUs with commas. This does between fork and exec what `preexec_fn` would, safely in a program with threads.
"""

import ctypes
import os
import signal
import sys
from pathlib import Path

PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


def main(parent: str, cpus: str, *command: str) -> None:
    """Set it all up, then exec. Raises OSError where the CPUs may not be used or there is no such command."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != int(parent):  # it died before the line above
        sys.exit(1)
    os.sched_setaffinity(0, {int(cpu) for cpu in cpus.split(",")})
    # Where the machine's memory runs out, the kernel should take the worker, not the orchestrator.
    Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    os.execv(command[0], command)  # noqa: S606 - no shell is wanted


if __name__ == "__main__":
    main(*sys.argv[1:])
