"""kit study: the published studies that kit can repeat."""

from typing import Annotated

import typer

from kit.cli import options
from kit.cli.console import print_json, print_notes, print_remark, print_table, print_text, show
from kit.model.errors import UsageError

app = typer.Typer(help="List and show the published studies that kit can repeat.", no_args_is_help=True)


@app.command("list", epilog="Example: kit study list")
def list_(as_json: options.Json = False) -> None:
    """List the studies.

    Exit code 2: the file of a study is not valid. The others are listed.
    """
    from kit.cli import study_pages
    from kit.planning import studies

    known, faults = studies.load_valid()
    found = known.values()
    notes = ["`kit study show NAME` shows a study, and `kit run --study NAME` repeats it."]
    rows = [study_pages.row(study) for study in found]
    show(as_json, [study_pages.summary(study) for study in found], study_pages.COLUMNS, rows, notes)
    for fault in faults.values():
        print_remark(str(fault))
    if faults:
        raise typer.Exit(UsageError.exit_code)


@app.command("show", epilog="Example: kit study show mnist-cpu-vs-gpu")
def show_(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Study. `kit study list` shows all.")],
    as_json: options.Json = False,
) -> None:
    """Show a study: its cells, tables, charts, times and published figures."""
    from kit.cli import study_pages
    from kit.planning import studies

    study = studies.load([name])[name]
    if as_json:
        print_json(study_pages.as_json(study))
        return
    print_notes(study_pages.head(study))
    for title, columns, rows in study_pages.tables(study):
        print_text(f"\n{title}")
        print_table(columns, rows)
    print_notes(study_pages.foot(study))
