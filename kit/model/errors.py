"""Every error a person can meet: one tree, one exit code a cause, the remedy in the text."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class KitError(Exception):
    """An error with a remedy. exit_code: what the process ends with where the error stops the command."""

    exit_code = 1

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message}\n{self.remedy}"


class UsageError(KitError):
    """A name, option or file that makes no sense."""

    exit_code = 2


class EngineError(KitError):
    """No daemon, no permission, no toolkit, no Python for an environment."""

    exit_code = 3


class ImageError(KitError):
    """An image or environment could not be made."""

    exit_code = 4


class DataError(KitError):
    """A data set is absent, corrupt, or not what it says it is."""

    exit_code = 5


class CorruptDataError(DataError):
    """A data set or archive is here and damaged, or has other content than it must have."""


class DiskError(KitError):
    """No room left, or a folder that cannot be written."""

    exit_code = 6


class Interrupted(KitError):
    """Ctrl-C or SIGTERM; what was measured is kept."""

    exit_code = 130


def unknown(kind: str, name: str, known: Iterable[str]) -> UsageError:
    """The error for a name that does not exist: lists what does, and the nearest."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.4)
    hint = f"Did you mean {near[0]!r}? " if near else ""
    return UsageError(f"Unknown {kind} {name!r}.", f"{hint}There is: {', '.join(names)}.")
