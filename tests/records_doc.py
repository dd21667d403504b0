"""Generate docs/records.md from the types: `python -m tests.records_doc`. A test keeps the page current."""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from enum import StrEnum
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from kit.model.machine import Machine
from kit.model.pack import Manifest
from kit.model.plan import Pins, Plan
from kit.model.record import Record
from kit.model.run_summary import RunSummary
from scenarios.contract.augmented import MAX_PICTURE_BYTES
from scenarios.contract.ranges import Range
from scenarios.contract.reasons import Code
from scenarios.contract.request import Request
from scenarios.contract.result import Result
from scenarios.weights_file import FORMAT, About

PAGE = Path(__file__).parents[1] / "docs" / "records.md"
FILES = {
    "plan.json": Plan,
    "machine.json": Machine,
    "records/, probes/, tuning/": Record,
    "request.json": Request,
    "result.json": Result,
    "settings.json": Pins,
    "summary.json": RunSummary,
    "manifest.json": Manifest,
}
HEAD = """# File formats

This page is generated from the types with `make docs`. Do not edit it by hand.

A run is a folder. `plan.json` and `machine.json` are written before the first launch. Each launch leaves one record in
`records/` (cells), `probes/` (the machine's ceilings) or `tuning/` (searches for settings). `request.json` and
`result.json` are exchanged with the worker and become parts of the record. All these files are JSON with a `schema`
number. kit refuses unknown names, wrong types and numbers out of range. Times are in seconds unless the name ends in
`_ms`. The progress of the run is in `run.log`. Each line of this text begins with its time in UTC. `logs/` has
the output of each launch. `run.lock` and `work/` are for a run that is being measured. `index.html` is the
report, and `summary.json` what the index of runs says about it. `manifest.json` is the first file of a pack.

[exports.md](exports.md) describes the tables that `kit export` makes of a run.
"""

WEIGHTS = f"""## Files of weights

The files in `weights/` are safetensors. Their tensors are named `<layer>/kernel` and `<layer>/bias`, where layers are
numbered from 0 as in the scenario, and are float32. A kernel of a convolution is (height, width, in, out), that of a
dense layer (in, out). The rows of a dense layer after a convolution are in the order height, width, channel. The
metadata are texts: `format` is `{FORMAT}`, and {", ".join(f"`{name}`" for name in About.__dataclass_fields__)}.

{inspect.cleandoc(About.__doc__ or "")}

`checkpoints/` has one folder for each launch that did not end `ok`. Its files are for `--resume` only.

## Pictures

The files in `pictures/` are JPEG files of at most {MAX_PICTURE_BYTES:,} bytes, named by their SHA-256. They show
augmented photos of the synthetic set. The first launch of each cell with augmentation makes one, and its record names
it. A report contains only pictures whose SHA-256 a record names.
"""


def make_page() -> str:
    """Return the text of the page."""
    sections = [HEAD]
    pending: list[type] = list(FILES.values())
    known: list[type] = []
    while pending:
        kind = pending.pop(0)
        if kind in known:
            continue
        known.append(kind)
        section, nested = describe(kind)
        sections.append(section)
        pending = nested + pending
    return "\n".join([*sections, WEIGHTS, codes()])


def describe(kind: type) -> tuple[str, list[type]]:
    """Return the section of one type, and the types that it contains."""
    files = [name for name, document in FILES.items() if document is kind]
    title = f"## {kind.__name__}" + "".join(f" (`{name}`)" for name in files)
    rows, nested = [], list[type]()
    hints = typing.get_type_hints(kind, include_extras=True)
    for name, required in field_names(kind).items():
        text, inner = type_text(hints[name])
        nested += inner
        rows.append(f"| `{name.removesuffix('_')}` | {text} | {'' if required else 'optional'} |")
    lines = [title, "", inspect.cleandoc(kind.__doc__ or ""), "", "| Field | Type | |", "|---|---|---|", *rows, ""]
    return "\n".join(lines), nested


def field_names(kind: type) -> dict[str, bool]:
    """Return the fields of a type and whether each must be in the file."""
    if issubclass(kind, BaseModel):
        return {name: field.is_required() for name, field in kind.model_fields.items()}
    missing = dataclasses.MISSING
    return {f.name: f.default is missing and f.default_factory is missing for f in dataclasses.fields(kind)}


def type_text(kind: Any) -> tuple[str, list[type]]:
    """Return a type as text, and the types of the contract or model that it contains."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        text, nested = type_text(arguments[0])
        limits = [part for part in arguments[1:] if isinstance(part, Range)]
        return text + "".join(f", {part.low:g} to {part.high:g}" for part in limits), nested
    if origin in (typing.Union, types.UnionType):
        parts = [type_text(each) for each in arguments]
        return " or ".join(text for text, _ in parts), [inner for _, nested in parts for inner in nested]
    if origin is typing.Literal:
        return " or ".join(f"`{value!r}`".replace("'", '"') for value in arguments), []
    if origin in (list, tuple):
        text, nested = type_text(arguments[0])
        return f"list of {text}", nested
    if origin is dict:
        text, nested = type_text(arguments[1])
        return f"object: name to {text}", nested
    if kind is type(None):
        return "null", []
    if issubclass(kind, StrEnum):
        return " or ".join(f'`"{member}"`' for member in kind) if kind is not Code else "a code, see below", []
    if dataclasses.is_dataclass(kind) or issubclass(kind, BaseModel):
        return f"[{kind.__name__}](#{kind.__name__.lower()})", [kind]
    return {str: "text", int: "integer", float: "number", bool: "true or false"}[kind], []


def codes() -> str:
    """Return the section about the reasons of launches that did not end `ok`."""
    rows = [f"| `{code}` | `{code.status}` | {code.exit_code} | {code.remedy} |" for code in Code]
    head = ["## Reason codes", "", "| Code | Status | Exit code | Default remedy |", "|---|---|---|---|"]
    return "\n".join([*head, *rows, ""])


if __name__ == "__main__":
    PAGE.write_text(make_page(), encoding="utf-8")
