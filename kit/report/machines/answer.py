"""Answer which machine is faster, which is cheaper for the same work, and how sure that is, each in one sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence, Set

from kit.analysis.answer import Answer, State
from kit.analysis.comparison import Comparison, Overall
from kit.analysis.contenders import Versus
from kit.analysis.intervals import MIN_LAUNCHES, Verdict
from kit.model.formatting import format_count
from kit.report import amounts, text
from kit.report.machines.network_choices import cheapest
from kit.report.machines.source import VERBS, MachinesInput, verdict_words

FASTER, CHEAPER, SURE = "Which machine is faster?", "Which machine does more for the money?", "How sure is this?"
TOO_FEW = "With too few launches"
NO_PRICES = "Not compared: fewer than two machines have a price"


def answers(source: MachinesInput) -> tuple[Answer, ...]:
    """Return the answers."""
    return (_faster(source), _cheaper(source), _sure(source))


def _faster(source: MachinesInput) -> Answer:
    """Compare the speed of each machine with that of the base. The headline is about the fastest of them."""
    found = [(each.other.label, each.speed, set(each.counts)) for each in source.versus if each.speed]
    if not found:
        return Answer(
            FASTER,
            State.NOT_MEASURED,
            "Not compared: no cell was measured in the same way on the base and another machine",
        )

    def words(ahead: str, ratio: str, behind: str, mean: Overall) -> str:
        return f"{ahead} is {ratio} times as fast as {behind} ({_extent(mean, 'cell')})"

    state, headline, *details = _against_base(source, found, words)
    return Answer(FASTER, state, headline, tuple(details))


def _cheaper(source: MachinesInput) -> Answer:
    """Compare how much work each machine does for the same money. The headline is about the one that does most."""
    found = [(each.other, each.mean, set(each.results)) for each in source.values]
    if not found and len(source.priced) > 1:
        why = "no network has a price on the base and another machine"
        if not source.base.tariff:
            why = f"{source.base.label}, the base, has no price"
        return Answer(CHEAPER, State.NOT_MEASURED, f"Not compared: {why}", (_prices(source),))
    if not found:
        hint = "Give each machine a price with --price NAME=0.19/h, or with --prices FILE."
        return Answer(CHEAPER, State.NOT_MEASURED, NO_PRICES, (hint,))

    def words(ahead: str, ratio: str, behind: str, mean: Overall) -> str:
        verb = VERBS[source.measure]
        return (
            f"for the same money, {ahead} {verb} {ratio} times as many images as {behind} ({_extent(mean, 'network')})"
        )

    state, *sentences = _against_base(source, found, words)
    headline, *details = [f"{sentence[0].upper()}{sentence[1:]}" for sentence in sentences]
    ways = f"Each network in its cheapest way: {cheapest(source)}."
    return Answer(CHEAPER, state, headline, (*details, ways, _prices(source)))


def _against_base(
    source: MachinesInput,
    found: Sequence[tuple[str, Overall, Set[Verdict]]],
    words: Callable[[str, str, str, Overall], str],
) -> tuple[State, str, *tuple[str, ...]]:
    """Return the state and the sentence about the best machine, and a sentence about each other one.

    found: label, mean ratio over the base, and results of each machine. words: makes a sentence from the better
    machine, the ratio above 1, the worse machine and the mean.
    """
    ordered = sorted(found, key=lambda each: each[1].ratio, reverse=True)
    sentences = []
    for label, mean, results in ordered:
        ahead, behind = (source.base.label, label) if mean.ratio < 1 else (label, source.base.label)
        above = _inverse(mean) if mean.ratio < 1 else mean
        sentences.append(_hedged(_state(mean, results), words(ahead, text.factor(above.ratio), behind, above)))
    headline, *others = sentences
    return (_state(ordered[0][1], ordered[0][2]), headline, *(f"{each}." for each in others))


def _inverse(mean: Overall) -> Overall:
    """Return the mean of the inverse ratios."""
    return Overall(mean.cells, 1 / mean.ratio, mean.interval.inverse if mean.interval else None)


def _state(mean: Overall, results: Set[Verdict]) -> State:
    """Return how well a mean answers the question. results: of its parts. A mean of few parts has no interval, so they
    must agree. If no part has an interval, nothing may be called faster or cheaper."""
    if results == {Verdict.UNKNOWN}:
        return State.SINGLE
    clear = results - {Verdict.UNKNOWN} in ({Verdict.FASTER}, {Verdict.SLOWER})
    if mean.interval:
        clear = mean.interval.verdict is not Verdict.TIE
    return State.MEASURED if clear else State.TIE


def _hedged(state: State, sentence: str) -> str:
    """Return a sentence that says how well it is supported."""
    return {State.SINGLE: f"{TOO_FEW}: ", State.TIE: "No clear difference: "}.get(state, "") + sentence


def _extent(mean: Overall, noun: str) -> str:
    """Return the interval of a mean, and the number of what it is over."""
    ends = f"{text.ends(mean.interval, 2)}, " if mean.interval else ""
    return ends + format_count(mean.cells, noun)


def _prices(source: MachinesInput) -> str:
    """Return the prices of an hour, with their date and source."""
    tariffs = {contender.label: contender.tariff for contender in source.contenders if contender.tariff}
    hours = "; ".join(f"{label} {amounts.hourly(tariff)}" for label, tariff in tariffs.items())
    origins = "; ".join(dict.fromkeys(filter(None, map(amounts.origin, tariffs.values()))))
    sentences = [f"Prices of an hour: {hours}{f' ({origins})' if origins else ''}."]
    if any(len(set(tariff.per_hour.values())) > 1 for tariff in tariffs.values()):
        sentences.append("A price for a device is what the machine costs while it works on that device.")
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
        2: f"A first look: {launches} of each cell; fewer than {MIN_LAUNCHES} are too few to decide small differences",
        MIN_LAUNCHES: f"A comparison: {launches} of each cell on each machine",
    }
    level = max(least for least in words if least <= fewest)
    return Answer(SURE, State.MEASURED if level > 1 else State.SINGLE, words[level], tuple(_doubts(source, shown)))


def _doubts(source: MachinesInput, found: Sequence[Comparison]) -> list[str]:
    """Return how many cells have which result, and what their intervals do not cover. found: the compared cells."""
    results = [f"{each.other.label} {words}" for each in source.versus if (words := _results(each))]
    sentences = [f"Cells against {source.base.label}: {'; '.join(results)}."]
    synthetic = [each.base.synthetic for each in found]
    if any(synthetic):
        sentences.append(
            f"{'All' if all(synthetic) else 'Some'} cells used synthetic data: their speeds are estimates."
        )
    if any(each.launches < MIN_LAUNCHES for each in found):
        sentences.append(
            f"To be surer, measure with --profile standard: at least {MIN_LAUNCHES} launches of each cell."
        )
    if any(each.pairs is None for each in found):
        sentences.append("The intervals do not cover a machine that was slower during its whole run.")
    return sentences


def _results(versus: Versus) -> str:
    """Return how many compared cells of a machine have which result, or "" if none was compared."""
    counts = Counter(map(verdict_words, versus.compared))
    return ", ".join(f"{count} {words}" for words, count in counts.most_common())
