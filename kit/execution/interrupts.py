"""Handle Ctrl-C, SIGTERM and SIGHUP: the first signal ends the command in good order, and later ones are ignored."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

# SIGALRM repeats a signal whose exception was lost, see `_on_unraisable`.
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)
REPEAT_S = 0.01


class Signal(KeyboardInterrupt):
    """A signal arrived. It is a subclass for the exit code of `python -m kit`: CPython ends with SIGINT instead of the
    chosen code if exactly KeyboardInterrupt passed through `exec` of a text, which named tuples and dataclasses use."""


class Interrupts:
    """Handle the signals of this process, in its main thread.

    The first signal raises KeyboardInterrupt. Inside `deferred`, it only sets `pending`, for a step that checks it and
    ends in good order. Every later signal is ignored, because the clean-up is running. Signals that are ignored when
    the handling starts stay ignored: SIGHUP of a process under `nohup`, SIGINT of a background process of a script.
    """

    def __init__(self) -> None:
        self._pending = False
        self._deferred = False

    def pending(self) -> bool:
        """Return whether a signal arrived."""
        return self._pending

    def handle(self) -> None:
        """Handle the signals from now on."""
        self._pending = False
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._on_signal)
        sys.unraisablehook = self._on_unraisable

    def ignore(self) -> None:
        """Ignore the signals from now on, because the process ends."""
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)

    @contextmanager
    def handled(self) -> Iterator[None]:
        """Handle the signals in this context, or do nothing if they are handled already."""
        before = {number: signal.getsignal(number) for number in SIGNALS}
        if self._on_signal in before.values():
            yield
            return
        hook = sys.unraisablehook
        self.handle()
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            sys.unraisablehook = hook

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
            raise Signal

    def _on_unraisable(self, lost: "sys.UnraisableHookArgs") -> None:
        """Repeat a signal if Python discarded its KeyboardInterrupt.

        Python discards exceptions of destructors and of weak references. The import system uses such references.
        """
        if issubclass(lost.exc_type, KeyboardInterrupt):
            self._pending = False
            signal.setitimer(signal.ITIMER_REAL, REPEAT_S)
        else:
            sys.__unraisablehook__(lost)


interrupts = Interrupts()  # one per process, like the handlers of its signals
