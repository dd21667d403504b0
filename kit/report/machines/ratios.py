"""Make the rows of ratios: each cell on each other machine over the base, with the prices' break-even."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kit.analysis.comparison import Comparison
from kit.analysis.intervals import MIN_LAUNCHES, Verdict
from kit.model.formatting import format_count
from kit.report import text
from kit.report.elements import MAX_ROWS
from kit.report.machines.source import MachinesInput
from kit.report.scales import Scale, log_scale
from kit.report.strips import Dot, Strip, Tick, dot_y, span, strip_height, ticks, whisker_ends

WORDS = {
    Verdict.FASTER: "faster",
    Verdict.SLOWER: "slower",
    Verdict.TIE: "tie",
    Verdict.UNKNOWN: "one launch",
    Verdict.REFUSED: "not comparable",
    Verdict.MISSING: "missing",
}
DECIDED = (Verdict.FASTER, Verdict.SLOWER)


@dataclass(frozen=True)
class Even:
    """The break-even of the prices of a machine and the base: position, machine, and what a pointer shows."""

    at: float
    label: str
    text: str


@dataclass(frozen=True)
class RatioValue:
    """A cell on another machine. ratio: as text. sort: the ratio, or "". interval, speed: small print. named: whether
    the result is clear."""

    label: str
    ratio: str
    sort: str
    interval: str
    speed: str
    verdict: str
    named: bool


@dataclass(frozen=True)
class RatioRow:
    """One cell. name: title of the network. details: the short name of the cell. base: images/s on the base."""

    name: str
    details: str
    base: str
    strip: Strip
    evens: tuple[Even, ...]
    values: tuple[RatioValue, ...]


@dataclass(frozen=True)
class Ratios:
    """The table. heading: its answer. others: the other machines. one: position of the ratio 1. notes: small print.

    devices: those of the marks. omitted: rows that are not shown, as a count, or "".
    """

    heading: str
    base: str
    others: tuple[str, ...]
    ticks: tuple[Tick, ...]
    one: float
    rows: tuple[RatioRow, ...]
    devices: tuple[str, ...]
    whiskers: bool
    notes: tuple[str, ...]
    omitted: str

    @property
    def width(self) -> int:
        """Return the least width of the table in px. A narrower window scrolls it."""
        return 480 + 112 * len(self.others)


def ratios(source: MachinesInput) -> Ratios | None:
    """Return the ratios, the first other machine's highest ratio first. None if no cell was compared."""
    by_key = {key: [versus.by_key.get(key) for versus in source.versus] for key in source.names}
    shown = {key: found for key, found in by_key.items() if any(each and each.ratio for each in found)}
    if not shown:
        return None
    first = {key: found[0].ratio for key, found in shown.items() if found[0] and found[0].ratio}
    ordered = sorted(shown, key=lambda key: first.get(key, 0.0), reverse=True)
    drawn = ordered[:MAX_ROWS]
    scale = log_scale([1.0, *(end for found in shown.values() for end in _extent(found)), *_evens(source)])
    rows = [_row(source, scale, key, shown[key]) for key in drawn]
    compared = [each for found in shown.values() for each in found if each and each.ratio is not None]
    return Ratios(
        heading=_heading(source, compared),
        base=source.base.label,
        others=tuple(each.other.label for each in source.versus),
        ticks=ticks(scale, lambda value: f"{text.number_short(value)}×"),
        one=scale.at(1.0),
        rows=tuple(rows),
        devices=tuple(sorted({each.cell.device for each in compared})),
        whiskers=any(each.interval for each in compared),
        notes=tuple(_notes(source, compared)),
        omitted=format_count(len(ordered) - len(drawn), "more row") if len(ordered) > len(drawn) else "",
    )


def _extent(found: Sequence[Comparison | None]) -> list[float]:
    """Return the values that the scale must cover."""
    values: list[float] = []
    for each in found:
        if each and each.ratio:
            ends = (each.interval.low, each.interval.high) if each.interval else ()
            values += [each.ratio, *whisker_ends(each.ratio, ends)]
    return values


def _evens(source: MachinesInput) -> list[float]:
    """Return all ratios of prices between the cells that were compared."""
    found = {v.break_even(each.cell) for v in source.versus for each in v.comparisons if each.ratio is not None}
    return [even for even in found if even]


