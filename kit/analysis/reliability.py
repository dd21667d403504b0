"""Judge how reliable a run is, and how to make it more reliable. No input or output."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Sequence

from kit.analysis.answer import Fact, Level, NextLevel, Reliability
from kit.analysis.intervals import MIN_LAUNCHES, Interval
from kit.analysis.launch_windows import DISTURBED, UNSTEADY
from kit.analysis.measured_launch import MeasuredLaunch
from kit.analysis.pairing import Measure
from kit.analysis.repeat_command import COMPARED_ROUNDS, repeat_command
from kit.analysis.run_analysis import RunAnalysis
from kit.analysis.summaries import CellSummary
from kit.analysis.warning_rules import MIN_WINDOWS
from kit.analysis.warnings import WarningCode
from kit.model.formatting import format_about, format_count, format_list, format_percent
from kit.model.plan import MAX_ROUNDS
from kit.model.run import Run
from kit.planning.estimates import TO_STEADY
from kit.planning.profiles import find_profile
from scenarios.catalog import scenario_of

# What a reader may do with a run of each level.
MEANINGS = {
    Level.WORKS: "Quote no speed of this run.",
    Level.FIRST_LOOK: "Quote large differences as preliminary.",
    Level.COMPARISON: "Quote ratios with their intervals. Quote a speed only as that of this run.",
    Level.PUBLICATION: "Quote speeds and differences with their intervals.",
}
NARROW = 0.05  # half-width of an interval: the loss that `kit gate` allows by default
ROUNDS = 2  # times the launches of a cell that left intervals wide: the next run gets as many
TOO_WIDE = "More rounds may not make these intervals narrow enough: a steadier machine helps more."


def unsteady_cells(analysis: RunAnalysis, measure: Measure = Measure.TRAINING) -> dict[str, str]:
    """Return the key of each measured cell whose speed is doubtful, with the reasons.

    A warning that comes from the speed of training alone says nothing about inference.
    """
    return warned_cells(analysis, UNSTEADY if measure is Measure.TRAINING else DISTURBED)


def warned_cells(analysis: RunAnalysis, codes: Collection[WarningCode]) -> dict[str, str]:
    """Return the key of each measured cell that has one of these warnings, with their causes.

    A warning about the whole run is one about each of its cells.
    """
    found: dict[str, list[str]] = {cell.key: [] for cell in analysis.cells if cell.launches}
    for warning in analysis.warnings:
        if warning.code in codes:
            for key in found if not warning.about else found.keys() & {warning.about}:
                found[key].append(warning.cause)
    return {key: " ".join(causes) for key, causes in found.items() if causes}


def unjudged_cells(analysis: RunAnalysis) -> set[str]:
    """Return the keys of the cells of which nothing shows whether they were steady: no warning, a single launch, and
    too few windows in it."""
    single = {key: own[0] for key, own in analysis.launches.items() if len(own) == 1}
    short = {key for key, launch in single.items() if len(launch.steady_rates) < MIN_WINDOWS}
    return short - unsteady_cells(analysis).keys()


def reliability(analysis: RunAnalysis) -> Reliability:
    """Return how reliable a run is."""
    measured = [cell for cell in analysis.cells if cell.images_per_s]
    if not measured:
        return Reliability(None, (), None)
    unsteady = len(unsteady_cells(analysis))
    lacking = _lacking(analysis, measured, unsteady)
    level = _level(analysis.run, measured, complete=not lacking)
    correlated = any(warning.code is WarningCode.CORRELATED for warning in analysis.warnings)
    loaded = len(warned_cells(analysis, {WarningCode.OTHER_LOAD}))
    facts = _facts(measured, unsteady, len(unjudged_cells(analysis)), loaded, correlated=correlated)
    if level is Level.COMPARISON:
        following: NextLevel | None = _to_publication(analysis, measured, lacking)
    else:
        following = None if level is Level.PUBLICATION else _next(analysis, level)
    return Reliability(level, facts, following, MEANINGS[level])


def _level(run: Run, measured: Sequence[CellSummary], *, complete: bool) -> Level:
    """Return the level. complete: whether the run lacks nothing for the highest level but perhaps launches."""
    if run.plan.profile == "smoke":
        return Level.WORKS
    if min(cell.launches for cell in measured) < MIN_LAUNCHES:
        return Level.FIRST_LOOK
    return Level.PUBLICATION if complete else Level.COMPARISON


def _lacking(analysis: RunAnalysis, measured: Sequence[CellSummary], unsteady: int) -> list[str]:
    """Return what the run lacks for the highest level, except for launches of its cells. unsteady: number of cells."""
    found, widths = [], _all_widths(measured)
    wide = sum(width > NARROW for width in widths)
    if not all(cell.interval for cell in measured):
        found.append("an interval for each cell")
    elif wide:
        which = f"{wide} of {len(widths)} {'is wider:' if wide == 1 else 'are wider, up to'}"
        found.append(f"intervals within ± {format_percent(NARROW)} ({which} {_plus_minus(max(widths))})")
    if unsteady:
        steady = _steady(unsteady, 0, len(measured))
        found.append(f"a steady machine ({steady[0].lower()}{steady[1:]})")
    if made := [cell for cell in measured if cell.synthetic]:
        found.append(f"real data{_for(made, measured)}")
    if not_run := analysis.run.not_run:
        found.append(f"a record of each planned launch ({len(not_run)} {'has' if len(not_run) == 1 else 'have'} none)")
    return found


def _widths(measured: Sequence[CellSummary]) -> dict[str, list[float]]:
    """Return the half-widths of the intervals of each measure that has one."""
    intervals: dict[str, list[Interval | None]] = {
        "training": [cell.interval for cell in measured],
        "throughput": [cell.inference_interval for cell in measured],
        "latency": [cell.p50_interval for cell in measured],
    }
    known = {name: [each.half_width for each in found if each] for name, found in intervals.items()}
    return {name: found for name, found in known.items() if found}


def _all_widths(measured: Sequence[CellSummary]) -> list[float]:
    return [width for widths in _widths(measured).values() for width in widths]


def _plus_minus(width: float) -> str:
    """Return the half-width of an interval, with a decimal if it is small enough to be near the limit."""
    return f"± {format_percent(width, 1 if width < 2 * NARROW else 0)}"


def _for(made: Sequence[CellSummary], measured: Sequence[CellSummary]) -> str:
    """Return which networks these cells are about, or "" if all measured cells are among them."""
    names = dict.fromkeys(cell.cell.label for cell in made)
    return "" if len(made) == len(measured) else f" for {', '.join(names)}"


def _facts(
    measured: Sequence[CellSummary], unsteady: int, unjudged: int, loaded: int, *, correlated: bool
) -> tuple[Fact, ...]:
    """Return what supports the answers, then what weakens them.

    unsteady, unjudged, loaded: numbers of cells. correlated: whether launches are.
    """
    cells, fewest = format_count(len(measured), "cell"), min(cell.launches for cell in measured)
    which = "it" if len(measured) == 1 else "each"
    facts = [Fact(True, f"{cells}: {which} computes the same function as a float64 reference")]
    if fewest == 1:
        facts.append(
            Fact(False, "Cells with one launch have no interval; another launch may differ by tens of percent")
        )
    else:
        of = "each cell" if fewest == max(cell.launches for cell in measured) else "some cells"
        few = f"Only {fewest} launches of {of}: too few to decide small differences"
        at_least = "" if fewest == max(cell.launches for cell in measured) else "At least "
        many = f"{at_least}{fewest} launches of each cell"
        facts.append(Fact(fewest >= MIN_LAUNCHES, many if fewest >= MIN_LAUNCHES else few))
    widths = {name: max(found) for name, found in _widths(measured).items()}
    if widths and fewest >= MIN_LAUNCHES:
        named = ", ".join(f"{name} {_plus_minus(width)}" for name, width in widths.items())
        widest = f"Widest interval{'s' * (len(widths) > 1)} of all cells: {named}"
        facts.append(Fact(max(widths.values()) <= NARROW, widest))
    if correlated:
        facts.append(
            Fact(False, "Launches are correlated: speeds describe only the period of this run; ratios are safer")
        )
    if loaded:
        which = f"{loaded} of {cells}" if len(measured) > 1 else "the cell"
        facts.append(Fact(False, f"Other programs used the CPUs during {which}: stop them and measure again"))
    facts.append(Fact(not unsteady and not unjudged, _steady(unsteady, unjudged, len(measured))))
    if made := [cell for cell in measured if cell.synthetic]:
        words = f"Synthetic data{_for(made, measured)}: speeds are estimates, accuracies say nothing"
        facts.append(Fact(False, words))
    return tuple(sorted(facts, key=lambda fact: not fact.good))


def _steady(unsteady: int, unjudged: int, cells: int) -> str:
    """Return whether the cells were steady. unjudged: number of cells of which this is not known."""
    if unsteady:
        which = f"{unsteady} of {cells} cells" if cells > 1 else "the cell"
        return f"In training, {which} {_were(unsteady)} not steady"
    if unjudged:
        which = "the cell" if cells == 1 else "the cells" if unjudged == cells else f"{unjudged} of {cells} cells"
        return f"Too little was measured to say whether {which} {_were(unjudged)} steady"
    return "All cells were steady" if cells > 1 else "The cell was steady"


def _were(count: int) -> str:
    return "was" if count == 1 else "were"


def _to_publication(analysis: RunAnalysis, measured: Sequence[CellSummary], lacking: Sequence[str]) -> NextLevel:
    """Return how to measure again, and what the run lacks for the highest level.

    The standard profile alone cannot make intervals narrower than it did before. More launches can.
    """
    run, command = analysis.run, f"{repeat_command(analysis, real_data=True)} --profile standard"
    widest = max(_all_widths(measured), default=0.0)
    wide, round_s = widest > NARROW, _round_s(analysis, "standard")
    caveat = ""
    took = f"{format_about(MIN_LAUNCHES * round_s)} or more"
    if wide and run.plan.profile == "standard":
        rounds = min(MAX_ROUNDS, ROUNDS * max(cell.attempts for cell in measured))
        command += f" --rounds {rounds}"
        took = f"{rounds} rounds in {format_about(rounds * round_s)}"
        caveat = TOO_WIDE if widest > math.sqrt(ROUNDS) * NARROW else ""
    idle = " on an idle machine" if wide or unsteady_cells(analysis) else ""
    of = (scenario_of(cell.cell, analysis.scenarios) for cell in measured if cell.synthetic)
    sets = [*dict.fromkeys(scenario.dataset for scenario in of if scenario)]
    fetch = f"kit data fetch {' '.join(sets)}" if sets else ""
    return NextLevel(Level.PUBLICATION, command, f"{took}{idle}", fetch, format_list(lacking), caveat)


def _next(analysis: RunAnalysis, level: Level) -> NextLevel:
    """Return what leads from one of the two lowest levels to the next one."""
    run, command = analysis.run, repeat_command(analysis)
    if level is Level.WORKS:
        seconds = find_profile("quick").launches * _round_s(analysis, "quick")
        return NextLevel(Level.FIRST_LOOK, command, f"first speeds, {format_about(seconds)}")
    seconds = MIN_LAUNCHES * _round_s(analysis, "standard")
    note = f"at least {MIN_LAUNCHES} launches per cell, {format_about(seconds)} or more"
    if run.plan.against:
        both_s = 2 * COMPARED_ROUNDS * _round_s(analysis, "standard")
        note = f"{COMPARED_ROUNDS} launches of each cell in both runs, {format_about(both_s)}"
        return NextLevel(Level.COMPARISON, f"{command} --rounds {COMPARED_ROUNDS}", note)
    if run.plan.profile == "full":
        note += "; it measures speeds, but trains no whole epochs"
    return NextLevel(Level.COMPARISON, f"{command} --profile standard", note)


def _round_s(analysis: RunAnalysis, profile: str) -> float:
    """Return about how many seconds one launch of each cell takes in this profile, from what the launches of the run
    took. They had the same parts, but trained for another time.

    A launch with slow steps trains for longer than its profile says.
    """
    budget = find_profile(profile).budget
    assert budget, "only the full profile has none"
    to_steady_s = TO_STEADY * (budget.seconds or 0.0)

    def took(launch: MeasuredLaunch) -> float:
        trained_s = launch.telemetry.to_at - launch.telemetry.from_at  # with the tests between epochs
        again_s = max(to_steady_s, trained_s) if launch.request.budget.seconds else to_steady_s
        return max(0.0, launch.record.seconds - trained_s) + again_s

    return sum(statistics.median(map(took, own)) for own in analysis.launches.values())
