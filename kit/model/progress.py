"""Define how long steps report progress. `kit.cli.console` shows it."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol


class Task(Protocol):
    """One running step."""

    def advance(self, amount: float) -> None:
        """Add to the finished amount, in the unit of the task."""

    def describe(self, text: str) -> None:
        """Replace the short text after the label."""


class Progress(Protocol):
    """A receiver of progress. Its methods are safe to call from several threads."""

    def task(self, label: str, total: float | None = None, unit: str = "") -> AbstractContextManager[Task]:
        """Show a step with a label. total: None if unknown. unit: "B" is shown as KiB or MiB."""

    def line(self, text: str) -> None:
        """Show a line that stays."""


class _SilentTask:
    def advance(self, amount: float) -> None:
        pass

    def describe(self, text: str) -> None:
        pass


class Silent:
    """Show nothing, for tests and for `--json`."""

    @contextmanager
    def task(self, label: str, total: float | None = None, unit: str = "") -> Iterator[Task]:
        yield _SilentTask()

    def line(self, text: str) -> None:
        pass
