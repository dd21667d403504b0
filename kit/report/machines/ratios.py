"""Make the rows of ratios: each cell on each other machine over the base, with the prices' break-even."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from kit.analysis.comparison import Comparison
from kit.analysis.contenders import Contender, Versus
from kit.analysis.intervals import MIN_LAUNCHES, Verdict
from kit.analysis.summaries import ContestState
from kit.model.formatting import DEVICES, format_count
from kit.report import text
from kit.report.elements import MAX_ROWS
from kit.report.machines.source import MachinesInput, verdict_words
from kit.report.scales import Scale, log_scale
from kit.report.strips import Dot, Strip, Tick, dot_y, span, strip_height, ticks, whisker_ends

DECIDED = (Verdict.FASTER, Verdict.SLOWER)
MAX_NAMED = 3  # other machines in the heading


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
    """One cell. name: title of the network. details: the short name of the cell. base: images/s on the base. sort: the
    same as a bare number."""

    name: str
    details: str
    base: str
    sort: str
    strip: Strip
    evens: tuple[Even, ...]
    values: tuple[RatioValue, ...]


@dataclass(frozen=True)
class Ratios:
    """The table. heading: its answer. others: the other machines. one: position of the ratio 1. notes: small print.

    devices: those of the marks. evens: other machine to the break-even of its prices. omitted: rows that are not
    shown, as a count, or "".
    """

    heading: str
    base: str
    others: tuple[str, ...]
    ticks: tuple[Tick, ...]
    one: float
    rows: tuple[RatioRow, ...]
    devices: tuple[str, ...]
    evens: dict[str, str]
    notes: tuple[str, ...]
    omitted: str

    @property
    def width(self) -> int:
        """Return the least width of the table in px. A narrower window scrolls it."""
        return 480 + 112 * len(self.others)


def ratios(source: MachinesInput) -> Ratios | None:
    """Return the ratios, the first other machine's highest ratio first. None if no cell was compared."""
    of_all = [key for key in source.names if all(key in versus.by_key for versus in source.versus)]  # those of the base
    by_key = {key: [versus.by_key[key] for versus in source.versus] for key in of_all}
    shown = {key: found for key, found in by_key.items() if any(each.ratio is not None for each in found)}
    if not shown:
        return None
    first = {each.key: each.ratio or 0.0 for each in source.versus[0].compared}
    ordered = sorted(shown, key=lambda key: first.get(key, 0.0), reverse=True)
    drawn = ordered[:MAX_ROWS]
    scale = log_scale([1.0, *(end for found in shown.values() for end in _extent(found)), *_evens(source)])
    rows = [_row(source, scale, key, shown[key]) for key in drawn]
    compared = [each for versus in source.versus for each in versus.compared]
    return Ratios(
        heading=_heading(source),
        base=source.base.label,
        others=tuple(each.other.label for each in source.versus),
        ticks=ticks(scale, lambda value: f"{text.number_short(value)}×"),
        one=scale.at(1.0),
        rows=tuple(rows),
        devices=tuple(sorted({each.cell.device for each in compared})),
        evens={each.other.label: words for each in source.versus if (words := _even_words(each))},
        notes=tuple(_notes(source, compared)),
        omitted=format_count(len(ordered) - len(drawn), "more row") if len(ordered) > len(drawn) else "",
    )


def _extent(found: Sequence[Comparison]) -> list[float]:
    """Return the values that the scale must cover."""
    values: list[float] = []
    for each in found:
        if each.ratio is not None:
            ends = (each.interval.low, each.interval.high) if each.interval else ()
            values += [each.ratio, *whisker_ends(each.ratio, ends)]
    return values


def _evens(source: MachinesInput) -> list[float]:
    """Return all ratios of prices between the cells that were compared."""
    found = {versus.break_even(each.cell) for versus in source.versus for each in versus.compared}
    return [even for even in found if even]


def _even_words(versus: Versus) -> str:
    """Return the break-even of a machine, for example `1.8×`, or `1.8× (CPU) and 0.60× (GPU)`. "" without prices."""
    evens = {each.cell.device: even for each in versus.compared if (even := versus.break_even(each.cell))}
    everywhere = set(evens) == {each.cell.device for each in versus.compared}
    if everywhere and len(set(evens.values())) == 1:
        return "".join(f"{text.factor(even)}×" for even in set(evens.values()))
    return text.listed([f"{text.factor(even)}× ({DEVICES[device]})" for device, even in sorted(evens.items())])


