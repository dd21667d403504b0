"""kit plan, build, run, report: from a selection to a report."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kit.cli import options
from kit.cli.console import (
    open_page,
    print_json,
    print_notes,
    print_remark,
    print_table,
    print_text,
    show,
    show_progress,
    terminal_width,
)
from kit.cli.groups import OUTPUT, with_groups
from kit.cli.values import parse_name
from kit.model.errors import UsageError

if TYPE_CHECKING:
    from kit.execution.reporting import FinishedRun

app = typer.Typer()

# Options that --resume allows. The plan of the run fixes all others.
WITH_RESUME = {
    *("resume", "retry_failed", "timeout", "env", "out", "open_report", "as_json"),
    *("base_image", "index_url", "find_links", "ca_bundle"),
}


@app.command(epilog="Example: kit plan --scenario mnist-cnn --framework torch --device cpu")
@with_groups
def plan(measuring: options.Measuring, packages: options.Packages, as_json: options.Json = False) -> None:
    """Show the cells of a run, its time and its disk space.

    This command builds and runs nothing. It accepts the options of `kit run` that choose what is measured and how.
    Without options, it plans everything.
    """
    from kit.cli import prepared_run
    from kit.execution import workflow

    prepared = workflow.prepare(measuring.selection(), measuring.options(), packages.sources(), measuring.earlier())
    rows = prepared_run.rows(prepared)
    show(as_json, prepared_run.as_json(prepared), prepared_run.COLUMNS, rows, prepared.details())


@app.command(epilog="Example: kit build --framework torch --device cuda")
@with_groups
def build(
    packages: options.Packages,
    framework: options.Frameworks = None,
    device: options.Devices = None,
    engine: options.Engine = options.DEFAULT_ENGINE,
    env: options.Env = "",
    as_json: options.Json = False,
) -> None:
    """Build the images or environments that runs need.

    Existing ones are kept. Without --device: cpu, and cuda if a GPU is usable.
    """
    from kit.cli import listing
    from kit.engines import registry
    from kit.execution import workflow

    chosen, note = registry.choose(engine, env, packages.sources())
    with show_progress(quiet=as_json) as progress:
        progress.line(note)
        made = workflow.build(chosen, framework or [], device or [], progress)
    show(as_json, *listing.environments(made))


@app.command(epilog="Example: kit run --all --profile standard")
@with_groups
def run(
    context: typer.Context,
    measuring: options.Measuring,
    packages: options.Packages,
    out: options.Out = options.DEFAULT_OUT,
    resume: Annotated[
        str | None, options.option(OUTPUT, "RUN", "Resume a stopped run. Give its folder or id.", parse_name)
    ] = None,
    retry_failed: Annotated[
        bool, options.option(OUTPUT, None, "With --resume: retry failed launches, too.", flag="--retry-failed")
    ] = False,
    open_report: options.Open = False,
    as_json: options.Json = False,
) -> None:
    """Measure everything or a selection, and write the report."""
    from kit.execution import workflow

    if resume:
        _refuse_others(context)
    elif retry_failed:
        raise UsageError("--retry-failed needs an earlier run.", "Name that run with --resume RUN.")
    selection = measuring.selection()
    named = resume or measuring.everything or measuring.against
    if not named and all(part is None for part in vars(selection).values()):
        raise UsageError(
            "Nothing is selected.",
            "Run everything with `kit run --all`, or a selection, for example with `kit run --scenario mnist-cnn`. "
            "`kit list` shows all names.",
        )
    sources, began = packages.sources(), time.monotonic()
    with show_progress(quiet=as_json) as progress:
        if resume:
            folder = options.open_run(resume, out)
            outcome = workflow.resume_run(
                folder, measuring.env, sources, progress, retry_failed=retry_failed, timeout_s=measuring.timeout
            )
        else:
            prepared = workflow.prepare(selection, measuring.options(), sources, measuring.earlier(out))
            outcome = workflow.start(prepared, out, progress)
    _show(outcome, as_json=as_json, seconds=time.monotonic() - began)
    if open_report:
        open_page(outcome.report)
    raise typer.Exit(outcome.exit_code)


@app.command(epilog="Example: kit report 20261120-110210-ab12")
def report(
    name: options.RunName,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File for the report. Default: index.html in the run's folder.")
    ] = None,
    price: Annotated[
        list[str] | None,
        typer.Option(metavar="PRICE", help="Price of an hour: 0.40/h, or cpu=0.10/h and cuda=0.40EUR/h. Repeatable."),
    ] = None,
    prices: Annotated[
        Path | None, typer.Option(metavar="FILE", help="TOML file with prices, their currency, date and source.")
    ] = None,
    open_report: options.Open = False,
    as_json: options.Json = False,
) -> None:
    """Show the results of a run, and write its report again.

    Without --out, this also updates the index of runs, index.html in the folder that contains the run.
    """
    from kit.execution import reporting
    from kit.planning.prices import run_prices

    tariff = run_prices(price or (), prices)
    outcome = reporting.report(options.open_run(name), out, tariff)
    _show(outcome, as_json=as_json)
    if out is None and (note := reporting.update_index(outcome.folder)):
        print_remark(note)
    if open_report:
        open_page(outcome.report)
    if outcome.analysis.run.unusable:
        raise typer.Exit(outcome.exit_code)


def _refuse_others(context: typer.Context) -> None:
    """Raise UsageError if the command line has an option that --resume does not allow."""
    for parameter in context.command.params:
        source = context.get_parameter_source(str(parameter.name))
        if source is not None and source.name == "COMMANDLINE" and parameter.name not in WITH_RESUME:
            raise UsageError(
                f"--resume uses the existing plan, which {parameter.opts[0]} cannot change.",
                f"Remove {parameter.opts[0]}, or start a new run without --resume.",
            )


def _show(outcome: FinishedRun, *, as_json: bool, seconds: float | None = None) -> None:
    """Show the results. seconds: duration of the command that measured them."""
    from kit.analysis.comparison import compare
    from kit.analysis.pairing import COMPARED
    from kit.cli import comparison_json, results, side_by_side
    from kit.planning import catalog

    analysis, base = outcome.analysis, outcome.base
    runs = [base.analysis.run, analysis.run] if base else []
    compared = [(runs[1], measure, compare(runs[0], runs[1], measure)) for measure in COMPARED] if runs else []
    if as_json:
        found = results.as_json(outcome)
        if base:
            found |= {"base": results.as_json(base), **comparison_json.comparison_json(runs, compared)}
        print_json(found)
        return
    titles = {name: framework.title for name, framework in catalog.frameworks().items()}
    print_text("\n".join(results.lines(outcome, titles, terminal_width(), seconds)))
    if base:
        print_notes([f"Report of the base: {base.report}", "", *side_by_side.legend(runs)])
    for _, measure, comparisons in compared:
        print_text("")
        print_table(*side_by_side.comparison_section(comparisons, runs, 1, measure))
