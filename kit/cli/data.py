"""kit data: manage the data sets on this machine."""

from pathlib import Path
from typing import Annotated

import typer

from kit.cli import options
from kit.cli.console import print_text, show, show_progress

app = typer.Typer(help="Fetch, add, verify and list data sets.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="DATASET", help="Data set. `kit data list` shows all.")]
Names = Annotated[list[str] | None, typer.Argument(metavar="[DATASET]...", help="Data sets. Default: all.")]


@app.command(epilog="Example: kit data fetch mnist cifar-10")
def fetch(names: Names = None) -> None:
    """Download, check and prepare data sets.

    Data sets that are ready are kept.
    """
    from kit.datasets import service
    from kit.model.formatting import format_count
    from kit.model.progress import Outcome
    from scenarios.spec import DATASETS

    wanted = names or [*DATASETS]
    service.require_known(*wanted)
    with show_progress() as progress, progress.phase("Data", len(wanted)) as phase:
        for name in wanted:
            phase.now(name)
            prepared = service.fetch(name, progress)
            progress.line(f"{name}: {prepared.source}")
            phase.advance(1)
        phase.end(Outcome(f"{format_count(len(wanted), 'data set')} ready"))


@app.command(epilog="Example: kit data add cats-dogs ~/photos/cats-dogs.zip")
def add(
    name: Name,
    path: Annotated[Path, typer.Argument(metavar="PATH", help="Folder or archive with the files of the data set.")],
) -> None:
    """Add a data set from your own files.

    Files are recognized by their content, so their names do not matter.
    """
    from kit.datasets import service
    from kit.model.formatting import format_bytes
    from kit.model.progress import Outcome

    service.require_known(name)
    with show_progress() as progress, progress.phase("Data") as phase:
        prepared = service.add(name, path, progress)
        found = f"{name}: {prepared.files:,} files, {format_bytes(prepared.bytes)}, {prepared.source}"
        phase.end(Outcome(found))


@app.command(epilog="Example: kit data verify mnist")
def verify(names: Names = None) -> None:
    """Check every file of prepared data sets by its hash.

    Without names, this checks all data sets that are ready.
    """
    from kit.datasets import service
    from scenarios.spec import DATASETS

    service.require_known(*names or ())
    ready = names or [name for name in DATASETS if service.status(name).prepared]
    if not ready:
        print_text("No data set is ready. `kit data fetch` downloads them.")
    for name in ready:
        service.verify(name)
        print_text(f"{name}: all files are unchanged")


@app.command("list", epilog="Example: kit data list --json")
def list_(as_json: options.Json = False) -> None:
    """List data sets with their source, or with the size of their download."""
    from kit.cli import listing

    show(as_json, *listing.data())
