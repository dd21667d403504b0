"""Read valid documents many times faster than `kit.model.document`, which explains what is wrong with the others.

Everything happens inside pydantic's compiled core, also the validation of the contract's types. Whatever looks unusual
counts as unreadable here, so a document that is read here is also valid for the slow reader, and equal.
"""

import dataclasses
import types
import typing
from enum import StrEnum
from typing import Any, Literal

import pydantic_core
from pydantic_core import CoreSchema, SchemaValidator, core_schema

from scenarios.contract.ranges import MAX_INT, Range

CONTRACT = "contract"  # in the metadata of a schema: the type that the codec validates there
# All digits become 0, and what stands before a number becomes a space.
SHAPES = bytes.maketrans(b"123456789\n\r\t:,[-", b"000000000       ")
# Else pydantic takes the existing validators of nested models, which validate the types of the contract in Python.
NO_PREBUILT = {"_use_prebuilt": False} if "_use_prebuilt" in (SchemaValidator.__text_signature__ or "") else {}
LONG = b" " + b"0" * len(str(MAX_INT))  # a whole number that may be above MAX_INT


class Unreadable(Exception):
    """The slow reader has to read this document."""


def compile_validator(schema: CoreSchema) -> SchemaValidator:
    """Return the validator of a document. schema: of its class."""
    return SchemaValidator(_compiled(schema), None, **NO_PREBUILT)


def read(validator: SchemaValidator, text: str | bytes, schema: int, max_names: int) -> Any:
    """Return a valid document. Raise Unreadable for others, and for some that are valid.

    schema: the only version that is read. max_names: of an object.
    """
    content = text.encode(errors="replace") if isinstance(text, str) else text
    try:
        data = pydantic_core.from_json(content, allow_inf_nan=False)
        if not (isinstance(data, dict) and data.get("schema") == schema and _is_usual(content, data, max_names)):
            raise Unreadable
        return validator.validate_json(content, strict=True)
    except ValueError as error:
        raise Unreadable from error


def _is_usual(content: bytes, data: dict[str, Any], max_names: int) -> bool:
    """Return whether no name is repeated within its object, and no whole number may be above MAX_INT."""
    if b"\\" in content and b'\\"' in content:  # then a quote may be part of a text
        return False
    outside = b"".join(content.split(b'"')[::2])
    return outside.count(b":") == _count_names(data, max_names) and LONG not in outside.translate(SHAPES)


def _count_names(part: Any, max_names: int) -> int:
    """Return the number of names in objects. It is too low for lists of mixed types and for objects that are too
    large."""
    if type(part) is dict:
        count = len(part) if len(part) <= max_names else 0
        for value in part.values():
            if type(value) is dict or type(value) is list:
                count += _count_names(value, max_names)
        return count
    if not part or type(part[0]) is not dict:
        return 0
    return sum([_count_names(item, max_names) for item in part if type(item) is dict])


def _compiled(schema: Any) -> Any:
    """Return a schema in which the core validates the contract's types, too."""
    if isinstance(schema, list):
        return [_compiled(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if kind := (schema.get("metadata") or {}).get(CONTRACT):
        return _schema(kind)
    return {name: _compiled(value) for name, value in schema.items()}


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
    hints, fields = typing.get_type_hints(kind, include_extras=True), []
    for field in dataclasses.fields(kind):
        schema = _schema(hints[field.name])
        if field.default is not dataclasses.MISSING:
            schema = core_schema.with_default_schema(schema, default=field.default)
        elif field.default_factory is not dataclasses.MISSING:
            schema = core_schema.with_default_schema(schema, default_factory=field.default_factory)
        fields.append(core_schema.dataclass_field(field.name, schema))
    arguments = core_schema.dataclass_args_schema(kind.__name__, fields)
    return core_schema.dataclass_schema(
        kind,
        arguments,
        [field.name for field in dataclasses.fields(kind)],
        slots="__slots__" in vars(kind),
        config=core_schema.CoreConfig(extra_fields_behavior="forbid"),
    )
