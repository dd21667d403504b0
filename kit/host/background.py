"""Run work that may hang in a daemon thread. The caller sets the timeout."""

from collections.abc import Callable
from concurrent import futures
from threading import Thread
from typing import TypeVar

T = TypeVar("T")


def in_background(work: Callable[[], T], into: futures.Future[T] | None = None) -> futures.Future[T]:
    """Run `work` in a thread that does not keep the process alive. Return a future of its result or exception.

    into: the future to use, if the caller needs it before the thread starts.
    """
    future: futures.Future[T] = into or futures.Future()

    def run() -> None:
        try:
            future.set_result(work())
        except Exception as error:  # noqa: BLE001 - the future raises it
            future.set_exception(error)

    Thread(target=run, daemon=True).start()
    return future
