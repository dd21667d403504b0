"""kit data: the data sets on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kit.cli import options

app = typer.Typer(help="Fetch, add, verify and list data sets.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="DATASET", help="The data set; `kit data list` shows all.")]
Names = Annotated[list[str] | None, typer.Argument(metavar="[DATASET]...", help="Data sets; all where none is named.")]


@app.command(epilog="Example: kit data fetch mnist cifar-10")
def fetch(names: Names = None) -> None:
    """Download, check and prepare data sets; what is here already is kept."""
    from kit.cli.console import show_progress
    from kit.datasets import service
    from scenarios.spec import DATASETS

    with show_progress() as progress:
        for name in names or DATASETS:
            prepared = service.fetch(name, progress)
            progress.line(f"{name}: {prepared.source}")


@app.command(epilog="Example: kit data add cats-dogs ~/photos/cats-dogs.zip")
def add(
    name: Name,
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A folder or archive that holds it.")],
) -> None:
    """Take a data set from files that you have. It is known by its content; names do not matter."""
    from kit.cli.console import show_progress
    from kit.datasets import service
    from kit.model.units import format_bytes

    with show_progress() as progress:
        prepared = service.add(name, path, progress)
        progress.line(f"{name}: {prepared.files:,} files, {format_bytes(prepared.bytes)}, {prepared.source}")


@app.command(epilog="Example: kit data verify mnist")
def verify(names: Names = None) -> None:
    """Hash every file of prepared data sets again; of all that are here where none is named."""
    from kit.datasets import service
    from scenarios.spec import DATASETS

    here = names or [name for name in DATASETS if service.status(name).prepared]
    if not here:
        typer.echo("No data set is here; `kit data fetch` downloads them.")
    for name in here:
        service.verify(name)
        typer.echo(f"{name}: every file is as it was prepared")


@app.command("list", epilog="Example: kit data list --json")
def list_(as_json: options.Json = False) -> None:
    """Show which data sets are here, where from, and what the others would cost."""
    from kit.cli import listing
    from kit.cli.console import print_table

    found = listing.data()
    if as_json:
        options.print_json(found.entries)
    else:
        print_table(found.columns, found.rows)
