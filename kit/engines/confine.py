"""Tie a command to the process that started it, then run it: `python confine.py PARENT CPUS COMMAND...`.

Run by path, with the standard library only. PARENT: process id; the command dies with this process, even if it is
killed. CPUS: logical CPUs, separated by commas. Unlike `preexec_fn`, this is safe in a program with threads.
"""

import ctypes
import os
import signal
import sys
from pathlib import Path

PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


def main(parent: str, cpus: str, *command: str) -> None:
    """Confine this process, then exec. Raise OSError if the CPUs may not be used or the command does not exist."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != int(parent):  # the parent died before the line above
        sys.exit(1)
    os.sched_setaffinity(0, {int(cpu) for cpu in cpus.split(",")})
    # If the machine's memory runs out, the kernel should kill the worker, not the orchestrator.
    Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    os.execv(command[0], command)  # noqa: S606 - no shell is wanted


if __name__ == "__main__":
    main(*sys.argv[1:])
