"""Define every error that a user can see. Each error class has one exit code."""

import difflib
from collections.abc import Iterable
from typing import Self


class KitError(Exception):
    """An error with a remedy. exit_code: exit code of a command that this error stops."""

    exit_code = 1

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message}\n{self.remedy}"

    def with_notes_of(self, cause: BaseException) -> Self:
        """Take over what was noted about another exception, for example that its clean-up failed. Return this error."""
        for note in getattr(cause, "__notes__", ()):
            self.add_note(note)
        return self


class UsageError(KitError):
    """A name, option or file is not valid."""

    exit_code = 2


class EngineError(KitError):
    """An engine cannot be used: no daemon, permission, toolkit, or Python for an environment."""

    exit_code = 3


class ImageError(KitError):
    """An image or environment could not be built."""

    exit_code = 4


class DataError(KitError):
    """A data set is missing, damaged or wrong."""

    exit_code = 5


class CorruptDataError(DataError):
    """A data set or archive exists, but is damaged or has the wrong content."""


class DiskError(KitError):
    """The disk is full, or a folder cannot be written."""

    exit_code = 6


class Interrupted(KitError):
    """Ctrl-C, SIGTERM or SIGHUP. Results are kept."""

    exit_code = 130


def unknown(kind: str, name: str, known: Iterable[str]) -> UsageError:
    """Return the error for an unknown name. Its remedy lists the known names and the nearest one."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.4)
    hint = f"Did you mean {near[0]!r}? " if near else ""
    return UsageError(f"Unknown {kind} {name!r:.100}.", f"{hint}Choose from: {', '.join(names)}.")
