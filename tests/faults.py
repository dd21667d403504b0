"""Inject faults into calls of the operating system, check how an attempt with a fault ended, and note it.

    with faults.record() as calls:
        ...  # raises nothing
    for place in calls.places:
        with faults.at(place, OSError(errno.ENOSPC, "No space left on device")):
            ...  # the first call at this place raises the error

Only calls that kit makes in the current thread count. A place is a function, its caller in kit or scenarios, and the
nearest caller in another module of them, if there is one: "os.link in kit.storage.files._rename_new for
kit.storage.run_folder.save".
"""

from __future__ import annotations

import errno
import functools
import importlib
import os
import re
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from kit.cli import crash
from kit.model.errors import DiskError, Interrupted, KitError

KIT = Path(__file__).parents[1]
OPEN = ("builtins.open", "io.open", "tarfile.bltn_open")  # names of one function
FILE_OPERATIONS = (
    *OPEN,
    "fcntl.flock",
    "file.read",
    "file.readinto",
    "file.write",
    "os.chmod",
    "os.fchmod",
    "os.fstat",
    "os.fsync",
    "os.link",
    "os.listdir",
    "os.lstat",
    "os.mkdir",
    "os.open",
    "os.pwrite",
    "os.readlink",
    "os.rename",
    "os.replace",
    "os.rmdir",
    "os.scandir",
    "os.sendfile",
    "os.stat",
    "os.statvfs",
    "os.truncate",
    "os.unlink",
    "os.utime",
)
# Each kind of fault, and how to make its exception.
ERRORS: dict[str, Callable[[], BaseException]] = {
    "interrupt": KeyboardInterrupt,
    "disk full": lambda: OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
    "I/O error": lambda: OSError(errno.EIO, os.strerror(errno.EIO)),
    "no permission": lambda: OSError(errno.EACCES, os.strerror(errno.EACCES)),
}


