"""Inject faults into calls of the operating system, and note their outcomes.

    with faults.at(3, OSError(errno.ENOSPC, "No space left on device")) as calls:
        ...  # the third call raises the error

Only calls of the current thread count. `calls.places` names all of them, so that a first run with `nth=0`, which raises
nothing, shows where faults are possible.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

KIT = Path(__file__).parents[1]
OPEN = ("builtins.open", "io.open", "tarfile.bltn_open")  # names of one function
FILE_OPERATIONS = (
    *OPEN,
    "file.read",
    "file.readinto",
    "file.write",
    "fcntl.flock",
    "os.chmod",
    "os.fsync",
    "os.listdir",
    "os.mkdir",
    "os.open",
    "os.replace",
    "os.rmdir",
    "os.scandir",
    "os.sendfile",
    "os.stat",
    "os.unlink",
)


class Calls:
    """The calls that were counted.

    places: function and caller of each, in order. callers: for each, the nearest caller in another module.
    """

    def __init__(self, nth: int, error: BaseException) -> None:
        self.places: list[str] = []
        self.callers: list[str] = []
        self._nth, self._error = nth, error
        self._thread = threading.get_ident()

    def make(self, name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Count the call and make it, or raise the error if it is its turn. An OSError gets the file name."""
        if threading.get_ident() != self._thread:
            return function(*args, **kwargs)
        inner, outer = _callers()
        self.places.append(f"{name} in {inner}")
        self.callers.append(outer)
        if len(self.places) == self._nth:
            named = not name.startswith("file.") and args and isinstance(args[0], str | os.PathLike)
            if isinstance(self._error, OSError) and named:
                self._error.filename = os.fspath(args[0])
            raise self._error
        return function(*args, **kwargs)


@contextmanager
def at(nth: int, error: BaseException, functions: Sequence[str] = FILE_OPERATIONS) -> Iterator[Calls]:
    """Raise `error` at the nth call, from 1, of any of these functions. Earlier and later calls work.

    functions: names of attributes of modules, such as "os.replace". "file.write" is the method of the files that are
    opened in the block.
    """
    calls = Calls(nth, error)
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


def note(fault: str, place: str, outcome: str) -> None:
    """Append a row to the table in the file that the variable KIT_TEST_FAULTS names. Do nothing if it is not set."""
    if path := os.environ.get("KIT_TEST_FAULTS"):
        with open(path, "a", encoding="utf-8") as table:
            table.write(f"{fault}\t{place}\t{outcome}\n")


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


def _callers() -> tuple[str, str]:
    """Return the nearest function of kit or scenarios that made the call, and the nearest one of another module."""
    frame, nearest, module = sys._getframe(), "", ""
    while frame.f_back:
        frame = frame.f_back
        name = _module(frame.f_code.co_filename)
        if name and not nearest:
            nearest, module = f"{name}.{frame.f_code.co_name}", name
        elif name and name != module:
            return nearest, f"{name}.{frame.f_code.co_name}"
    return nearest or "tests", "tests"


@functools.cache
def _module(file: str) -> str:
    """Return the name of a module of kit or scenarios, else an empty string."""
    path = Path(file)
    if path.is_relative_to(KIT / "kit") or path.is_relative_to(KIT / "scenarios"):
        return ".".join(path.relative_to(KIT).with_suffix("").parts)
    return ""
