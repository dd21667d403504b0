"""Every option that several commands share, declared once."""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, get_args

import typer
from typer import Option

from kit.model.errors import UsageError, unknown

if TYPE_CHECKING:
    from kit.environments.package_sources import Sources
    from kit.planning.selection import Selection

DataKind = Literal["auto", "real", "synthetic"]
DATA_KINDS: tuple[DataKind, ...] = get_args(DataKind)
DEFAULT_ENGINE, DEFAULT_PROFILE, DEFAULT_OUT = "auto", "quick", Path("reports")

Everything = Annotated[
    bool,
    typer.Option("--all", help="All that the other options do not narrow down: scenarios, frameworks, devices."),
]
Scenario = Annotated[list[str] | None, Option("--scenario", help="A scenario; may be repeated.", metavar="NAME")]
Variant = Annotated[
    list[str] | None, Option("--variant", help="A variant of it, or `default`; may be repeated.", metavar="NAME")
]
Framework = Annotated[list[str] | None, Option("--framework", help="A framework; may be repeated.", metavar="NAME")]
Device = Annotated[list[str] | None, Option("--device", help="cpu or cuda; may be repeated.", metavar="NAME")]
Lane = Annotated[list[str] | None, Option("--lane", help="stock (default) or tuned; may be repeated.", metavar="NAME")]
Precision = Annotated[
    list[str] | None, Option("--precision", help="fp32 (default), tf32 or bf16; may be repeated.", metavar="NAME")
]
Batch = Annotated[
    list[int] | None, Option("--batch", help="Batch size instead of the scenario's; may be repeated.", metavar="N")
]

Profile = Annotated[str, Option("--profile", help="smoke, quick, standard or full.", metavar="NAME")]
Epochs = Annotated[
    int | None, Option("--epochs", help="Epochs in the full profile, instead of the published ones.", metavar="N")
]
MeasuringBudget = Annotated[
    str,
    Option(
        "--budget",
        help="Standard profile: longest time of all launches; five a cell are made in any case. As 30m.",
        metavar="TIME",
    ),
]
Tune = Annotated[
    str,
    Option("--tune", help="Tuned lane: time of the search for a cell's settings; 60s (default).", metavar="TIME"),
]
Settings = Annotated[
    Path | None,
    Option(help="Tuned lane: settings to measure with, a file of `kit settings`.", metavar="FILE", show_default=False),
]
Engine = Annotated[str, Option("--engine", help="auto, docker, podman or local.", metavar="NAME")]
Env = Annotated[
    str,
    Option(
        "--env",
        help="Local engine: `system` or an interpreter's path, to use the packages it has.",
        metavar="PYTHON",
    ),
]
Data = Annotated[str, Option("--data", help="auto, real or synthetic.", metavar="KIND")]
Out = Annotated[Path, Option("--out", help="Folder that takes the runs.", metavar="FOLDER")]
Seed = Annotated[int, Option("--seed", help="Seed of weights, order and augmentation.", metavar="N")]
Json = Annotated[bool, Option("--json", help="Print JSON on stdout and no progress.")]

BaseImage = Annotated[
    str, Option(help="Image to build on, as KIT_BASE_IMAGE does.", metavar="IMAGE", show_default=False)
]
IndexUrl = Annotated[str, Option(help="Package index, as KIT_INDEX_URL does.", metavar="URL", show_default=False)]
FindLinks = Annotated[
    str, Option(help="Page or folder with further wheels, as KIT_FIND_LINKS does.", metavar="URL", show_default=False)
]
CaBundle = Annotated[
    str, Option(help="PEM file of a proxy's certificates, as KIT_CA_BUNDLE does.", metavar="FILE", show_default=False)
]


def selection(
    scenario: list[str] | None,
    variant: list[str] | None,
    framework: list[str] | None,
    device: list[str] | None,
    lane: list[str] | None,
    precision: list[str] | None,
    batch: list[int] | None,
) -> Selection:
    """The selection that the options make; an option not given is None."""
    from kit.planning.selection import Selection

    def named(values: list[str] | None) -> tuple[str, ...] | None:
        return tuple(values) if values else None

    return Selection(
        scenarios=named(scenario),
        variants=named(variant),
        frameworks=named(framework),
        devices=named(device),
        lanes=named(lane),
        precisions=named(precision),
        batches=tuple(batch) if batch else None,
    )


def data_kind(name: str) -> DataKind:
    """The kind of data of that name. Raises UsageError."""
    for kind in DATA_KINDS:
        if kind == name:
            return kind
    raise unknown("kind of data", name, DATA_KINDS)


def require_choice(selection: Selection, *, everything: bool, retry_failed: bool) -> None:
    """Raise UsageError where a run has neither --all nor a selection, or --retry-failed without --resume."""
    if retry_failed:
        raise UsageError("--retry-failed repeats launches of an earlier run.", "Name that run by --resume RUN.")
    if not everything and all(part is None for part in vars(selection).values()):
        raise UsageError(
            "Say what to run.",
            "Everything: `kit run --all`. A selection: `kit run --scenario mnist-cnn --framework torch` "
            "(`kit list` shows what there is).",
        )


def refuse_others(context: typer.Context, allowed: Collection[str], option: str) -> None:
    """Raise UsageError where other options than the allowed ones were typed beside `option`."""
    for parameter in context.command.params:
        source = context.get_parameter_source(str(parameter.name))
        if source is not None and source.name == "COMMANDLINE" and parameter.name not in allowed:
            raise UsageError(
                f"{option} takes the plan as it was made, so that {parameter.opts[0]} cannot change it.",
                f"Leave {parameter.opts[0]} out, or start a new run without {option}.",
            )


def sources(base_image: str = "", index_url: str = "", find_links: str = "", ca_bundle: str = "") -> Sources:
    """Where packages come from: options before environment variables. Raises UsageError."""
    from kit.environments.package_sources import Sources

    given = {
        "KIT_BASE_IMAGE": base_image,
        "KIT_INDEX_URL": index_url,
        "KIT_FIND_LINKS": find_links,
        "KIT_CA_BUNDLE": ca_bundle,
    }
    return Sources.from_environment(dict(os.environ) | {name: value for name, value in given.items() if value})


def print_json(value: object) -> None:
    """Print on stdout what a program asked for."""
    from kit.cli.console import print_text

    print_text(json.dumps(value, indent=1, allow_nan=False))
