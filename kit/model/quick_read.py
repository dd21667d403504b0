"""Read valid documents many times faster than `kit.model.document`, which explains what is wrong with the others.

Everything happens inside pydantic's compiled core, also the validation of the contract's types. Whatever looks unusual
counts as unreadable here, so a document that is read here is also valid for the slow reader, and equal. A document that
lacks an optional field, such as one of an older version, is unusual, too.
"""

import dataclasses
import re
import types
import typing
from collections.abc import Callable
from enum import StrEnum
from typing import Any, Literal, Self

from pydantic_core import CoreSchema, SchemaValidator, core_schema

from scenarios.contract.ranges import MAX_INT, Range

CONTRACT = "contract"  # in the metadata of a schema: the type that the codec validates there
NAME_END = re.compile(rb'"\s*:')
ESCAPED_END = re.compile(rb'\\"\s*:')  # the same inside a text, unless another backslash escapes this one
MAX_END = 100  # bytes of a match of ESCAPED_END; the slow reader reads a document with a longer one
# The slow reader refuses whole numbers above MAX_INT, also where a field is a float. As a float, MAX_INT would be
# rounded up, so the limit is the next lower power of 2.
LARGEST = {"int": MAX_INT, "float": 2.0**62}
# Else pydantic takes the existing validators of nested models, which validate the types of the contract in Python.
NO_PREBUILT = {"_use_prebuilt": False} if "_use_prebuilt" in (SchemaValidator.__text_signature__ or "") else {}

# How many names the JSON of a valid value has: always so many, or by the value.
Names = int | Callable[[Any], int]


class Unreadable(Exception):
    """The slow reader has to read this document."""


@dataclasses.dataclass(frozen=True)
class QuickReader:
    """Read documents of one class. names: see Names."""

    validator: SchemaValidator
    names: Names

    @classmethod
    def of(cls, schema: CoreSchema, max_names: int) -> Self:
        """Return the reader of a class with this schema. max_names: of an object."""
        complete = _complete(schema)
        return cls(SchemaValidator(complete, None, **NO_PREBUILT), _names(complete, max_names))

    def read(self, text: str | bytes, version: int) -> Any:
        """Return a valid document. Raise Unreadable for others, and for some that are valid.

        version: the only one that is read.
        """
        content = text.encode(errors="replace") if isinstance(text, str) else text
        try:
            document = self.validator.validate_json(content, strict=True)
        except ValueError as error:
            raise Unreadable from error
        if document.schema_ != version or not _repeats_no_name(content, _count(self.names, document)):
            raise Unreadable
        return document


def _repeats_no_name(content: bytes, names: int) -> bool:
    """Return whether no name is repeated within its object. A text that begins with a colon counts as a name, too.

    names: number of different names. All fields are required, so repeated names cannot replace missing ones.
    """
    found, first = len(NAME_END.findall(content)), content.find(b"\\")
    if first >= 0:  # then a quote may be part of a text
        escaped = content[first : content.rfind(b"\\") + MAX_END]
        if b'\\\\"' in escaped:  # then the backslash before the quote may be part of the text
            return len(NAME_END.findall(content.replace(b"\\\\", b"..").replace(b'\\"', b".."))) == names
        found -= len(ESCAPED_END.findall(escaped))
    return found == names


def _count(names: Names, value: Any) -> int:
    return names if isinstance(names, int) else names(value)


def _names(schema: Any, most: int) -> Names:
    """Return how many names valid values have. It is too low for objects with more than `most` names."""
    match schema["type"]:
        case "model" | "dataclass" | "function-after":
            return _names(schema["schema"], most)
        case "model-fields":
            return _names_of_object({name: _names(field["schema"], most) for name, field in schema["fields"].items()})
        case "dataclass-args":
            return _names_of_object({field["name"]: _names(field["schema"], most) for field in schema["fields"]})
        case "nullable":
            of_value = _names(schema["schema"], most)
            return of_value and (lambda value: 0 if value is None else _count(of_value, value))
        case "list":
            return _names_of_list(_names(schema["items_schema"], most))
        case "dict":
            of_values = _names_of_list(_names(schema["values_schema"], most))
            return lambda value: (len(value) if len(value) <= most else 0) + _count(of_values, value.values())
        case _:
            return 0


def _names_of_object(fields: dict[str, Names]) -> Names:
    known = len(fields) + sum(names for names in fields.values() if isinstance(names, int))
    others = [(name, names) for name, names in fields.items() if not isinstance(names, int)]
    if not others:
        return known
    return lambda value: known + sum([names(getattr(value, name)) for name, names in others])


def _names_of_list(of_item: Names) -> Names:
    if isinstance(of_item, int):
        return of_item and (lambda items: of_item * len(items))
    return lambda items: sum(map(of_item, items))


def _complete(schema: Any) -> Any:
    """Return a schema in which all fields are required, all numbers have limits, and the core validates the contract's
    types, too."""
    if isinstance(schema, list):
        return [_complete(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if kind := (schema.get("metadata") or {}).get(CONTRACT):
        return _complete(_schema(kind))
    if schema.get("type") == "default":
        return _complete(schema["schema"])
    if most := LARGEST.get(schema.get("type", "")):
        return schema | {"ge": max(schema.get("ge", -most), -most), "le": min(schema.get("le", most), most)}
    return {name: _complete(value) for name, value in schema.items()}


def _schema(kind: Any) -> CoreSchema:
    """Return the schema of a type of the contract. It accepts what `scenarios.contract.codec` accepts."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return _number(*arguments)
    if dataclasses.is_dataclass(kind):
        return _dataclass(typing.cast("type[Any]", kind))
    if origin in (typing.Union, types.UnionType):
        (only,) = (a for a in arguments if a is not type(None))
        return core_schema.nullable_schema(_schema(only))
    if origin is Literal:
        return core_schema.literal_schema(list(arguments))
    if origin is list:
        return core_schema.list_schema(_schema(arguments[0]), fail_fast=True)
    if origin is dict:
        return core_schema.dict_schema(core_schema.str_schema(), _schema(arguments[1]))
    if issubclass(kind, StrEnum):
        return core_schema.enum_schema(kind, list(kind), sub_type="str")
    scalars: dict[type, CoreSchema] = {
        int: core_schema.int_schema(),
        float: core_schema.float_schema(allow_inf_nan=False),
        bool: core_schema.bool_schema(),
        str: core_schema.str_schema(),
    }
    return scalars[kind]


def _number(kind: type, limits: Range) -> CoreSchema:
    if kind is int:
        return core_schema.int_schema(ge=int(limits.low), le=int(limits.high))
    return core_schema.float_schema(allow_inf_nan=False, ge=limits.low, le=limits.high)


def _dataclass(kind: type[Any]) -> CoreSchema:
    hints, names = typing.get_type_hints(kind, include_extras=True), [field.name for field in dataclasses.fields(kind)]
    fields = [core_schema.dataclass_field(name, _schema(hints[name])) for name in names]
    return core_schema.dataclass_schema(
        kind,
        core_schema.dataclass_args_schema(kind.__name__, fields),
        names,
        slots="__slots__" in vars(kind),
        config=core_schema.CoreConfig(extra_fields_behavior="forbid"),
    )
