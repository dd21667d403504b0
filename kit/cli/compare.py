"""kit compare, gate: compare the same cells of several runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kit.cli import options
from kit.cli.console import print_json, print_notes, print_table, print_text, show
from kit.cli.values import parse_share

if TYPE_CHECKING:
    from kit.model.run import Run

app = typer.Typer()

BaseRun = Annotated[str, typer.Argument(metavar="BASE", help="Base run: its folder, or its id below reports/.")]


@app.command(epilog="Example: kit compare 20261120-110210-ab12 20261121-090000-cd34")
def compare(
    base: BaseRun,
    others: Annotated[list[str], typer.Argument(metavar="RUN", help="Runs to compare with BASE.")],
    as_json: options.Json = False,
) -> None:
    """Compare the speed of the same cells in two or more runs.

    Cells that did different work (scenario, data, device, rounding) are refused. Different versions, images, threads
    or profiles are flagged.
    """
    from kit.analysis.comparison import compare as compare_runs
    from kit.cli import side_by_side

    runs = _read(base, *others)
    found = [compare_runs(runs[0], run) for run in runs[1:]]
    if as_json:
        print_json(side_by_side.comparison_json(runs, found))
        return
    print_notes(side_by_side.legend(runs))
    for index, comparisons in enumerate(found, start=1):
        print_text("")
        print_table(*side_by_side.comparison_section(comparisons, runs, index))


@app.command(epilog="Example: kit gate reports/before reports/after --max-regression 5%")
def gate(
    base: BaseRun,
    new: Annotated[str, typer.Argument(metavar="NEW", help="Run to judge.")],
    max_regression: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            parser=parse_share,
            help="Allowed loss of speed.  [default: 5%]",
            show_default=False,
        ),
    ] = 0.05,
    allow_inconclusive: Annotated[
        bool, typer.Option("--allow-inconclusive", help="End with exit code 0 instead of 7.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Fail if a run is slower than another by more than the noise.

    First, all cells are judged together. Then, each cell is judged relative to the others. For each cell the table
    shows the smallest loss that the data would have revealed in 80 % of cases.

    Exit code 1: a cell, or all cells together, became slower than allowed. Exit code 2: nothing is slower, but a cell
    is not comparable or no longer ok. Exit code 7: the data could not have shown the allowed loss.
    """
    from kit.analysis.gate import INCONCLUSIVE_CODE
    from kit.analysis.gate import gate as judge
    from kit.cli import side_by_side

    runs = _read(base, new)
    judged = judge(runs[0], runs[1], max_regression)
    show(as_json, side_by_side.gate_json(judged, runs), *side_by_side.gate_section(judged, runs))
    raise typer.Exit(0 if allow_inconclusive and judged.exit_code == INCONCLUSIVE_CODE else judged.exit_code)


def _read(*names: str) -> list[Run]:
    """Read runs. Raise UsageError if a run is named twice, because a gate would always pass it."""
    from kit.model.errors import UsageError

    runs: dict[str, Run] = {}
    for name in names:
        folder = options.open_run(name)
        if folder.plan.run in runs:
            raise UsageError(f"The run {folder.plan.run} is named twice.", "Name different runs.")
        runs[folder.plan.run] = folder.read()
    return list(runs.values())
