"""The files of a run as types: record, plan, machine. Versioned JSON; older versions are upgraded, newer refused.

A record holds the worker's own request and result unchanged, and beside them what the orchestrator knows: status,
reason, environment, machine, the log's tail. Records and machine name no host, user, home folder, serial or UUID
unless the run was made with `--identify`; the plan repeats what was typed, as the path given to `--env`.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from kit.model.errors import UsageError
from kit.model.plausible import MAX_WHOLE

SCHEMA = 1


class Document(BaseModel):
    """A versioned JSON file."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")

    schema_: int = SCHEMA
    noun: ClassVar[str] = ""
    remedy: ClassVar[str] = "Restore the file, or move it away and run again with --resume."

    def to_json(self) -> str:
        """JSON text with the version under `schema`."""
        fields = self.model_dump(mode="json")
        return json.dumps({"schema": fields.pop("schema_"), **fields}, indent=1, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes, source: str) -> Self:
        """Read any version up to ours. Raises UsageError naming `source` where it is newer or not such a file."""
        try:
            version, data = _version(_parse(text))
            if version > SCHEMA:
                raise UsageError(
                    f"{source} was written by a newer kit (schema {version}, this one reads up to {SCHEMA}).",
                    "Update kit, or read it with the version that wrote it.",
                )
            return cls.model_validate_json(json.dumps({"schema_": SCHEMA, **data}), strict=True)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise UsageError(
                f"{source} is not a valid {cls.noun or cls.__name__.lower()}: {_what_is_wrong(error)}.",
                cls.remedy,
            ) from error


def _parse(text: str | bytes) -> Any:
    """What JSON text holds. Raises ValueError, RecursionError; for numbers, too, that kit never writes and arithmetic
    fails of: NaN, infinity, and whole numbers above MAX_WHOLE; and for a name that an object has twice."""
    return json.loads(
        text, parse_constant=_finite, parse_float=_finite, parse_int=_whole, object_pairs_hook=_without_twins
    )


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twin = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise ValueError(f"{twin!r:.100} is there twice in one object")
    return found


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"it holds the number {text:.20}")
    return number


def _whole(text: str) -> int:
    if abs(number := int(text)) > MAX_WHOLE:
        raise ValueError(f"it holds the number {text:.20}")
    return number


def _version(document: Any) -> tuple[int, dict[str, Any]]:
    """The version of a document, and all else in it. Raises ValueError."""
    version = document.pop("schema", None) if isinstance(document, dict) else None
    if type(version) is not int or version < 1:
        raise ValueError(f"its schema is {version!r}, which is no version")
    return version, document


def _what_is_wrong(error: Exception) -> str:
    """In one line; of many faults the first."""
    if not isinstance(error, ValidationError):
        return " ".join(str(error).split())
    first = error.errors(include_url=False)[0]
    message = first["msg"].removeprefix("Value error, ")
    return f"{'.'.join(map(str, first['loc']))}: {message}".removeprefix(": ")


class Part(BaseModel):
    """A part of a document."""

    model_config = ConfigDict(frozen=True, extra="forbid")
