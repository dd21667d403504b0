"""kit doctor, list: this machine, and what kit can measure."""

from dataclasses import asdict
from typing import Annotated

import typer

from kit.cli import options
from kit.cli.console import Column, print_json, print_table, print_text, show
from kit.cli.groups import with_groups
from kit.cli.values import choices

app = typer.Typer()


Kind = choices("kind", "scenarios", "frameworks", "datasets")


@app.command(epilog="Example: kit doctor --json")
@with_groups
def doctor(packages: options.Packages, out: options.Out = options.DEFAULT_OUT, as_json: options.Json = False) -> None:
    """Check whether this machine is ready.

    The checks take a few seconds and build nothing. They cover engines, GPUs, NVIDIA's toolkit, disks, CPUs, memory,
    load and data sets. Exit code 1 if a check finds an error.
    """
    from kit import doctor

    findings = doctor.examine(packages.sources(), out)
    columns = (Column(""), Column("Check"), Column("Finding"))
    show(
        as_json,
        [asdict(finding) for finding in findings],
        columns,
        doctor.table(findings),
        [doctor.conclusion(findings)],
    )
    if any(finding.level is doctor.Level.ERROR for finding in findings):
        raise typer.Exit(1)


@app.command("list", epilog="Example: kit list scenarios")
def list_(
    kind: Annotated[
        str | None, typer.Argument(metavar="KIND", parser=Kind, help=f"{Kind.listed()}. Default: all.")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """List the scenarios, the frameworks and the data sets."""
    from kit.cli import listing

    makers = {"scenarios": listing.scenarios, "frameworks": listing.frameworks, "datasets": listing.datasets}
    listings = {name: make() for name, make in makers.items() if kind in {None, name}}
    if as_json:
        print_json({name: found.entries for name, found in listings.items()})
        return
    for number, found in enumerate(listings.values()):
        if number:
            print_text("")
        print_table(found.columns, found.rows, found.notes)
