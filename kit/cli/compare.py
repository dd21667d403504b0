"""kit compare, gate: the same cells of several runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kit.cli import options

if TYPE_CHECKING:
    from kit.analysis.comparison import Run
    from kit.cli.side_by_side import Section

app = typer.Typer()

BaseRun = Annotated[
    str, typer.Argument(metavar="BASE", help="The run to compare with: its folder, or its id below reports/.")
]


@app.command(epilog="Example: kit compare 20261120-110210-ab12 20261121-090000-cd34")
def compare(
    base: BaseRun,
    others: Annotated[list[str], typer.Argument(metavar="RUN", help="The runs to compare with it.")],
    as_json: options.Json = False,
) -> None:
    """Show how much faster or slower the same cells are in other runs, or on other machines.

    Cells that did other work (scenario, data, device, rounding) are refused, not compared; other versions, images,
    threads or profiles are flagged.
    """
    from kit.analysis.comparison import compare as compare_runs
    from kit.cli import side_by_side
    from kit.cli.console import print_notes, print_text

    runs = _read(base, *others)
    found = [compare_runs(runs[0], run) for run in runs[1:]]
    if as_json:
        options.print_json(side_by_side.comparison_json(runs, found))
        return
    print_notes(side_by_side.legend(runs))
    for index, comparisons in enumerate(found, start=1):
        print_text("")
        _show(side_by_side.comparison_section(comparisons, runs, index))


@app.command(epilog="Example: kit gate reports/before reports/after --max-regression 5%")
def gate(
    base: BaseRun,
    new: Annotated[str, typer.Argument(metavar="NEW", help="The run to judge.")],
    max_regression: Annotated[
        str, typer.Option("--max-regression", help="Loss of speed that is let pass, as 5% or 0.05.", metavar="SHARE")
    ] = "5%",
    as_json: options.Json = False,
) -> None:
    """End with exit code 1 where a run is slower than another, beyond the noise.

    A cell fails where its speed is below the base's by more than --max-regression and the whole 95 % interval of the
    ratio lies below 1; the mean over the cells of a framework on a device likewise. Of many cells some interval lies
    below 1 by chance: a share of 5 % guards against it, none (0 %) does not. Exit code 2: none fails so, but a cell is
    not comparable or no longer ok, or none has the launches to be judged.
    """
    from kit.analysis.comparison import gate as judge
    from kit.analysis.comparison import parse_share
    from kit.cli import side_by_side

    most = parse_share(max_regression)
    runs = _read(base, new)
    judged = judge(runs[0], runs[1], most)
    if as_json:
        options.print_json(side_by_side.gate_json(judged, runs))
    else:
        _show(side_by_side.gate_section(judged, runs))
    raise typer.Exit(judged.exit_code)


def _read(*names: str) -> list[Run]:
    """Raises UsageError where one is named twice: it equals itself, and a gate would let it pass whatever it holds."""
    from kit.analysis.comparison import Run
    from kit.model.errors import UsageError
    from kit.storage.run_folder import RunFolder
    from kit.storage.run_names import find_run

    runs: dict[str, Run] = {}
    for name in names:
        folder = RunFolder.open(find_run(name, options.DEFAULT_OUT))
        if folder.plan.run in runs:
            raise UsageError(f"The run {folder.plan.run} is named twice.", "Name different runs.")
        runs[folder.plan.run] = Run(folder.plan, folder.machine, folder.records())
    return list(runs.values())


def _show(section: Section) -> None:
    from kit.cli.console import print_notes, print_table

    print_table(section.columns, section.rows)
    print_notes(["", *section.notes])
