"""kit index, export, pack, unpack: give runs and their results to other people and programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kit.cli import options
from kit.cli.console import print_remark, print_text, show_progress
from kit.cli.values import choices
from kit.model.errors import UsageError
from kit.model.formatting import format_count

app = typer.Typer()

Format = choices("format", "csv", "parquet", "json", "markdown")
Rows = choices("kind of row", "cells", "launches")


@app.command(epilog="Example: kit index reports")
def index(
    folder: Annotated[
        Path,
        typer.Argument(metavar="FOLDER", help="Folder that contains runs.  [default: reports]", show_default=False),
    ] = options.DEFAULT_OUT,
) -> None:
    """Write a page that lists all runs in a folder.

    The page is index.html in the folder. It shows machine, date, profile, result and warnings of each run, can be
    sorted and filtered, and links to the reports. `kit run`, `kit report` and `kit unpack` keep it up to date. This
    command also writes reports that are missing or older than the records.
    """
    from kit.execution.reporting import refresh_index

    with show_progress() as progress:
        page = refresh_index(folder, progress)
    print_text(f"Index: {page}")


@app.command(epilog="Example: kit export 20261120-110210-ab12 --to csv --out cells.csv")
def export(
    name: options.RunName,
    to: Annotated[str, typer.Option(metavar="FORMAT", parser=Format, help=f"{Format.listed()}.")],
    rows: Annotated[
        str, typer.Option(metavar="KIND", parser=Rows, help=f"One row for each: {Rows.listed()}.")
    ] = "cells",
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File to write. Default: print the table. Parquet needs it.")
    ] = None,
) -> None:
    """Write the results of a run as a table for other programs.

    docs/exports.md describes the columns. Parquet needs the package pyarrow. Markdown has the main columns only, and
    fits a comment on a pull request.
    """
    from kit.analysis.tidy import cell_table, launch_table
    from kit.report import exports

    if out is None and to == "parquet":
        raise UsageError("A Parquet file cannot be printed.", "Name a file with --out.")
    run = options.open_run(name).read()
    table = launch_table(run) if rows == "launches" else cell_table(run)
    content = exports.to_parquet(table) if to == "parquet" else exports.TEXTS[to](table, run)
    if out is None:
        print_text(str(content).rstrip("\n"))
        return
    exports.write_export(out, content)
    print_text(f"Table with {format_count(len(table.rows), 'row')}: {out}")


@app.command(epilog="Example: kit pack 20261120-110210-ab12")
def pack(
    name: options.RunName,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="File to write. Default: RUN.tar.xz here.")] = None,
) -> None:
    """Write all that the report of a run needs into one file.

    `kit unpack` unpacks it elsewhere. The file has the plan, the machine, all records and the pictures of augmented
    synthetic photos, with their hashes. It has no logs and no trained weights.
    """
    from kit.storage import packs

    folder = options.open_run(name)
    target = out or Path(f"{folder.plan.run}{packs.SUFFIX}")
    with show_progress() as progress:
        packs.write_pack(folder, target, progress)
    print_text(f"Pack: {target}")


@app.command(epilog="Example: kit unpack 20261120-110210-ab12.tar.xz")
def unpack(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File that `kit pack` wrote.")],
    out: options.Out = options.DEFAULT_OUT,
) -> None:
    """Unpack a run that `kit pack` packed, and write its report.

    The run gets its own folder in FOLDER. A pack that is damaged, altered or too large is refused, and leaves nothing.
    """
    from kit.execution.reporting import report, update_index
    from kit.storage.run_folder import RunFolder
    from kit.storage.unpacking import unpack as unpack_run

    with show_progress() as progress:
        folder = unpack_run(file, out, progress)
    outcome = report(RunFolder.open(folder))
    if note := update_index(folder):
        print_remark(note)
    print_text(f"Run: {folder}\nReport: {outcome.report}")
