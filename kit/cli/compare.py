"""kit compare, gate: compare the same cells of several runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kit.cli import options
from kit.cli.console import open_page, print_json, print_notes, print_table, print_text, show_progress
from kit.cli.values import parse_share, parse_whole
from kit.model.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kit.analysis.comparison import Comparison
    from kit.analysis.gate import GateResult
    from kit.analysis.pairing import Measure
    from kit.model.run import Run

app = typer.Typer()

MAX_REGRESSION = 0.05
CONFIRM_ROUNDS = 8

Inference = Annotated[
    bool, typer.Option("--inference", help="Use inference (images/s at a large batch size) instead of training.")
]
BaseRun = Annotated[str, typer.Argument(metavar="BASE", help="Base run: its folder, or its id below reports/.")]


@app.command(epilog="Example: kit compare 20261120-110210-ab12 20261121-090000-cd34")
def compare(
    base: BaseRun,
    others: Annotated[list[str], typer.Argument(metavar="RUN", help="Runs to compare with BASE.")],
    inference: Inference = False,
    label: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=RUN", help="Name of the machine of a run. Repeatable. Default: A, B and so on."),
    ] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write a page that compares the machines.")] = (
        None
    ),
    price: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PRICE",
            help="Page: price of an hour of a machine, as NAME=0.19/h or NAME=0.19EUR/h. NAME/cpu and NAME/cuda are "
            "prices of one device. Repeatable.",
        ),
    ] = None,
    prices: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Page: TOML file with prices, their currency, date and source.")
    ] = None,
    open_html: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    as_json: options.Json = False,
) -> None:
    """Compare the speed of the same cells in two or more runs.

    Cells that did different work (scenario, data, device, rounding) are refused. Different versions, images, threads
    or profiles are flagged.

    With --html, a page also shows what differs between the machines, and with prices, what the work costs on each.
    """
    from kit.analysis.comparison import compare as compare_runs
    from kit.cli import comparison_json, machines

    if html is None and (price or prices or open_html):
        raise UsageError("--price, --prices and --open need a page.", "Add --html FILE.")
    names = [base, *others]
    labels = machines.labels_of(label or (), names)
    measure, runs = _measure(inference=inference), _read(*names)
    if html:
        compared = machines.write_page(html, runs, labels, measure, price or (), prices)
    else:
        compared = [compare_runs(runs[0], run, measure) for run in runs[1:]]
    found = [(run, measure, comparisons) for run, comparisons in zip(runs[1:], compared, strict=True)]
    if as_json:
        print_json(comparison_json.comparison_json(runs, found, labels))
    else:
        _show(runs, found, labels)
        if html:
            print_text(f"\nPage: {html}")
    if html and open_html:
        open_page(html)


def _show(
    runs: Sequence[Run], found: Sequence[tuple[Run, Measure, Sequence[Comparison]]], labels: Sequence[str]
) -> None:
    from kit.cli import side_by_side

    print_notes(side_by_side.legend(runs, labels))
    for index, (_, measure, comparisons) in enumerate(found, start=1):
        print_text("")
        print_table(*side_by_side.comparison_section(comparisons, runs, index, measure, labels))


@app.command(epilog="Example: kit gate reports/before reports/after --max-regression 5%")
def gate(
    base: BaseRun,
    new: Annotated[str, typer.Argument(metavar="NEW", help="Run to judge.")],
    max_regression: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            parser=parse_share,
            help=f"Allowed loss of speed.  [default: {MAX_REGRESSION:.0%}]",
            show_default=False,
        ),
    ] = MAX_REGRESSION,
    allow_inconclusive: Annotated[
        bool, typer.Option("--allow-inconclusive", help="End with exit code 0 instead of 7.")
    ] = False,
    confirm: Annotated[
        bool, typer.Option("--confirm", help="Measure cells that raise an alarm again. Fail only if they confirm it.")
    ] = False,
    rounds: Annotated[
        int | None,
        typer.Option(metavar="N", parser=parse_whole, help=f"With --confirm: rounds. Default: {CONFIRM_ROUNDS}."),
    ] = None,
    inference: Inference = False,
    as_json: options.Json = False,
) -> None:
    """Fail if a run is slower than another by more than the noise.

    First, all cells are judged together. Then, each cell is judged relative to the others. For each cell the table
    shows the smallest loss that the data would have revealed in 80% of cases.

    With --confirm, an alarm is not enough: fresh quick launches of its cells, in the environments of both runs and in
    the same rounds, must raise it again.

    The rates of false alarms hold for training and for inference separately. To judge both, run the gate twice.

    Exit code 1: a cell, or all cells together, became slower than allowed. Exit code 2: nothing is slower, but a cell
    is not comparable or no longer ok. Exit code 7: the data could not have shown the allowed loss.
    """
    from kit.analysis.gate import INCONCLUSIVE_CODE, exit_code_after
    from kit.analysis.gate import gate as judge
    from kit.analysis.intervals import MIN_LAUNCHES
    from kit.cli import comparison_json, side_by_side
    from kit.planning.plan import check_rounds

    if rounds is not None and not confirm:
        raise UsageError("--rounds applies to fresh rounds only.", "Add --confirm, or remove --rounds.")
    if rounds is not None:
        check_rounds(rounds, MIN_LAUNCHES)  # with fewer, no cell is judged
    measure, runs = _measure(inference=inference), _read(base, new)
    judged = judge(runs[0], runs[1], max_regression, measure)
    code, document = judged.exit_code, comparison_json.gate_json(judged, runs)
    if not as_json:
        print_table(*side_by_side.gate_section(judged, runs))
    if confirm and judged.alarm:
        fresh, fresh_runs = _confirm(judged, (base, new), rounds or CONFIRM_ROUNDS, quiet=as_json)
        code = exit_code_after(judged, fresh)
        document |= {"exit_code": code, "confirmation": comparison_json.gate_json(fresh, fresh_runs)}
    if as_json:
        print_json(document)
    raise typer.Exit(0 if allow_inconclusive and code == INCONCLUSIVE_CODE else code)


def _measure(*, inference: bool) -> Measure:
    from kit.analysis.pairing import Measure

    return Measure.INFERENCE if inference else Measure.TRAINING


def _confirm(
    judged: GateResult, names: tuple[str, str], rounds: int, *, quiet: bool
) -> tuple[GateResult, tuple[Run, Run]]:
    """Measure the cells that raised an alarm in fresh rounds, and judge them again. Print this unless `quiet`."""
    from kit.analysis.gate import gate as judge
    from kit.cli import side_by_side

    runs = _measure_again(names, judged.alarms, rounds, quiet=quiet)
    fresh = judge(*runs, judged.max_regression, judged.measure)
    if not quiet:
        print_notes(["", f"Measured again: {' and '.join(run.plan.run for run in runs)}", ""])
        section = side_by_side.gate_section(fresh, runs)
        print_table(section.columns, section.rows, section.notes + side_by_side.confirmation_lines(judged, fresh))
    return fresh, runs


def _measure_again(names: tuple[str, str], keys: Sequence[str], rounds: int, *, quiet: bool) -> tuple[Run, Run]:
    """Measure cells of two runs in fresh rounds, and return these runs. They are next to the second one."""
    from kit.execution import workflow
    from kit.storage.run_folder import parent_of

    base, new = map(options.open_run, names)
    prepared = workflow.prepare_again(base, new, keys, rounds, options.Packages().sources())
    with show_progress(quiet=quiet) as progress:
        outcome = workflow.start(prepared, parent_of(new.path), progress)
    assert outcome.base is not None
    return outcome.base.analysis.run, outcome.analysis.run


def _read(*names: str) -> list[Run]:
    """Read runs. Raise UsageError if a run is named twice, because a gate would always pass it."""
    runs: dict[str, Run] = {}
    for name in names:
        folder = options.open_run(name)
        if folder.plan.run in runs:
            raise UsageError(f"The run {folder.plan.run} is named twice.", "Name different runs.")
        runs[folder.plan.run] = folder.read()
    return list(runs.values())
