"""kit plan, build, run, report: from a selection to a report."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kit.cli import options

if TYPE_CHECKING:
    from kit.execution.workflow import FinishedRun

app = typer.Typer()

# What may stand beside --resume: all else is in the run's plan.
WITH_RESUME = {"resume", "retry_failed", "out", "as_json", "base_image", "index_url", "find_links", "ca_bundle"}


@app.command(epilog="Example: kit plan --scenario mnist-cnn --framework torch --device cpu")
def plan(
    everything: options.Everything = False,  # the default; here so that a `run` line can be tried first
    scenario: options.Scenario = None,
    variant: options.Variant = None,
    framework: options.Framework = None,
    device: options.Device = None,
    lane: options.Lane = None,
    precision: options.Precision = None,
    batch: options.Batch = None,
    profile: options.Profile = options.DEFAULT_PROFILE,
    epochs: options.Epochs = None,
    budget: options.MeasuringBudget = "",
    engine: options.Engine = options.DEFAULT_ENGINE,
    env: options.Env = "",
    data: options.Data = "auto",
    tune: options.Tune = "",
    settings: options.Settings = None,
    as_json: options.Json = False,
) -> None:
    """Show the cells of a run, its time and its disk space. Builds and runs nothing."""
    from kit.cli import prepared_run
    from kit.cli.console import print_table
    from kit.execution import workflow
    from kit.model.units import parse_duration
    from kit.planning.plan import Options
    from kit.storage.pins import read_pins

    selection = options.selection(scenario, variant, framework, device, lane, precision, batch)
    wishes = Options(
        engine,
        env,
        profile,
        data=options.data_kind(data),
        epochs=epochs,
        budget_s=parse_duration(budget) if budget else None,
        tune_s=parse_duration(tune) if tune else None,
        pinned=read_pins(settings) if settings else {},
    )
    prepared = workflow.prepare(selection, wishes, options.sources())
    if as_json:
        options.print_json(prepared_run.as_json(prepared))
        return
    print_table(prepared_run.COLUMNS, prepared_run.rows(prepared))
    typer.echo("\n" + "\n".join(prepared_run.summary_lines(prepared)))


@app.command(epilog="Example: kit build --framework torch --device cuda")
def build(
    framework: options.Framework = None,
    device: options.Device = None,
    engine: options.Engine = options.DEFAULT_ENGINE,
    env: options.Env = "",
    base_image: options.BaseImage = "",
    index_url: options.IndexUrl = "",
    find_links: options.FindLinks = "",
    ca_bundle: options.CaBundle = "",
    as_json: options.Json = False,
) -> None:
    """Build the images or environments that runs need; what exists already is kept.

    Without --device: cpu, and cuda where a GPU can be used.
    """
    from kit.cli import listing
    from kit.cli.console import print_table, show_progress
    from kit.engines import registry
    from kit.execution import workflow

    chosen, note = registry.choose(engine, env, options.sources(base_image, index_url, find_links, ca_bundle))
    with show_progress(quiet=as_json) as progress:
        progress.line(note)
        made = workflow.build(chosen, framework or [], device or [], progress)
    if as_json:
        options.print_json([asdict(environment) for environment in made])
    else:
        print_table(*listing.environments(made))


@app.command(epilog="Example: kit run --all --profile standard")
def run(
    context: typer.Context,
    everything: options.Everything = False,
    scenario: options.Scenario = None,
    variant: options.Variant = None,
    framework: options.Framework = None,
    device: options.Device = None,
    lane: options.Lane = None,
    precision: options.Precision = None,
    batch: options.Batch = None,
    profile: options.Profile = options.DEFAULT_PROFILE,
    epochs: options.Epochs = None,
    budget: options.MeasuringBudget = "",
    engine: options.Engine = options.DEFAULT_ENGINE,
    env: options.Env = "",
    data: options.Data = "auto",
    out: options.Out = options.DEFAULT_OUT,
    resume: Annotated[
        str, typer.Option("--resume", help="Go on with this run, named by folder or id.", metavar="RUN")
    ] = "",
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="With --resume: repeat what did not end ok, too.")
    ] = False,
    seed: options.Seed = 0,
    timeout: Annotated[
        str, typer.Option("--timeout", help="Longest time of one launch, as 90s or 10m.", metavar="TIME")
    ] = "",
    memory: Annotated[str, typer.Option("--memory", help="Most memory of one launch, as 4g.", metavar="SIZE")] = "",
    tune: options.Tune = "",
    settings: options.Settings = None,
    gpus: Annotated[
        str,
        typer.Option(
            "--gpus", help="GPUs by number or UUID, with commas, or all; default: the first idle one.", metavar="IDS"
        ),
    ] = "",
    threads: Annotated[
        int | None, typer.Option("--threads", help="CPUs of one launch; default: all that may be used.", metavar="N")
    ] = None,
    identify: Annotated[
        bool, typer.Option("--identify", help="Name host, user and GPU serials in records and report.")
    ] = False,
    base_image: options.BaseImage = "",
    index_url: options.IndexUrl = "",
    find_links: options.FindLinks = "",
    ca_bundle: options.CaBundle = "",
    as_json: options.Json = False,
) -> None:
    """Measure a selection, or --all, and write the report."""
    from kit.cli import prepared_run
    from kit.cli.console import show_progress
    from kit.execution import workflow
    from kit.model.units import parse_bytes, parse_duration
    from kit.planning.plan import Options
    from kit.storage.pins import read_pins
    from kit.storage.run_folder import RunFolder
    from kit.storage.run_names import find_run

    sources = options.sources(base_image, index_url, find_links, ca_bundle)
    if resume:
        options.refuse_others(context, WITH_RESUME, "--resume")
        folder = RunFolder.open(find_run(resume, out))
        with show_progress(quiet=as_json) as progress:
            outcome = workflow.resume(folder, sources, progress, retry_failed=retry_failed)
    else:
        selection = options.selection(scenario, variant, framework, device, lane, precision, batch)
        options.require_choice(selection, everything=everything, retry_failed=retry_failed)
        wishes = Options(
            engine=engine,
            environment=env,
            profile=profile,
            seed=seed,
            data=options.data_kind(data),
            epochs=epochs,
            budget_s=parse_duration(budget) if budget else None,
            timeout_s=parse_duration(timeout) if timeout else None,
            memory_bytes=parse_bytes(memory) if memory else None,
            threads=threads,
            gpus=gpus or None,
            identify=identify,
            tune_s=parse_duration(tune) if tune else None,
            pinned=read_pins(settings) if settings else {},
        )
        prepared = workflow.prepare(selection, wishes, sources)
        with show_progress(quiet=as_json) as progress:
            for line in prepared_run.summary_lines(prepared):
                progress.line(line)
            outcome = workflow.start(prepared, out, progress)
    _show(outcome, as_json=as_json)
    raise typer.Exit(outcome.exit_code)


@app.command(epilog="Example: kit report 20261120-110210-ab12")
def report(
    name: Annotated[str, typer.Argument(metavar="RUN", help="The run's folder, or its id below reports/.")],
    out: Annotated[Path | None, typer.Option("--out", help="Write it there instead.", metavar="FILE")] = None,
    as_json: options.Json = False,
) -> None:
    """Write a run's report anew, and show its results."""
    from kit.execution import workflow
    from kit.storage.run_folder import RunFolder
    from kit.storage.run_names import find_run

    _show(workflow.report(RunFolder.open(find_run(name, options.DEFAULT_OUT)), out), as_json=as_json)


