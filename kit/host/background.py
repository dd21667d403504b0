"""Work that may hang, done beside: who waits for it decides how long."""

from __future__ import annotations

from collections.abc import Callable
from concurrent import futures
from threading import Thread
from typing import TypeVar

T = TypeVar("T")


def in_background(work: Callable[[], T], into: futures.Future[T] | None = None) -> futures.Future[T]:
    """Do it in a thread that does not keep the process from ending; result or exception are the future's."""
    future: futures.Future[T] = into or futures.Future()

    def run() -> None:
        try:
            future.set_result(work())
        except Exception as error:  # noqa: BLE001 - whoever asks for the result gets it
            future.set_exception(error)

    Thread(target=run, daemon=True).start()
    return future
