"""Ctrl-C, SIGTERM and SIGHUP, so that nothing is left half done: the first one stops the run, further ones wait."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """Handles the signals while its context lasts.

    The first signal raises KeyboardInterrupt where the program is, or, inside of `deferred`, only sets `pending`, for
    a step that watches it and ends by itself in good order. Every later signal is ignored: clean-up is under way.
    """

    def __init__(self) -> None:
        self._pending = False
        self._deferred = False

    def pending(self) -> bool:
        """Whether a signal came."""
        return self._pending

    @contextmanager
    def handled(self) -> Iterator[None]:
        """Handle the signals in here; for the main thread."""
        before = {number: signal.signal(number, self._on_signal) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """In here a signal raises nothing."""
        self._deferred = True
        try:
            yield
        finally:
            self._deferred = False

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        first, self._pending = not self._pending, True
        if first and not self._deferred:
            raise KeyboardInterrupt