def _heading(source: MachinesInput, compared: Sequence[Comparison]) -> str:
    """Return how many cells are faster, slower and tied, for two machines; else what is shown."""
    if len(source.versus) > 1:
        return f"Each machine against {source.base.label}, cell by cell"
    total = format_count(len(compared), "cell")
    counts = {verdict: sum(each.verdict is verdict for each in compared) for verdict in WORDS}
    other = source.versus[0].other.label
    words = [f"{WORDS[verdict]} in {count}" for verdict, count in counts.items() if count and verdict in DECIDED]
    open_count = counts[Verdict.TIE]
    words += [f"as fast as {source.base.label} within the noise in {open_count}"] if open_count else []
    if not words:
        return f"{other} against {source.base.label} in one launch each: no cell has an interval"
    return f"{other} is {text.listed(words)} of {total}"


def _row(source: MachinesInput, scale: Scale, key: str, found: Sequence[Comparison | None]) -> RatioRow:
    first = next(each for each in found if each and each.ratio)
    dots: list[Dot] = []
    values: list[RatioValue] = []
    evens: list[Even] = []
    for versus, each in zip(source.versus, found, strict=True):
        label = versus.other.label
        values.append(_value(label, each))
        if each is None or not each.ratio:
            continue
        ends = (each.interval.low, each.interval.high) if each.interval else None
        shown = f"{label}: {text.ratio(each.ratio)} the speed of {source.base.label}"
        shown += f", 95 % interval {text.factor(ends[0])} to {text.factor(ends[1])}" if ends else ", one launch"
        whisker = span(scale, ends) if ends else None
        dots.append(Dot(label, each.cell.device, scale.at(each.ratio), dot_y(len(dots)), shown, whisker))
        even = versus.break_even(each.cell)
        if even:
            costs = f"{label} costs {text.ratio(even)} as much as {source.base.label}"
            evens.append(Even(scale.at(even), label, costs))
    name = source.network(first.cell)
    numbers = "; ".join(dot.text for dot in dots)
    return RatioRow(
        name=name,
        details=source.names[key],
        base=text.number(first.base.images_per_s),
        strip=Strip(f"{name}: {numbers}.", strip_height(len(dots)), (), tuple(dots)),
        evens=tuple(evens),
        values=tuple(values),
    )


def _value(label: str, each: Comparison | None) -> RatioValue:
    if each is None or each.ratio is None:
        verdict = WORDS[each.verdict] if each else WORDS[Verdict.MISSING]
        return RatioValue(label, text.MISSING, "", "", "", verdict, named=False)
    ends = f"{text.factor(each.interval.low)} to {text.factor(each.interval.high)}" if each.interval else ""
    flag = " !" if each.flagged else ""
    return RatioValue(
        label=label,
        ratio=f"{text.factor(each.ratio)}×",
        sort=f"{each.ratio:.6g}",
        interval=ends,
        speed=f"{text.number(each.new.images_per_s)} images/s",
        verdict=WORDS[each.verdict] + flag,
        named=each.verdict in DECIDED,
    )


def _notes(source: MachinesInput, compared: Sequence[Comparison]) -> list[str]:
    """Return what a reader must know about the ratios."""
    notes = [f"1× is the speed of {source.base.label}. Further right is faster."]
    if any(each.interval for each in compared):
        paired = any(each.pairs for each in compared)
        notes.append(
            "The line through a mark is the 95 % interval "
            + ("over common rounds" if paired else "over launches")
            + ". If it contains 1×, the result is a tie."
        )
    if any(each.interval and min(len(each.base.speeds), len(each.new.speeds)) < MIN_LAUNCHES for each in compared):
        notes.append(f"Intervals from fewer than {MIN_LAUNCHES} launches may be too narrow.")
    if any(each.verdict is Verdict.UNKNOWN for each in compared):
        notes.append("A single launch has no interval, so it makes nothing faster or slower.")
    if _evens(source):
        notes.append(
            "The dashed line is the break-even: what the machine costs as a multiple of the price of "
            f"{source.base.label}. Right of it, the machine does more work for the same money."
        )
    if any(each.flagged for each in compared):
        notes.append("! marks cells that differ in more than the machine; the table above shows in what.")
    return notes
