"""kit settings, clean: save the settings of a run, and remove leftovers."""

from pathlib import Path
from typing import Annotated

import typer

from kit.cli import options
from kit.cli.console import print_text

app = typer.Typer()


@app.command(epilog="Example: kit settings 20261120-110210-ab12 --out settings.json")
def settings(
    name: options.RunName,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the settings to this file.")] = None,
) -> None:
    """Print the settings of a run's tuned cells as JSON.

    `kit run --settings` reads the file that --out writes.
    """
    from kit.storage.pins import collect_pins, write_pins

    folder = options.open_run(name)
    found = collect_pins(folder.read(), folder.retry_command)
    if out is None:
        print_text(found.to_json().rstrip())
        return
    write_pins(out, found)
    print_text(f"Settings of {len(found.cells)} cells: {out}")


@app.command(epilog="Example: kit clean --images")
def clean(
    images: Annotated[bool, typer.Option("--images", help="Also remove all images that kit built.")] = False,
    environments: Annotated[
        bool, typer.Option("--environments", help="Also remove all environments of the local engine.")
    ] = False,
) -> None:
    """Remove what dead runs and killed commands left behind.

    These are containers, processes and scratch folders. Runs, records and data sets stay.
    """
    from kit.execution.clean import clean

    sources = options.Packages().sources()
    removed = False
    for line in clean(sources, images=images, environments_too=environments):
        print_text(line)
        removed = True
    if not removed:
        print_text("Nothing was left behind.")
