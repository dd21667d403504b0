"""Handle Ctrl-C, SIGTERM and SIGHUP: the first signal stops the run in good order, and later ones are ignored."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """Handle the signals while a context lasts.

    The first signal raises KeyboardInterrupt. Inside `deferred`, it only sets `pending`, for a step that checks it and
    ends in good order. Every later signal is ignored, because the clean-up is running.
    """

    def __init__(self) -> None:
        self._pending = False
        self._deferred = False

    def pending(self) -> bool:
        """Return whether a signal arrived."""
        return self._pending

    @contextmanager
    def handled(self) -> Iterator[None]:
        """Handle the signals in this context. Use it in the main thread."""
        before = {number: signal.signal(number, self._on_signal) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """In this context a signal raises nothing."""
        self._deferred = True
        try:
            yield
        finally:
            self._deferred = False

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        first, self._pending = not self._pending, True
        if first and not self._deferred:
            raise KeyboardInterrupt
