"""Whether the speeds were steady: the speed of each launch over its windows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass

from kit.analysis.launch_windows import LaunchWindows, launch_windows
from kit.analysis.reliability import unjudged_cells, unsteady_cells
from kit.model.formatting import format_count
from kit.report import text
from kit.report.line_charts import polyline
from kit.report.rows import configuration_key, configuration_words
from kit.report.scales import Scale
from kit.report.section import ReportInput, Section

MAX_SPARKS = 54  # if there are more launches, only unsteady ones are drawn, at most this many
MAX_NAMES = 6  # of cells that are not drawn; more are counted
LOWEST, HIGHEST = 0.4, 1.6  # times the median of a launch; slower and faster windows are cut off


@dataclass(frozen=True)
class Spark:
    """The speed of one launch. line: points in a box of 100 × 100. warm_up, jump: positions in percent.

    reasons: what was not steady, or "". label: for screen readers. launch: its number, or "" if the cell has only one.
    """

    framework: str
    launch: str
    label: str
    line: str
    warm_up: float
    jump: float | None
    reasons: str


@dataclass(frozen=True)
class SparkRow:
    """The launches of a network in one configuration. cells: for each framework of the table."""

    name: str
    details: str
    cells: tuple[tuple[Spark, ...], ...]


@dataclass(frozen=True)
class SteadinessData:
    """The content.

    lowest, highest: ends of the charts, relative to the median of the launch. launches: of the run. selected: whether
    only unsteady launches are drawn. drawn: their number, and that of their cells. omitted: unsteady launches that are
    not drawn. causes: how many launches each kind of reason concerns. apart: the cells that are not steady although the
    speed within each launch was, as a sentence, or "".
    """

    heading: str
    frameworks: tuple[str, ...]
    rows: tuple[SparkRow, ...]
    lowest: float
    highest: float
    launches: int
    selected: bool
    drawn: str
    omitted: int
    causes: str
    apart: str


def _data(source: ReportInput) -> SteadinessData | None:
    launches = launch_windows(source.analysis.launches, source.analysis.warnings)
    if not launches:
        return None
    unsteady = [launch for launch in launches if launch.reasons]
    selected = len(launches) > MAX_SPARKS
    drawn = _most_unsteady(unsteady) if selected else launches
    frameworks = tuple(name for name in source.frameworks if any(x.cell.framework == name for x in drawn))
    warned, within = set(unsteady_cells(source.analysis)), {launch.cell.key for launch in unsteady}
    apart = (warned - within) & {launch.cell.key for launch in launches}
    cells = format_count(len({launch.cell.key for launch in drawn}), "cell")
    return SteadinessData(
        heading=steadiness_heading(len(warned), len(unjudged_cells(source.analysis)), len(source.measured))
        + _only_in(warned, source),
        frameworks=frameworks,
        rows=tuple(_rows(source, drawn, frameworks)),
        lowest=LOWEST,
        highest=HIGHEST,
        launches=len(launches),
        selected=selected,
        drawn=f"{format_count(len(drawn), 'launch')} of {cells}",
        omitted=len(unsteady) - len(drawn) if selected else 0,
        causes=_causes(unsteady),
        apart=_apart([c.key for c in source.measured if c.key in apart], source, drawn=not selected),
    )


def steadiness_heading(unsteady: int, unjudged: int, cells: int) -> str:
    """Return whether the speeds were steady.

    unsteady: number of cells whose speed was not steady. unjudged: number of cells with too few measurements to tell.
    cells: number of all cells.
    """
    if unsteady == cells == 1:
        return "No: the cell was not steady"
    if unsteady:
        return f"No: {unsteady} of {format_count(cells, 'cell')} {'was' if unsteady == 1 else 'were'} not steady"
    if unjudged == cells:
        return "Not known: too little was measured"
    steady = format_count(cells - unjudged, "cell")
    if unjudged:
        return f"Yes in {steady}; too little was measured of {unjudged} more"
    return f"Yes: in {'each of ' * (cells > 1)}{steady} the speed was steady"


def _only_in(unsteady: Set[str], source: ReportInput) -> str:
    """Return the end of a heading, for example `, all in PyTorch` if all these cells are in one of several frameworks,
    because it may be the cause. Otherwise return ""."""
    measured = {cell.cell.framework for cell in source.measured}
    found = {cell.cell.framework for cell in source.measured if cell.key in unsteady}
    return f", all in {source.framework_title(*found)}" if len(found) == 1 < len(measured) and len(unsteady) > 1 else ""


def _apart(keys: Sequence[str], source: ReportInput, *, drawn: bool) -> str:
    """Return which cells are not steady only from launch to launch, as a sentence, or "". drawn: whether they are."""
    if not keys:
        return ""
    names = text.listed([source.name(key) for key in keys], MAX_NAMES)
    was, they = ("was", "it is") if len(keys) == 1 else ("were", "they are")
    missing = "" if drawn else f", so {they} not drawn"
    cells = f"{format_count(len(keys), 'cell')} {was} steady within each launch"
    return f"{cells}, but not from launch to launch{missing}: {names}."


def _most_unsteady(launches: Sequence[LaunchWindows]) -> list[LaunchWindows]:
    """Return at most MAX_SPARKS launches, those with the most reasons, in their order."""
    by_reasons = sorted(range(len(launches)), key=lambda i: (-len(launches[i].reasons), launches[i].jump_s is None))
    return [launches[i] for i in sorted(by_reasons[:MAX_SPARKS])]


def _causes(launches: Sequence[LaunchWindows]) -> str:
    """Return how many launches each kind of reason concerns, for example `jump in 3 launches`."""
    kinds = Counter(kind for launch in launches for kind in dict.fromkeys(reason.kind for reason in launch.reasons))
    return text.listed([f"{kind} in {format_count(n, 'launch')}" for kind, n in kinds.most_common()]) if kinds else ""


def _rows(source: ReportInput, launches: Sequence[LaunchWindows], frameworks: Sequence[str]) -> list[SparkRow]:
    by_key: dict[str, list[LaunchWindows]] = {}
    for launch in launches:
        by_key.setdefault(launch.cell.key, []).append(launch)
    counts = Counter(record.key for record in source.run.records if record.ok)
    found = []
    for cells in source.rows.values():
        configurations = {configuration_key(c.cell): configuration_words(c.cell) for c in cells if c.key in by_key}
        for key, words in sorted(configurations.items()):
            own = {c.cell.framework: c.key for c in cells if configuration_key(c.cell) == key}
            cell = cells[0].cell
            found.append(
                SparkRow(
                    name=source.network(cell),
                    details=f"{source.details(cell)} · {words}",
                    cells=tuple(
                        tuple(
                            _spark(source, launch, several=counts[launch.cell.key] > 1)
                            for launch in by_key.get(own.get(name, ""), ())
                        )
                        for name in frameworks
                    ),
                )
            )
    return found


def _spark(source: ReportInput, launch: LaunchWindows, several: bool) -> Spark:
    across = Scale(0.0, max(launch.end_s, 1e-9))
    name = f"{source.network(launch.cell)}, {source.framework_title(launch.cell.framework)}, launch {launch.launch}"
    reasons = ", ".join(reason.words for reason in launch.reasons)
    verdict = f"not steady: {reasons}" if reasons else "steady"
    return Spark(
        framework=launch.cell.framework,
        launch=f"launch {launch.launch}" if several else "",
        label=f"{name}: images/s over {text.seconds(launch.end_s)}; {verdict}.",
        line=polyline(launch.points, across, Scale(LOWEST, HIGHEST)),
        warm_up=across.at(launch.steady_s),
        jump=None if launch.jump_s is None else across.at(launch.jump_s),
        reasons=reasons,
    )


SECTION = Section(60, "steadiness", "Steadiness", _data, "steadiness.html", question="Were the speeds steady?")