@app.command(epilog="Example: kit settings 20261120-110210-ab12 --out settings.json")
def settings(
    name: Annotated[str, typer.Argument(metavar="RUN", help="The run's folder, or its id below reports/.")],
    out: Annotated[Path | None, typer.Option("--out", help="Write them there.", metavar="FILE")] = None,
) -> None:
    """Show the settings that a run's tuned cells were measured with, as JSON that `kit run --settings` takes."""
    from kit.cli.console import print_text
    from kit.storage.pins import pins
    from kit.storage.run_folder import RunFolder, writing
    from kit.storage.run_names import find_run

    found = pins(RunFolder.open(find_run(name, options.DEFAULT_OUT)))
    if out is None:
        print_text(found.to_json().rstrip())
        return
    with writing(out):
        out.write_text(found.to_json(), encoding="utf-8")
    print_text(f"Settings, by cell ({len(found.cells)}): {out}")


def _show(outcome: FinishedRun, *, as_json: bool) -> None:
    from kit.cli import results
    from kit.cli.console import print_notes, print_table

    if as_json:
        options.print_json(results.as_json(outcome))
        return
    print_table(results.COLUMNS, results.table(outcome.records))
    print_notes(["", *results.notes(outcome.records), *results.warned(outcome.warnings), f"Report: {outcome.report}"])
