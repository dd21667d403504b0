"""Group the options of a command: shared options are declared once, and the help has one section per group."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any, get_type_hints

import typer
from typer.core import TyperCommand

GROUPS = ("Arguments", "Select", "Duration", "Machine", "Packages", "Output", "Options")
ARGUMENTS, SELECT, DURATION, MACHINE, PACKAGES, OUTPUT, OPTIONS = GROUPS


class GroupedCommand(TyperCommand):
    """A command whose help has one section for each `rich_help_panel`. Rich itself would delay the start by 0.2 s."""

    def format_options(self, ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override]
        """Write all sections with one common column width. Arguments are shown without their type."""
        sections: dict[str, list[tuple[str, str]]] = {group: [] for group in GROUPS}
        for parameter in self.get_params(ctx):
            if record := parameter.get_help_record(ctx):
                if parameter.param_type_name == "argument":
                    sections[ARGUMENTS].append((str(parameter.metavar), record[1]))
                else:
                    sections[getattr(parameter, "rich_help_panel", None) or OPTIONS].append(record)
        width = max(len(name) for records in sections.values() for name, _ in records)
        for group in filter(sections.get, GROUPS):
            with formatter.section(group):
                formatter.write_dl([(name.ljust(width), text) for name, text in sections[group]])


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with the fields of a dataclass in place of each parameter that is annotated with a dataclass.

    Typer reads the new signature and passes one keyword argument per field.
    """
    hints = get_type_hints(command, include_extras=True)
    groups = {name: hint for name, hint in hints.items() if isinstance(hint, type) and is_dataclass(hint)}
    parameters = []
    for parameter in inspect.signature(command).parameters.values():
        if group := groups.get(parameter.name):
            annotations = get_type_hints(group, include_extras=True)
            parameters += [
                parameter.replace(name=field.name, default=field.default, annotation=annotations[field.name])
                for field in fields(group)
            ]
        else:
            parameters.append(parameter.replace(annotation=hints[parameter.name]))

    @functools.wraps(command)
    def call(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        command(**values)

    call.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [parameter.replace(kind=parameter.KEYWORD_ONLY) for parameter in parameters]
    )
    return call