def _heading(source: MachinesInput) -> str:
    """Return in how many cells each machine is faster, slower and tied, or what is shown if there are many machines."""
    found = [words for each in source.versus if (words := _results(each))]
    return "; ".join(found) if len(found) <= MAX_NAMED else f"Each machine against {source.base.label}, cell by cell"


def _results(versus: Versus) -> str:
    """Return in how many cells a machine is faster, slower and tied. "" if no cell was compared."""
    outcomes = Counter(each.words for each in versus.compared)
    if not outcomes:
        return ""
    other, base = versus.other.label, versus.base.label
    words = [f"{verdict} in {outcomes[verdict]}" for verdict in DECIDED if outcomes[verdict]]
    if ties := outcomes[ContestState.TIE]:
        words.append(f"as fast as {base} within the noise in {ties}")
    if undecided := outcomes[ContestState.UNDECIDED]:
        words.append(f"{ContestState.UNDECIDED} in {undecided}")
    if not words:
        return f"{other} against {base}: no cell has an interval"
    return f"{other} is {text.listed(words)} of {format_count(outcomes.total(), 'cell')}"


def _row(source: MachinesInput, scale: Scale, key: str, found: Sequence[Comparison]) -> RatioRow:
    first = found[0]
    dots: list[Dot] = []
    values: list[RatioValue] = []
    evens: list[Even] = []
    for versus, each in zip(source.versus, found, strict=True):
        label = versus.other.label
        values.append(_value(source, versus.other, each))
        if each.ratio is None:
            continue
        shown = f"{label}: {text.factor(each.ratio)}× the speed of {source.base.label}"
        shown += f", 95% interval {text.ends(each.interval, 2)}" if each.interval else ", no interval"
        whisker = span(scale, (each.interval.low, each.interval.high)) if each.interval else None
        dots.append(Dot(label, each.cell.device, scale.at(each.ratio), dot_y(len(dots)), shown, whisker))
        even = versus.break_even(each.cell)
        if even:
            costs = f"{label} costs {text.factor(even)}× as much as {source.base.label}"
            evens.append(Even(scale.at(even), label, costs))
    name = source.network(first.cell)
    numbers = "; ".join(dot.text for dot in dots)
    return RatioRow(
        name=name,
        details=source.names[key],
        base=text.number(first.base.images_per_s),
        sort=f"{first.base.images_per_s:.6g}",
        strip=Strip(f"{name}: {numbers}.", strip_height(len(dots)), (), tuple(dots)),
        evens=tuple(evens),
        values=tuple(values),
    )


def _value(source: MachinesInput, other: Contender, each: Comparison) -> RatioValue:
    label = other.label
    if each.ratio is None:
        lacks = each.verdict is Verdict.MISSING and not each.new.speeds
        verdict = source.lack(other, each.cell, each.new.failures) if lacks else verdict_words(each)
        return RatioValue(label, text.MISSING, "", "", "", verdict, named=False)
    ends = text.ends(each.interval, 2) if each.interval else ""
    flag = " !" if each.flagged else ""
    return RatioValue(
        label=label,
        ratio=f"{text.factor(each.ratio)}×",
        sort=f"{each.ratio:.6g}",
        interval=ends,
        speed=f"{text.number(each.new.images_per_s)} images/s",
        verdict=verdict_words(each) + flag,
        named=each.verdict in DECIDED,
    )


def _notes(source: MachinesInput, compared: Sequence[Comparison]) -> list[str]:
    """Return what a reader must know about the ratios."""
    notes = [f"1× is the speed of {source.base.label}. Further right is faster."]
    if any(each.interval for each in compared):
        kinds = {f"over {'launches' if each.pairs is None else 'common rounds'}" for each in compared if each.interval}
        notes.append(
            f"The line through a mark is the 95% interval {' or '.join(sorted(kinds))}. A short one is hidden behind "
            "the mark. If it contains 1×, the result is a tie, or undecided if it is wide."
        )
    if any(each.interval and each.launches < MIN_LAUNCHES for each in compared):
        notes.append(f"Fewer than {MIN_LAUNCHES} launches or rounds are too few to decide small differences.")
    if any(each.verdict is Verdict.UNKNOWN for each in compared):
        notes.append(
            "A cell without an interval has one launch or one common round, and makes nothing faster or slower."
        )
    if _evens(source):
        notes.append(
            "The dashed line is the break-even: what the machine costs as a multiple of the price of "
            f"{source.base.label}. Right of it, the machine does more work for the same money."
        )
    if any(each.flagged for each in compared):
        notes.append("! marks cells that differ in more than the machine; the table above shows in what.")
    return notes
