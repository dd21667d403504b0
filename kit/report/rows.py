"""Define tables whose rows compare frameworks: a network, a row of dots, the numbers, and the verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from kit.analysis.answers import is_ahead, why_no_lead
from kit.analysis.intervals import Interval
from kit.analysis.pairing import Measure
from kit.analysis.reliability import unsteady_cells
from kit.analysis.spread import Spread
from kit.analysis.summaries import CellSummary, Contest, ContestState
from kit.model.formatting import DEVICES
from kit.report import text
from kit.report.marks import sort_key
from kit.report.published import PublishedSpeed
from kit.report.scales import Scale, log_scale
from kit.report.section import ReportInput
from kit.report.strips import Dot, PublishedDot, Strip, Tick, dot_y, span, strip_height, ticks, whisker_ends
from scenarios.contract.cell import Cell


@dataclass(frozen=True)
class Value:
    """One number of a row. small: more about it, one line each. unsteady: why the number is doubtful, or ""."""

    framework: str
    device: str
    number: str
    small: tuple[str, ...] = ()
    unsteady: str = ""


@dataclass(frozen=True)
class Call:
    """The verdict of a row.

    frameworks, device: of the cells that it is about. They are shown before the text. named: whether the launches
    support it, so that it is bold: a winner, or a ratio that is not 1. small: the interval that belongs to the text, or
    "". unsteady: why the text is doubtful, or "".
    """

    text: str
    frameworks: tuple[str, ...] = ()
    device: str = ""
    named: bool = False
    small: str = ""
    unsteady: str = ""


@dataclass(frozen=True)
class Row:
    """One row. configuration: device, lane and precision. values: one for each framework of the table, or None."""

    configuration: str
    strip: Strip
    values: tuple[Value | None, ...]
    call: Call | None = None


@dataclass(frozen=True)
class Network:
    """The rows of a network. name: its title. details: id and batch size."""

    name: str
    details: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Rows:
    """A table. caption: for screen readers. call: header of the last column, or "" for none.

    devices: those of the marks. whiskers, bands: whether a row has one. zones: texts left and right of the line at 1,
    with its position in percent; None for no zone. several: whether rows differ in configuration, which then has a
    column.
    """

    caption: str
    frameworks: tuple[str, ...]
    ticks: tuple[Tick, ...]
    networks: tuple[Network, ...]
    devices: tuple[str, ...]
    call: str = ""
    zones: tuple[float, str, str] | None = None

    @property
    def _strips(self) -> Iterable[Strip]:
        return (row.strip for network in self.networks for row in network.rows)

    @property
    def several(self) -> bool:
        """Return whether the configurations need a column."""
        return len({row.configuration for network in self.networks for row in network.rows}) > 1

    @property
    def wide(self) -> bool:
        """Return whether the column of configurations is wide."""
        return any(len(row.configuration) > 4 for network in self.networks for row in network.rows)

    @property
    def configuration(self) -> str:
        """Return the configuration of all rows, or "" if they differ."""
        found = {row.configuration for network in self.networks for row in network.rows}
        return found.pop() if len(found) == 1 else ""

    @property
    def whiskers(self) -> bool:
        """Return whether a dot has an interval over launches."""
        return any(dot.whisker for strip in self._strips for dot in strip.dots)

    @property
    def bands(self) -> bool:
        """Return whether a dot has the spread within one launch."""
        return any(dot.band for strip in self._strips for dot in strip.dots)

    @property
    def published(self) -> bool:
        """Return whether there is a published figure."""
        return any(strip.published for strip in self._strips)


@dataclass(frozen=True)
class Quantity:
    """A measured quantity of a cell. words, unit: for example `training speed` and `images/s`. measure: for verdicts.

    published: figures of the studies for the network, batch size and device of a cell. depends_on_batch: whether the
    training's batch size is a detail of the network.
    """

    words: str
    unit: str
    measure: Measure
    value: Callable[[CellSummary], float | None]
    interval: Callable[[CellSummary], Interval | None]
    spread: Callable[[CellSummary], Spread | None]
    published: Callable[[Cell], Sequence[PublishedSpeed]] = lambda cell: ()
    depends_on_batch: bool = False


def configuration_words(cell: Cell) -> str:
    """Return the device of a cell in words, with lane and precision if they are not the usual ones: `2 GPUs tuned`."""
    device = DEVICES.get(cell.device, cell.device)
    counted = device if cell.devices == 1 else f"{cell.devices} {device}s"
    return " ".join([counted, *unusual_words(cell)])


def unusual_words(cell: Cell) -> list[str]:
    """Return the lane and the precision of a cell, without the usual ones."""
    return [cell.lane] * (cell.lane != "stock") + [cell.precision] * (cell.precision != "fp32")


def configuration_key(cell: Cell) -> tuple[object, ...]:
    """Return the key that sorts rows of a network: the CPU first, then the usual lane and precision."""
    lane, precision = (cell.lane != "stock", cell.lane), (cell.precision != "fp32", cell.precision)
    return (cell.device != "cpu", cell.device, cell.devices, lane, precision)


def cell_key(summary: CellSummary) -> tuple[object, ...]:
    """Return the key that sorts the cells of a network: by configuration, then by framework."""
    return (*configuration_key(summary.cell), sort_key(summary.cell.framework))


def quantity_rows(source: ReportInput, quantity: Quantity, call: str) -> Rows:
    """Return one row for each network and configuration. call: header of the verdicts."""
    shown = [summary for summary in source.measured if quantity.value(summary)]
    groups: dict[str, dict[tuple[object, ...], list[CellSummary]]] = {}
    for label, cells in source.rows.items():
        for summary in cells:
            if quantity.value(summary):
                groups.setdefault(label, {}).setdefault(configuration_key(summary.cell), []).append(summary)
    frameworks = tuple(sorted({summary.cell.framework for summary in shown}, key=sort_key))
    scale = log_scale(_extent(shown, quantity))
    unsteady = unsteady_cells(source.analysis, quantity.measure)
    calls = {
        contest.leader.key: contest_call(contest, unsteady, source.framework_title)
        for contest in source.analysis.contests[quantity.measure]
    }
    maker = _Maker(source, quantity, frameworks, scale, calls, unsteady)
    return Rows(
        caption=f"{quantity.words} of each network in each framework, {quantity.unit}",
        frameworks=frameworks,
        ticks=maker.ticks,
        networks=tuple(maker.network(configurations) for configurations in groups.values()),
        devices=tuple(sorted({summary.cell.device for summary in shown})),
        call=call if any(maker.calls.values()) else "",
    )


def _extent(cells: Sequence[CellSummary], quantity: Quantity) -> list[float]:
    """Return the values that a scale must cover."""
    found: list[float] = []
    for cell in cells:
        interval, spread, value = quantity.interval(cell), quantity.spread(cell), quantity.value(cell) or 0.0
        ends = (interval.low, interval.high) if interval else spread or ()
        found += [value, *whisker_ends(value, ends)]
        found += [speed.images_per_s for speed in quantity.published(cell.cell)]
    return found


@dataclass(frozen=True)
class _Maker:
    """Makes the rows of one table."""

    source: ReportInput
    quantity: Quantity
    frameworks: tuple[str, ...]
    scale: Scale
    calls: dict[str, Call]
    unsteady: dict[str, str]

    @property
    def ticks(self) -> tuple[Tick, ...]:
        return ticks(self.scale, text.number_short)

    def network(self, configurations: dict[tuple[object, ...], list[CellSummary]]) -> Network:
        ordered = [configurations[key] for key in sorted(configurations)]
        cell = ordered[0][0].cell
        return Network(
            name=self.source.network(cell),
            details=self.source.details(cell, batch=self.quantity.depends_on_batch),
            rows=tuple(self._row(cells) for cells in ordered),
        )

    def _row(self, cells: Sequence[CellSummary]) -> Row:
        by_framework = {summary.cell.framework: summary for summary in cells}
        present = [by_framework[name] for name in self.frameworks if name in by_framework]
        first = present[0].cell
        configuration = configuration_words(first)
        numbers = "; ".join(f"{self.source.framework_title(s.cell.framework)} {self._number(s)}" for s in present)
        published = tuple(
            PublishedDot(
                self.scale.at(speed.images_per_s),
                f"{speed.hardware}: {speed.words}",
                f"Published: {speed.note}",
            )
            for speed in self.quantity.published(first)
        )
        notes = "".join(f" {dot.text}." for dot in published)
        strip = Strip(
            label=f"{self.source.network(first)}, {configuration}, {self.quantity.unit}: {numbers}.{notes}",
            height=strip_height(len(present), len(published)),
            ticks=self.ticks,
            dots=tuple(self._dot(index, summary) for index, summary in enumerate(present)),
            published=published,
        )
        values = tuple(self._value(by_framework[n]) if n in by_framework else None for n in self.frameworks)
        call = next((self.calls[s.key] for s in present if s.key in self.calls), None)
        return Row(configuration, strip, values, call)

    def _number(self, summary: CellSummary) -> str:
        return text.number(self.quantity.value(summary))

    def _value(self, summary: CellSummary) -> Value:
        interval = self.quantity.interval(summary)
        small = (text.half_width(interval),) if interval else ()
        cell = summary.cell
        return Value(cell.framework, cell.device, self._number(summary), small, self.unsteady.get(summary.key, ""))

    def _dot(self, index: int, summary: CellSummary) -> Dot:
        interval, spread = self.quantity.interval(summary), self.quantity.spread(summary)
        title = f"{self.source.framework_title(summary.cell.framework)}: {self._number(summary)} {self.quantity.unit}"
        if interval:
            title += f", 95% interval {text.number(interval.low)} to {text.number(interval.high)}"
        elif spread:
            title += f", windows {text.number(spread[0])} to {text.number(spread[1])}"
        return Dot(
            framework=summary.cell.framework,
            device=summary.cell.device,
            at=self.scale.at(self.quantity.value(summary) or 0.0),
            y=dot_y(index),
            text=title,
            whisker=span(self.scale, (interval.low, interval.high)) if interval else None,
            band=span(self.scale, spread) if spread and not interval else None,
        )


def contest_call(contest: Contest, unsteady: Mapping[str, str], title: Callable[[str], str]) -> Call:
    """Return the verdict of a contest. A single launch names no winner.

    unsteady: why the value of a cell is doubtful, by its key. title: returns the title of a framework.
    """
    leader, device = contest.leader.cell.framework, contest.leader.cell.device
    second = contest.second
    ahead = f"{text.lead(second.ratio)} as fast as {title(second.denominator.cell.framework)}"
    if contest.state is ContestState.NAMED:
        doubt = " but doubtful" if contest.leader.key in unsteady else ""
        small = f"95%: {text.lead_interval(second.interval)}" if second.interval else ""
        return Call(f"fastest{doubt}, {ahead}", (leader,), device, named=True, small=small)
    if contest.state is ContestState.UNKNOWN:
        if not is_ahead(contest, unsteady.keys()):
            return Call(why_no_lead([contest]))
        several = any(ratio.rounds > 1 for ratio in contest.ratios)
        return Call(f"{ahead}{', too few launches' if several else ''}", (leader,), device)
    tied = contest.state is ContestState.TIE
    rivals = [ratio.denominator.cell.framework for ratio in (contest.ties if tied else contest.rivals)]
    frameworks = tuple(sorted([leader, *rivals], key=sort_key))
    return Call("tie" if tied else "undecided", frameworks, device, small=_open_interval(contest))


def _open_interval(contest: Contest) -> str:
    """Return the widest interval that contains 1, or "" if there is none or if it is too wide to say anything."""
    intervals = [ratio.interval for ratio in contest.ties if ratio.interval]
    widest = max(intervals, key=lambda interval: interval.half_width, default=None)
    if widest is None or widest.high > text.MAX_SPREAD * widest.low:
        return ""
    return f"95%: {text.ends(widest)}"
