"""Wait for a launch until it ends or must be ended."""

import time
from collections.abc import Callable
from concurrent import futures
from typing import Literal

# How the wait for a launch is over. ended: the process ended by itself. unlogged: its output can no longer be written,
# so the process would soon block on a full pipe.
Ending = Literal["ended", "deadline", "memory", "stopped", "unlogged"]

POLL_S = 0.2


def supervise(
    ended: Callable[[float], bool],
    deadline: float,
    over_limit: Callable[[], bool],
    log: futures.Future[None],
    stopped: Callable[[], bool],
) -> Ending:
    """Wait until the process ended, or until something says that it must be ended. Return which.

    ended: wait up to that many seconds for the process and return whether it ended. deadline: reading of the monotonic
    clock. over_limit: read the memory and return whether the engine must end the process for it. log: the copying of
    the output. stopped: whether the user asked for the end.
    """
    while not ended(POLL_S):
        if over_limit():
            return "memory"
        if log.done() and log.exception() is not None:
            return "unlogged"
        if stopped():
            return "stopped"
        if time.monotonic() >= deadline:
            return "deadline"
    return "ended"
