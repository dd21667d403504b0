"""Convert the contract's types to JSON and back, and write files atomically.

`from_json` reads back exactly what `to_json` writes. An unknown or missing key, a wrong type, or a number outside its
range is a ContractError, so a damaged file never counts as a result.
"""

import dataclasses
import json
import math
import os
import types
import typing
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, TypeVar

from scenarios.contract.ranges import MAX_INT, Range
from scenarios.contract.request import SCHEMA

T = TypeVar("T")


class ContractError(ValueError):
    """A request, a result or a part of them is not valid. The text says where."""


def to_json(value: Any) -> str:
    """Return a dataclass as JSON text. Raise ContractError for NaN and infinity, because JSON does not have them."""
    try:
        return json.dumps(dataclasses.asdict(value), indent=1, sort_keys=True, allow_nan=False)
    except ValueError as error:
        raise ContractError(f"{type(value).__name__} holds a number that JSON does not have: {error}") from error


def from_json(cls: type[T], text: str | bytes) -> T:
    """Return JSON text as an instance of `cls`. Raise ContractError if it is not exactly that."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ContractError(f"it is not JSON: {error}") from error
    if isinstance(data, dict) and isinstance(data.get("schema"), int) and data["schema"] > SCHEMA:
        raise ContractError(f"its schema {data['schema']} is newer than {SCHEMA}, the newest that this version reads")
    try:
        return decode(cls, data)
    except RecursionError as error:  # in the message about a value that is almost too deep for the parser
        raise ContractError("it is nested too deeply") from error


def decode(cls: type[T], data: Any) -> T:
    """Return parsed JSON as an instance of the dataclass `cls`. Raise ContractError if it is not exactly that."""
    decoded: T = _decode(cls, data, cls.__name__)
    return decoded


def write(path: Path, value: Any) -> None:
    """Write a dataclass as a JSON file. Readers see the whole file or no file. Raise OSError, ContractError."""
    write_bytes(path, to_json(value).encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file by rename. Readers see the whole file or no file, also after a crash. Raise OSError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with open(temporary, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def _decode(kind: Any, data: Any, where: str) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return _in_range(_decode(arguments[0], data, where), arguments[1], where)
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
        return {key: _decode(arguments[1], item, f"{where}[{key!r:.80}]") for key, item in data.items()}
    if isinstance(kind, type) and _is_scalar(kind, data):
        return kind(data)
    raise ContractError(f"{where}: {data!r:.80} is not {_name(kind)}")


def _is_scalar(kind: type, data: Any) -> bool:
    """Return whether parsed JSON is a valid text, number or enumeration member of this type."""
    if issubclass(kind, StrEnum):
        return data in [member.value for member in kind]
    if type(data) is int and kind in (int, float):
        return abs(data) <= MAX_INT
    if type(data) is float:
        return kind is float and math.isfinite(data)
    return kind in (str, bool) and type(data) is kind


def _decode_fields(cls: type[Any], data: Any, where: str) -> Any:
    if not isinstance(data, dict):
        raise ContractError(f"{where}: it is not an object but {type(data).__name__}")
    hints = typing.get_type_hints(cls, include_extras=True)
    fields = {f.name: f for f in dataclasses.fields(cls)}
    if unknown := sorted(set(data) - set(fields)):
        raise ContractError(f"{where}: unknown keys {', '.join(unknown):.200}")
    missing = dataclasses.MISSING
    required = {name for name, f in fields.items() if f.default is missing and f.default_factory is missing}
    if absent := sorted(required - set(data)):
        raise ContractError(f"{where}: missing keys {', '.join(absent)}")
    return cls(**{name: _decode(hints[name], value, f"{where}.{name}") for name, value in data.items()})


def _in_range(number: float, limits: Range, where: str) -> float:
    if not limits.low <= number <= limits.high:  # NaN is in no range
        raise ContractError(f"{where}: {number:.6g} is not between {limits.low:g} and {limits.high:g}")
    return number


def _name(kind: Any) -> str:
    if typing.get_origin(kind) is Literal:
        return f"one of {', '.join(map(str, typing.get_args(kind)))}"
    return kind.__name__ if isinstance(kind, type) else str(kind).removeprefix("typing.")
