"""Define how the files of a run are written and read: versioned JSON, validated by one reader.

A run folder may come from a stranger, so every file is validated completely: names, types and ranges. pydantic
validates the orchestrator's own types. `scenarios.contract.codec` validates the types that are shared with the worker,
both in a worker's result file and inside a record.
"""

import json
import math
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, ClassVar, Self, TypeVar

from pydantic import BaseModel, ConfigDict, FailFast, Field, GetCoreSchemaHandler, ValidationError
from pydantic_core import CoreSchema, core_schema

from kit.model import quick_read
from kit.model.errors import UsageError
from scenarios.contract import codec
from scenarios.contract.ranges import MAX_INT

SCHEMA = 1
MAX_NAMES = 10_000  # of an object; more than kit ever writes

T = TypeVar("T")
# A list whose validation stops at the first wrong item. pydantic needs 3 kB per error, and a file may have millions.
Items = Annotated[list[T], FailFast()]


@dataclass(frozen=True)
class Contract:
    """Annotate a field of a document that holds a type of the contract: the codec validates it."""

    kind: type

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return the validator that pydantic calls."""
        return core_schema.no_info_plain_validator_function(self._validate, metadata={quick_read.CONTRACT: self.kind})

    def _validate(self, value: Any) -> Any:
        return value if isinstance(value, self.kind) else codec.decode(self.kind, value)


class Document(BaseModel):
    """A versioned JSON file. noun: what messages call it. remedy: what to do if it is not valid."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, ser_json_inf_nan="constants")

    schema_: int = Field(default=SCHEMA, alias="schema")
    noun: ClassVar[str] = ""
    remedy: ClassVar[str] = "Restore the file from a copy, or start a new run."

    def to_json(self) -> str:
        """Return JSON text with the version under `schema`."""
        return json.dumps(self.model_dump(mode="json", by_alias=True), indent=1, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes, source: str) -> Self:
        """Read a document. Raise UsageError, which names `source`, if it is not valid or has a schema that this
        version does not know."""
        with suppress(quick_read.Unreadable):
            document: Self = _quick_reader(cls).read(text, SCHEMA)
            return document
        try:
            data = _parse(text)
            if (version := _version(data)) > SCHEMA:
                raise UsageError(
                    f"{source} has schema {version}. This version of kit reads schemas up to {SCHEMA}.",
                    "Use the version of kit that wrote the file.",
                )
            return cls.model_validate_json(json.dumps(data), strict=True)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            noun = cls.noun or cls.__name__.lower()
            raise UsageError(f"{source} is not a valid {noun}: {_explain(error)}.", cls.remedy) from error


class Part(BaseModel):
    """A part of a document."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


@cache
def _quick_reader(cls: type[Document]) -> quick_read.QuickReader:
    return quick_read.QuickReader.of(cls.__pydantic_core_schema__, MAX_NAMES)


def _parse(text: str | bytes) -> Any:
    """Parse JSON. Raise ValueError or RecursionError.

    Also refuse what kit never writes: NaN, infinity, whole numbers above MAX_INT, and an object with a repeated name or
    with more than MAX_NAMES names.
    """
    data = json.loads(text, parse_int=_whole, object_pairs_hook=_object)
    if place := _place_of_infinity(data):
        raise ValueError(f"{'.'.join(map(str, place)):.200}: the number is NaN, infinite or too large")
    return data


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(pairs) > MAX_NAMES:
        raise ValueError(f"an object has more than {MAX_NAMES:,} names")
    found = dict(pairs)
    if len(found) < len(pairs):
        duplicate = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise ValueError(f"an object has the name {duplicate!r:.100} twice")
    return found


def _whole(text: str) -> int | float:
    """Return a whole number, or infinity if it is above MAX_INT. Python does not convert arbitrarily long numbers."""
    if len(text) > len(str(-MAX_INT)) or abs(number := int(text)) > MAX_INT:
        return math.inf
    return number


def _place_of_infinity(data: Any) -> list[str | int]:
    """Return the names and indices that lead to the first number that is not finite, or an empty list."""
    parts = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for name, part in parts:
        if isinstance(part, float):
            if not math.isfinite(part):
                return [name]
        elif isinstance(part, dict | list) and (place := _place_of_infinity(part)):
            return [name, *place]
    return []


def _version(document: Any) -> int:
    """Return the version of a document. Raise ValueError if it has none."""
    version = document.get("schema") if isinstance(document, dict) else None
    if type(version) is not int or version < 1:
        raise ValueError(f"its schema is {version!r:.100}, which is not a version")
    return version


def _explain(error: Exception) -> str:
    """Return the first fault in one line."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if not isinstance(error, ValidationError):
        return " ".join(str(error).split())
    first = error.errors(include_url=False)[0]
    message = first["msg"].removeprefix("Value error, ")
    return f"{'.'.join(map(str, first['loc'])):.200}: {message}".removeprefix(": ")
