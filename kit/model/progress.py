"""What a long step tells a person while it runs; how it looks is decided in `console.py`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol


class Task(Protocol):
    """One running step."""

    def advance(self, amount: float) -> None:
        """Add to what is done, in the task's unit."""

    def describe(self, text: str) -> None:
        """Replace the short text behind the label."""


class Progress(Protocol):
    """Where steps announce themselves. Safe to call from several threads."""

    def task(self, label: str, total: float | None = None, unit: str = "") -> AbstractContextManager[Task]:
        """A step with a label; total None: unknown. unit "B" is shown as KiB, MiB."""

    def line(self, text: str) -> None:
        """One line that stays."""


class _SilentTask:
    def advance(self, amount: float) -> None:
        pass

    def describe(self, text: str) -> None:
        pass


class Silent:
    """Says nothing; for tests and for `--json`."""

    @contextmanager
    def task(self, label: str, total: float | None = None, unit: str = "") -> Iterator[Task]:
        yield _SilentTask()

    def line(self, text: str) -> None:
        pass
