"""Answer which machine is faster, which is cheaper for the same work, and how sure that is, each in one sentence."""

from __future__ import annotations

from collections.abc import Sequence, Set

from kit.analysis.answer import Answer, State
from kit.analysis.comparison import Comparison, Overall
from kit.analysis.contenders import Versus
from kit.analysis.intervals import MIN_LAUNCHES, Verdict
from kit.model.formatting import format_count
from kit.report import amounts, text
from kit.report.machines.source import VERBS, VERDICTS, MachinesInput

FASTER, CHEAPER, SURE = "Which machine is faster?", "Which machine does more for the money?", "How sure is this?"
TOO_FEW = "With too few launches"
NO_PRICES = "Not compared: fewer than two machines have a price"


def answers(source: MachinesInput) -> tuple[Answer, ...]:
    """Return the answers."""
    return (_faster(source), _cheaper(source), _sure(source))


def _faster(source: MachinesInput) -> Answer:
    """Compare the speed of each machine with that of the base. The headline is about the fastest of them."""
    found = [(each, each.speed) for each in source.versus if each.speed]
    if not found:
        return Answer(FASTER, State.NOT_MEASURED, "Not compared: no cell was measured on both machines in the same way")
    best, *rest = sorted(found, key=lambda each: each[1].ratio, reverse=True)
    details = tuple(f"{_than_base(source, *each)}." for each in rest)
    versus, mean = best
    return Answer(FASTER, _state(mean, versus.results()), _than_base(source, *best), details)


def _than_base(source: MachinesInput, versus: Versus, mean: Overall) -> str:
    """Return which of a machine and the base is faster: `B is 2.4 times as fast as A (2.2 to 2.6, 18 cells)`."""
    winner, loser, ahead = _winner_first(source, versus, mean)
    words = f"{winner} is {text.factor(ahead.ratio)} times as fast as {loser} ({_extent(ahead)})"
    return _hedged(_state(mean, versus.results()), words)


def _winner_first(source: MachinesInput, versus: Versus, mean: Overall) -> tuple[str, str, Overall]:
    """Return the better and the worse machine, and the ratio of the better one over the worse one."""
    other, base = versus.other.label, source.base.label
    return (base, other, _inverse(mean)) if mean.ratio < 1 else (other, base, mean)


def _state(mean: Overall, results: Set[Verdict]) -> State:
    """Return how well a mean answers the question. results: of its cells. A mean of few cells has no interval, so they
    must agree. If no cell has an interval, nothing may be called faster or cheaper."""
    if results == {Verdict.UNKNOWN}:
        return State.SINGLE
    clear = results - {Verdict.UNKNOWN} in ({Verdict.FASTER}, {Verdict.SLOWER})
    if mean.interval:
        clear = mean.interval.verdict is not Verdict.TIE
    return State.MEASURED if clear else State.TIE


def _hedged(state: State, sentence: str) -> str:
    """Return a sentence that says how well it is supported."""
    return {State.SINGLE: f"{TOO_FEW}: ", State.TIE: "No clear difference: "}.get(state, "") + sentence


def _extent(mean: Overall) -> str:
    """Return the interval of a mean and the number of its cells."""
    ends = f"{text.factor(mean.interval.low)} to {text.factor(mean.interval.high)}, " if mean.interval else ""
    return ends + format_count(mean.cells, "cell")


def _cheaper(source: MachinesInput) -> Answer:
    """Compare how much work each machine does for the same money. The headline is about the one that does most."""
    found = [(each, each.value) for each in source.versus if each.value]
    if not found and len(source.priced) > 1:
        why = "no compared cell has a price on both machines"
        if not source.base.tariff:
            why = f"{source.base.label}, the base, has no price"
        return Answer(CHEAPER, State.NOT_MEASURED, f"Not compared: {why}", (_prices(source),))
    if not found:
        hint = "Give each machine a price with --price NAME=0.19/h, or with --prices FILE."
        return Answer(CHEAPER, State.NOT_MEASURED, NO_PRICES, (hint,))
    best, *rest = sorted(found, key=lambda each: each[1].ratio, reverse=True)
    details = [f"{_for_money(source, *each)}." for each in rest]
    versus, mean = best
    state = _state(mean, versus.results(for_money=True))
    return Answer(CHEAPER, state, _for_money(source, *best), (*details, _prices(source)))


def _for_money(source: MachinesInput, versus: Versus, mean: Overall) -> str:
    """Return how much work the better of a machine and the base does for the same money."""
    winner, loser, ahead = _winner_first(source, versus, mean)
    verb = VERBS[source.measure]
    words = f"{winner} {verb} {text.factor(ahead.ratio)} times as many images as {loser} ({_extent(ahead)})"
    sentence = _hedged(_state(mean, versus.results(for_money=True)), f"for the same money, {words}")
    return sentence[0].upper() + sentence[1:]


def _inverse(mean: Overall) -> Overall:
    """Return the mean of the inverse ratios."""
    return Overall(mean.cells, 1 / mean.ratio, mean.interval.inverse if mean.interval else None)


def _prices(source: MachinesInput) -> str:
    """Return the prices of an hour, with their date and source."""
    tariffs = {contender.label: contender.tariff for contender in source.contenders if contender.tariff}
    hours = "; ".join(f"{label} {amounts.hourly(tariff)}" for label, tariff in tariffs.items())
    origins = "; ".join(dict.fromkeys(filter(None, map(amounts.origin, tariffs.values()))))
    sentences = [f"Prices of an hour: {hours}{f' ({origins})' if origins else ''}."]
    if any(len(set(tariff.per_hour.values())) > 1 for tariff in tariffs.values()):
        sentences.append("A price for a device is that of the machine while it works on that device.")
    if len(tariffs) < len(source.contenders):
        unpriced = [label for label in source.labels if label not in tariffs]
        sentences.append(f"No price: {text.listed(unpriced)}.")
    return " ".join(sentences)


def _sure(source: MachinesInput) -> Answer:
    """Say how many launches there are, and how many cells are ties or unknown."""
    shown = [each for versus in source.versus for each in versus.compared]
    if not shown:
        return Answer(SURE, State.NOT_MEASURED, "Nothing was compared")
    fewest = max(1, min(each.launches for each in shown))  # a paired cell may have no common round
    launches = f"at least {format_count(fewest, 'launch')}"
    words = {
        1: "A first look: some cells have too few launches for an interval",
        2: f"A first look: {launches} of each cell; with fewer than {MIN_LAUNCHES} the intervals may be too narrow",
        MIN_LAUNCHES: f"A comparison: {launches} of each cell on each machine",
    }
    level = max(least for least in words if least <= fewest)
    return Answer(SURE, State.MEASURED if level > 1 else State.SINGLE, words[level], tuple(_doubts(source, shown)))


def _doubts(source: MachinesInput, found: Sequence[Comparison]) -> list[str]:
    """Return how many cells have which result, and what their intervals do not cover. found: the compared cells."""
    results = [f"{each.other.label} {words}" for each in source.versus if (words := _results(each))]
    sentences = [f"Cells against {source.base.label}: {'; '.join(results)}."]
    if any(each.base.synthetic for each in found):
        sentences.append("Some cells used synthetic data: their speeds are estimates.")
    if any(each.pairs is None for each in found):
        sentences.append("The intervals do not cover a machine that was slower during its whole run.")
    return sentences


def _results(versus: Versus) -> str:
    """Return how many compared cells of a machine have which result, or "" if none was compared."""
    return ", ".join(f"{count} {VERDICTS[verdict]}" for verdict, count in versus.counts.most_common())
