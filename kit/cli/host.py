"""kit doctor, list, clean: what concerns the machine, not a run."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from kit.cli import options

app = typer.Typer()


@app.command(epilog="Example: kit doctor --json")
def doctor(
    out: options.Out = options.DEFAULT_OUT,
    base_image: options.BaseImage = "",
    index_url: options.IndexUrl = "",
    find_links: options.FindLinks = "",
    ca_bundle: options.CaBundle = "",
    as_json: options.Json = False,
) -> None:
    """Look whether this machine is ready: engines, GPUs, toolkit, disk, cores, memory, load, data. Takes seconds,
    builds nothing. Exit code 1 where something is an error."""
    from kit import doctor
    from kit.cli.console import Column, print_table

    sources = options.sources(base_image=base_image, index_url=index_url, find_links=find_links, ca_bundle=ca_bundle)
    findings = doctor.examine(sources, out)
    if as_json:
        options.print_json([asdict(finding) for finding in findings])
    else:
        print_table((Column(""), Column("Check"), Column("Finding")), doctor.table(findings))
    if any(finding.level is doctor.Level.ERROR for finding in findings):
        raise typer.Exit(1)


@app.command("list", epilog="Example: kit list scenarios")
def list_(
    kind: Annotated[str, typer.Argument(help="scenarios, frameworks or datasets; all where left out.")] = "",
    as_json: options.Json = False,
) -> None:
    """List scenarios with their variants, frameworks and data sets."""
    from kit.cli import listing
    from kit.cli.console import print_table

    listings = listing.choose(kind)
    if as_json:
        options.print_json({name: found.entries for name, found in listings.items()})
        return
    for number, found in enumerate(listings.values()):
        if number:
            typer.echo()
        print_table(found.columns, found.rows)


@app.command(epilog="Example: kit clean --images")
def clean(
    images: Annotated[bool, typer.Option("--images", help="Remove all images that kit built, too.")] = False,
    environments: Annotated[
        bool, typer.Option("--environments", help="Remove all environments of the local engine, too.")
    ] = False,
) -> None:
    """Remove what dead runs left behind: containers and processes. Runs, records and data stay."""
    from kit.execution.clean import clean

    for line in clean(options.sources(), images=images, environments_too=environments) or ["Nothing was left behind."]:
        typer.echo(line)