class Calls:
    """The calls that were counted.

    places: how often each place made one, in the order of the first calls. raised: whether the error was raised.
    """

    def __init__(self, at: str | int, error: BaseException | None) -> None:
        self.places = Counter[str]()
        self.raised = False
        self._at, self._error, self._made = at, error, 0
        self._thread = threading.get_ident()

    def make(self, name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Count the call and make it, or raise the error if it is its turn. An OSError gets the file name."""
        callers = _callers() if threading.get_ident() == self._thread else ""
        if not callers:
            return function(*args, **kwargs)
        place = f"{name} in {callers}"
        self.places[place] += 1
        self._made += 1
        if self._error and not self.raised and self._at in (place, self._made):
            self.raised = True
            named = not name.startswith("file.") and args and isinstance(args[0], str | os.PathLike)
            if isinstance(self._error, OSError) and named:
                self._error.filename = os.fspath(args[0])
            raise self._error
        return function(*args, **kwargs)


@contextmanager
def record(functions: Sequence[str] = FILE_OPERATIONS) -> Iterator[Calls]:
    """Count the calls of these functions.

    functions: names of attributes of modules, such as "os.replace". "file.write" is the method of the files that are
    opened in the block.
    """
    with _counted(Calls(0, None), functions) as calls:
        yield calls


@contextmanager
def at(place: str | int, error: BaseException, functions: Sequence[str] = FILE_OPERATIONS) -> Iterator[None]:
    """Raise `error` at the first call of these functions at this place. Earlier and later calls work. Fail if the block
    made no such call.

    place: one of `Calls.places`, or the number of a call, from 1. functions: see `record`.
    """
    calls = Calls(place, error)
    try:
        with _counted(calls, functions):
            yield
    finally:
        assert calls.raised, f"no call at {place}"


@contextmanager
def _counted(calls: Calls, functions: Sequence[str]) -> Iterator[Calls]:
    methods = [name.removeprefix("file.") for name in functions if name.startswith("file.")]
    with ExitStack() as stack:
        for name in {*functions, *OPEN} - {f"file.{method}" for method in methods}:
            module, _, attribute = name.rpartition(".")
            function = getattr(importlib.import_module(module), attribute)
            if name in functions:
                function = functools.partial(calls.make, "open" if name in OPEN else name, function)
            if name in OPEN and methods:
                function = functools.partial(_open, calls, methods, function)
            stack.enter_context(mock.patch(name, function))
        yield calls


@dataclass(frozen=True)
class Ended:
    """How an attempt ended, as its user sees it.

    outcome: for example "exit code 6". result: what the attempt returned. caught, text: the error and its message. They
    are None and empty if it did not end so.
    """

    outcome: str
    result: Any = None
    caught: BaseException | None = None
    text: str = ""


def attempt(work: Callable[[], object], error: BaseException, *kinds: type[Exception]) -> Ended:
    """Return how work ended that meets this fault.

    Fail if it raised another error than one of these kinds, or one without a remedy, or with the remedy of another
    fault.
    """
    try:
        result = work()
    except BaseException as caught:
        if type(caught) is type(error) and not isinstance(error, Exception):
            interrupted = isinstance(error, KeyboardInterrupt)
            return Ended(f"exit code {Interrupted.exit_code}" if interrupted else "killed", caught=caught)
        if not isinstance(caught, kinds):
            raise
        return _described(caught, error)
    assert isinstance(error, Exception), "kit ignored an interrupt"
    return Ended(f"exit code {getattr(result, 'exit_code', 0)}", result)


def _described(caught: Exception, error: BaseException) -> Ended:
    text, code = (str(caught), caught.exit_code) if isinstance(caught, KitError) else crash.describe(caught)
    message, _, remedy = text.strip().partition("\n")
    assert "unexpected error" not in text, text
    assert message, text
    assert remedy, f"no remedy: {text}"
    assert "secret" not in text, text
    assert isinstance(error, KeyboardInterrupt) == (code == Interrupted.exit_code), text
    if isinstance(error, OSError) and code == DiskError.exit_code and "cannot be read" not in message:
        full, advice = error.errno == errno.ENOSPC, re.search(r"Free (disk|some) space(.)", remedy)
        assert advice if full else not advice or advice[2] != ".", f"the remedy of another fault: {text}"
    return Ended(f"exit code {code}", caught=caught, text=text)


def note(fault: str, place: str, outcome: str, following: str = "started again") -> None:
    """Append a row to the table in the file that the variable KIT_TEST_FAULTS names. Do nothing if it is not set.

    outcome: how the attempt with the fault ended. following: what the next attempt did.
    """
    if path := os.environ.get("KIT_TEST_FAULTS"):
        with open(path, "a", encoding="utf-8") as table:
            table.write(f"{fault}\t{place}\t{outcome}\t{following}\n")


def _open(calls: Calls, methods: Sequence[str], function: Callable[..., Any], *args: Any, **kwargs: Any) -> _File:
    return _File(function(*args, **kwargs), calls, methods)


class _File:
    """An open file that counts the calls of some of its methods."""

    def __init__(self, file: Any, calls: Calls, methods: Sequence[str]) -> None:
        self._file, self._calls, self._methods = file, calls, methods

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._file, name)
        return functools.partial(self._calls.make, f"file.{name}", attribute) if name in self._methods else attribute

    def __enter__(self) -> _File:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __iter__(self) -> Iterator[Any]:
        return iter(self._file)


def _callers() -> str:
    """Return the nearest function of kit or scenarios that made the call, and the nearest one of another module. Return
    an empty string if a test made the call, for example a fake engine."""
    frame, nearest, module = sys._getframe(1), "", ""
    while frame.f_back:
        frame = frame.f_back
        name = _module(frame.f_code.co_filename)
        if not nearest and name == "tests":
            return ""
        if name in ("", "tests", module):
            continue
        if nearest:
            return f"{nearest} for {name}.{frame.f_code.co_name}"
        nearest, module = f"{name}.{frame.f_code.co_name}", name
    return nearest


@functools.cache
def _module(file: str) -> str:
    """Return the name of a module of kit or scenarios, "tests" for the other modules of the tests, else an empty
    string."""
    path = Path(file)
    if path.is_relative_to(KIT / "kit") or path.is_relative_to(KIT / "scenarios"):
        return ".".join(path.relative_to(KIT).with_suffix("").parts)
    return "tests" if path.is_relative_to(KIT / "tests") and path != Path(__file__) else ""
