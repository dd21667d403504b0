"""The contract's types to JSON and back. Standard library only.

What `to_json` writes `from_json` reads back equal; unknown or missing keys and wrong types are a `ContractError`, so
that a broken file never passes for a result.
"""

from __future__ import annotations

import dataclasses
import json
import os
import types
import typing
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, TypeVar

from scenarios.contract.request import SCHEMA

T = TypeVar("T")


class ContractError(ValueError):
    """A request or result file that is not what this version writes; the text says where."""


def to_json(value: Any) -> str:
    """Dataclass to JSON text. NaN and infinity are refused with ContractError: they are not JSON."""
    try:
        return json.dumps(dataclasses.asdict(value), indent=1, sort_keys=True, allow_nan=False)
    except ValueError as error:
        raise ContractError(f"{type(value).__name__} holds a number that JSON cannot: {error}") from error


def from_json(cls: type[T], text: str | bytes) -> T:
    """JSON text to `cls`. Raises ContractError where it is not exactly that."""
    try:
        data = json.loads(text)
    except ValueError as error:
        raise ContractError(f"not JSON: {error}") from error
    if isinstance(data, dict) and isinstance(data.get("schema"), int) and data["schema"] > SCHEMA:
        raise ContractError(f"schema {data['schema']} is newer than {SCHEMA}, the newest this version reads")
    decoded: T = _decode(cls, data, cls.__name__)
    return decoded


def write(path: Path, value: Any) -> None:
    """Write atomically: whoever sees `path` sees all of it. Raises OSError, ContractError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(to_json(value))
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def _decode(kind: Any, data: Any, where: str) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind):
        return _decode_fields(typing.cast("type[Any]", kind), data, where)
    if origin in (typing.Union, types.UnionType):
        if data is None and type(None) in arguments:
            return None
        (only,) = (a for a in arguments if a is not type(None))
        return _decode(only, data, where)
    if origin is Literal and data in arguments:
        return data
    if origin is list and isinstance(data, list):
        return [_decode(arguments[0], item, f"{where}[{i}]") for i, item in enumerate(data)]
    if origin is dict and isinstance(data, dict):
        return {key: _decode(arguments[1], item, f"{where}[{key!r}]") for key, item in data.items()}
    if isinstance(kind, type):
        if issubclass(kind, StrEnum) and data in [member.value for member in kind]:
            return kind(data)
        if kind is float and type(data) in (int, float):
            return float(data)
        if kind in (int, str, bool) and type(data) is kind:
            return data
    raise ContractError(f"{where}: {data!r:.80} is not {kind}")


def _decode_fields(cls: type[Any], data: Any, where: str) -> Any:
    if not isinstance(data, dict):
        raise ContractError(f"{where}: expected an object, got {type(data).__name__}")
    hints = typing.get_type_hints(cls)
    fields = {f.name: f for f in dataclasses.fields(cls)}
    if unknown := sorted(set(data) - set(fields)):
        raise ContractError(f"{where}: unknown keys {', '.join(unknown)}")
    optional = {
        n
        for n, f in fields.items()
        if f.default is not dataclasses.MISSING or f.default_factory is not dataclasses.MISSING
    }
    if absent := sorted(set(fields) - set(data) - optional):
        raise ContractError(f"{where}: missing keys {', '.join(absent)}")
    return cls(**{name: _decode(hints[name], value, f"{where}.{name}") for name, value in data.items()})
