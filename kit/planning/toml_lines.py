"""Find the lines of the keys of a TOML file, which `tomllib` does not report."""

import tomllib
from collections.abc import Iterator, Sequence
from typing import Any

Path = tuple[str | int, ...]
MAX_LINES = 100  # of a statement


def line_of(text: str, path: Sequence[str | int]) -> int:
    """Return the line of a value in a valid TOML file, from 1.

    path: keys, and positions in arrays. If the value has no line of its own, for example in an inline table, return
    the line of the nearest part around it. The line of the whole file is 1.
    """
    lines = _lines(text)
    return next((lines[found] for end in range(len(path), 0, -1) if (found := tuple(path[:end])) in lines), 1)


def _lines(text: str) -> dict[Path, int]:
    """Return the first line of each table and key."""
    found: dict[Path, int] = {}
    table: Path = ()
    counts: dict[Path, int] = {}
    for line, statement, content in _statements(text):
        keys, end = _keys(content)
        if statement.startswith("["):
            table = _resolved(keys, counts)
            if isinstance(end, list):  # [[name]] begins the next table of an array
                counts[table] = counts.get(table, -1) + 1
                table = (*table, counts[table])
            path = table
        else:
            path = (*table, *keys)
        for length in range(1, len(path) + 1):
            found.setdefault(path[:length], line)
    return found


def _statements(text: str) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Yield the line, the text and the content of each header and each key with its value.

    A statement is the shortest run of lines that is valid TOML: a value may take several lines. After one with more
    than MAX_LINES lines no more are found, because each of its lines is tried.
    """
    first, pending = 1, ""
    for number, line in enumerate(text.split("\n"), start=1):  # other separators of lines may be part of a text
        first = first if pending else number
        pending += f"{line}\n"
        if number - first > MAX_LINES:
            return
        try:
            content = tomllib.loads(pending)
        except (tomllib.TOMLDecodeError, RecursionError):  # it goes on in the next line, or is too deep from here
            continue
        if content:
            yield first, pending.strip(), content
        pending = ""


def _keys(content: dict[str, Any]) -> tuple[Path, Any]:
    """Return the keys of a statement, and what stands below the last one. A dotted key has several."""
    keys: list[str] = []
    below: Any = content
    while isinstance(below, dict) and len(below) == 1:
        ((key, below),) = below.items()
        keys.append(key)
    return tuple(keys), below


def _resolved(keys: Path, counts: dict[Path, int]) -> Path:
    """Return the path of a header. A key of an array of tables, except the last key, means its last table."""
    path: Path = ()
    for index, key in enumerate(keys):
        path = (*path, key)
        if path in counts and index < len(keys) - 1:
            path = (*path, counts[path])
    return path
