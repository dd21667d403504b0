"""Judge how reliable a run is, and how to make it more reliable. No input or output."""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Sequence

from kit.analysis.answer import Fact, Level, NextLevel, Reliability
from kit.analysis.intervals import MIN_LAUNCHES
from kit.analysis.launch_windows import UNSTEADY
from kit.analysis.run_analysis import RunAnalysis
from kit.analysis.summaries import CellSummary
from kit.analysis.sweeps import value_of
from kit.model.formatting import format_count, format_duration, format_percent
from kit.model.run import Run
from scenarios.catalog import Scenarios, scenario_of
from scenarios.contract.cell import Cell

# What a reader may do with a run of each level.
MEANINGS = {
    Level.WORKS: "Quote no speed of this run.",
    Level.FIRST_LOOK: "Quote large differences as preliminary.",
    Level.COMPARISON: "Quote differences with their intervals.",
    Level.PUBLICATION: "Quote speeds and differences with their intervals.",
}
NARROW = 0.05  # half-width of an interval: the loss that `kit gate` allows by default


def unsteady_cells(analysis: RunAnalysis) -> frozenset[str]:
    """Return the keys of the measured cells that are not steady. A warning about the whole run applies to each cell."""
    measured = {cell.key for cell in analysis.cells if cell.images_per_s}
    about = {warning.about for warning in analysis.warnings if warning.code in UNSTEADY}
    return frozenset(measured if "" in about else about & measured)


def reliability(analysis: RunAnalysis) -> Reliability:
    """Return how reliable a run is."""
    measured = [cell for cell in analysis.cells if cell.images_per_s]
    if not measured:
        return Reliability(None, (), None)
    unsteady = unsteady_cells(analysis)
    level = _level(analysis.run, measured, steady=not unsteady)
    return Reliability(level, _facts(measured, len(unsteady)), _next(analysis, level), MEANINGS[level])


def _level(run: Run, measured: list[CellSummary], *, steady: bool) -> Level:
    if run.plan.profile == "smoke":
        return Level.WORKS
    if min(cell.launches for cell in measured) < MIN_LAUNCHES:
        return Level.FIRST_LOOK
    narrow = all(cell.interval and cell.interval.half_width <= NARROW for cell in measured)
    real = not any(cell.synthetic for cell in measured)
    return Level.PUBLICATION if steady and narrow and real and not run.not_run else Level.COMPARISON


def _facts(measured: list[CellSummary], unsteady: int) -> tuple[Fact, ...]:
    """Return what supports the answers, then what weakens them."""
    cells, fewest = format_count(len(measured), "cell"), min(cell.launches for cell in measured)
    facts = [Fact(True, f"{cells}: each computes the same function as a float64 reference")]
    if fewest == 1:
        facts.append(
            Fact(False, "Cells with one launch have no interval; another launch may differ by tens of percent")
        )
    else:
        of = "each cell" if fewest == max(cell.launches for cell in measured) else "some cells"
        few = f"Only {fewest} launches of {of}: enough for large differences, not for small ones"
        many = f"At least {fewest} launches of each cell"
        facts.append(Fact(fewest >= MIN_LAUNCHES, many if fewest >= MIN_LAUNCHES else few))
    widths = [cell.interval.half_width for cell in measured if cell.interval]
    if widths and fewest >= MIN_LAUNCHES:
        facts.append(Fact(max(widths) <= NARROW, f"The widest interval of a speed is ± {format_percent(max(widths))}"))
    facts.append(Fact(not unsteady, _steady(unsteady, len(measured))))
    if made := list(dict.fromkeys(cell.cell.label for cell in measured if cell.synthetic)):
        names = "" if all(cell.synthetic for cell in measured) else f" for {', '.join(made)}"
        facts.append(Fact(False, f"Synthetic data{names}: speeds are good estimates, accuracies say nothing"))
    return tuple(sorted(facts, key=lambda fact: not fact.good))


def _steady(unsteady: int, cells: int) -> str:
    if cells == 1:
        return "The cell was not steady" if unsteady else "The cell was steady"
    if not unsteady:
        return "All cells were steady"
    return f"{unsteady} of {cells} cells {'was' if unsteady == 1 else 'were'} not steady"


def _next(analysis: RunAnalysis, level: Level) -> NextLevel | None:
    if level is Level.PUBLICATION:
        return None
    command = " ".join(["kit run", *_selection(analysis.run, analysis.scenarios)])
    if level is Level.WORKS:
        return NextLevel(Level.FIRST_LOOK, command, "first speeds")
    if level is Level.COMPARISON:
        note = "on an idle machine with real data (kit data fetch)"
        return NextLevel(Level.PUBLICATION, f"{command} --profile standard", note)
    seconds = MIN_LAUNCHES * _round_s(analysis.run)
    note = f"at least {MIN_LAUNCHES} launches per cell, {format_duration(seconds)} or more"
    return NextLevel(Level.COMPARISON, f"{command} --profile standard", note)


def _round_s(run: Run) -> float:
    """Return the seconds of one launch of each cell in the standard profile, which trains 17 s longer than quick."""
    seconds: dict[str, list[float]] = {}
    for record in run.records:
        if record.ok:
            seconds.setdefault(record.key, []).append(record.seconds)
    longer_s = 17.0 if run.plan.profile == "quick" else 0.0
    return sum(statistics.median(own) + longer_s for own in seconds.values())


def _numbers(cells: Sequence[Cell], scenarios: Scenarios) -> dict[str, list[str]]:
    """Return the values of the options that replace a number of a scenario or a framework, if they were given."""
    usual = {cell: scenario.batch for cell in cells if (scenario := scenario_of(cell, scenarios))}
    batches = any(cell.batch != usual.get(cell, cell.batch) for cell in cells)
    depths = any(cell.hidden_layers for cell in cells)
    given: dict[str, list[int | None]] = {
        "batch": [cell.batch for cell in cells if batches],
        "workers": [cell.workers for cell in cells],
        "hidden-layers": [value_of(cell, "hidden_layers", scenarios) for cell in cells if depths],
    }
    return {option: [*map(str, sorted(value for value in values if value))] for option, values in given.items()}


def _selection(run: Run, scenarios: Scenarios) -> list[str]:
    """Return options that select the cells of a run again."""
    cells = [launch.cell for launch in run.plan.launches] or [record.cell for record in run.records]
    studies = run.plan.studies  # which select scenarios, variants and numbers
    networks: dict[str, list[str]] = {
        "scenario": [cell.scenario for cell in cells],
        "variant": [cell.variant or "default" for cell in cells],
        **_numbers(cells, scenarios),
    }
    kinds: dict[str, list[str]] = {
        **({"study": studies} if studies else networks),
        "framework": [cell.framework for cell in cells],
        "device": [cell.device for cell in cells],
        "lane": [cell.lane for cell in cells],
        "precision": [cell.precision for cell in cells],
    }
    defaults = {"variant": {"default"}, "lane": {"stock"}, "precision": {"fp32"}}
    complete = {"scenario": 6, "framework": 3, "device": 2}
    names = {kind: list(dict.fromkeys(values)) for kind, values in kinds.items()}
    chosen = [
        f"--{kind} {shlex.quote(value)}"  # a name in the plan of a stranger may hold a command
        for kind, values in names.items()
        if set(values) != defaults.get(kind) and len(values) != complete.get(kind)
        for value in values
    ]
    return chosen if studies or len(names["scenario"]) < 6 else ["--all", *chosen]
