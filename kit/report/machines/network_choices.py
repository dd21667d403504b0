"""Show for each network which machine is the fastest and which is the cheapest, and what everything costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kit.analysis.contenders import Choice, Offer, Ranking
from kit.analysis.costs import Estimate
from kit.analysis.pairing import Measure
from kit.analysis.summaries import ContestState, contest_noun
from kit.model.formatting import format_count
from kit.report import amounts, text
from kit.report.elements import MAX_ROWS
from kit.report.machines.source import MachinesInput

SCOPE = (
    "Times and costs are those of steady training. The start, the evaluation after each epoch and idle time of a "
    "rented machine cost extra."
)


@dataclass(frozen=True)
class Best:
    """The best machine for a network. label: "" if the data name none. words: the result. small: the details."""

    label: str
    words: str
    small: tuple[str, ...] = ()


@dataclass(frozen=True)
class ChoiceRow:
    """A network. details: its id. fastest, cheapest: None if fewer than two machines can be compared."""

    name: str
    details: str
    fastest: Best | None
    cheapest: Best | None


@dataclass(frozen=True)
class Amount:
    """A number in a table. shown: with its unit. ends: of its interval, or "". sort: the bare number, or ""."""

    shown: str
    ends: str
    sort: str


@dataclass(frozen=True)
class OfferRow:
    """The offer of a machine for a network. launches: their number. amounts: in the order of the headers."""

    network: str
    details: str
    label: str
    way: str
    launches: str
    amounts: tuple[Amount, ...]


@dataclass(frozen=True)
class NetworkChoices:
    """The content. heading: the answer. scope: what times and costs leave out, or "". headers: of the amounts.

    omitted: how many offers are not shown, or "".
    """

    heading: str
    scope: str
    rows: tuple[ChoiceRow, ...]
    headers: tuple[str, ...]
    offers: tuple[OfferRow, ...]
    omitted: str
    notes: tuple[str, ...]

    @property
    def priced(self) -> bool:
        """Return whether a machine is cheaper or could be."""
        return any(row.cheapest for row in self.rows)


def network_choices(source: MachinesInput) -> NetworkChoices | None:
    """Return the choices, or None if no network was measured on two machines in the same way."""
    if not source.choices:
        return None
    offers = [offer for choice in source.choices for offer in _offers(choice)]
    return NetworkChoices(
        heading=_heading(source),
        scope=SCOPE if source.measure is Measure.TRAINING else "",
        rows=tuple(_row(source, choice) for choice in source.choices[:MAX_ROWS]),
        headers=_headers(source),
        offers=tuple(_offer_row(source, offer) for offer in offers[:MAX_ROWS]),
        omitted=format_count(len(offers) - MAX_ROWS, "more row") if len(offers) > MAX_ROWS else "",
        notes=_notes(source),
    )


def _offers(choice: Choice) -> Iterable[Offer]:
    """Return the offers of each machine: the fastest one, and the cheapest one if it is another one."""
    for fast, cheap in zip(choice.fast, choice.cheap, strict=True):
        yield from dict.fromkeys(offer for offer in (fast, cheap) if offer)


def _heading(source: MachinesInput) -> str:
    priced = any(choice.cheapest for choice in source.choices)
    return cheapest(source) if priced else _leaders([choice.fastest for choice in source.choices], "fastest")


def cheapest(source: MachinesInput) -> str:
    """Return for how many networks each machine is the cheapest."""
    return _leaders([choice.cheapest for choice in source.choices], "cheapest")


def _leaders(rankings: Iterable[Ranking | None], word: str) -> str:
    """Return in how many rankings each machine is the best. word: for example `cheapest`."""
    found = [ranking for ranking in rankings if ranking]
    networks = [each.leader.summary.cell.network for each in found]
    total = format_count(len(found), contest_noun(networks))
    leaders = Counter(each.leader.label for each in found if each.state is ContestState.NAMED)
    unclear = len(found) - leaders.total()
    if not leaders:
        return f"No machine is clearly the {word}{f' for any of {total}' if len(found) > 1 else ''}"
    words = text.listed([f"{label} is the {word} for {count}" for label, count in leaders.most_common()])
    return f"{words} of {total}{f' ({unclear} without a clear winner)' if unclear else ''}"


def _row(source: MachinesInput, choice: Choice) -> ChoiceRow:
    cell = choice.cell
    return ChoiceRow(
        name=source.network(cell),
        details=_details(source, choice.offers[0]),
        fastest=_best(source, choice.fastest, ("is", "as fast as"), _time_words),
        cheapest=_best(source, choice.cheapest, ("does", "as much for the money as"), _cost_words),
    )


def _details(source: MachinesInput, offer: Offer) -> str:
    """Return what distinguishes a network: its id, the images per step or per call, and what is unusual."""
    summary = offer.summary
    training = source.measure is Measure.TRAINING
    batch = summary.cell.batch if training else summary.inference_batch
    unusual = [summary.cell.precision] * (summary.cell.precision != "fp32") + ["synthetic data"] * summary.synthetic
    return " · ".join([summary.cell.network, f"batch {batch}", *unusual])


def _best(
    source: MachinesInput,
    ranking: Ranking | None,
    around: tuple[str, str],
    details: Callable[[MachinesInput, Offer], str],
) -> Best | None:
    """Return the result of a ranking. around: the words before and after its ratio, for example `is`, `as fast as`."""
    if ranking is None:
        return None
    verb, than = around
    leader, second = ranking.leader, ranking.second
    ahead = f"{text.factor(ranking.ratio)}× {than} {second.label}"
    if ranking.interval:
        ahead += f" ({text.ends(ranking.interval, 2)})"
    words = {
        ContestState.NAMED: ahead,
        ContestState.TIE: f"Tie: {leader.label} {verb} {ahead}",
        ContestState.UNDECIDED: f"Undecided: {leader.label} {verb} {ahead}",
        ContestState.UNKNOWN: f"Too few launches: {leader.label} {verb} {ahead}",
    }[ranking.state]
    label = leader.label if ranking.state is ContestState.NAMED else ""
    offers = [
        f"{offer.label}: {details(source, offer)} ({source.way(offer.summary.cell)})" for offer in (leader, second)
    ]
    return Best(label, words, tuple(offers))


def _time_words(source: MachinesInput, offer: Offer) -> str:
    """Return how long the work takes, or the speed if there is no whole work."""
    model, epochs = offer.times.model, offer.times.epochs
    if model is None or epochs is None:
        return f"{text.number(offer.speed)} images/s"
    return f"{text.seconds(model.value)} for {format_count(epochs, 'epoch')}"


def _cost_words(source: MachinesInput, offer: Offer) -> str:
    """Return what the work costs."""
    model, epochs = offer.times.model, offer.times.epochs
    if model is None or epochs is None:
        return f"{source.money(offer.cost(offer.times.million))} for a million images"
    return f"{source.money(offer.cost(model))} for {format_count(epochs, 'epoch')}"


def _headers(source: MachinesInput) -> tuple[str, ...]:
    training = source.measure is Measure.TRAINING
    unit = f", {source.currency}" if source.currency else ""
    times = ["Time of an epoch", "Time of a trained model"] if training else []
    costs = [f"Cost of a million images{unit}"]
    costs += [f"Cost of an epoch{unit}", f"Cost of a trained model{unit}"] if training else []
    return ("images/s", *times, *(costs if source.priced else []))


def _offer_row(source: MachinesInput, offer: Offer) -> OfferRow:
    training, times = source.measure is Measure.TRAINING, offer.times
    found = [Amount(text.number(offer.speed), "", f"{offer.speed:.6g}")]
    whole = [times.epoch, times.model] if training else []
    found += [_amount(each, text.seconds) for each in whole]
    if source.priced:
        costs = [_amount(offer.cost(each), text.number) for each in (times.million, *whole)]
        found += costs if offer.per_hour is not None else [Amount("no price", "", "")] * len(costs)
    cell = offer.summary.cell
    return OfferRow(
        network=source.network(cell),
        details=_details(source, offer),
        label=offer.label,
        way=source.way(cell),
        launches=format_count(len(offer.rates), "launch"),
        amounts=tuple(found),
    )


def _amount(of: Estimate | None, shown: Callable[[float], str]) -> Amount:
    if of is None:
        return Amount(text.MISSING, "", "")
    return Amount(shown(of.value), amounts.ends(of, shown), f"{of.value:.6g}")


def _notes(source: MachinesInput) -> tuple[str, ...]:
    """Return what the numbers are, and what they leave out."""
    notes = ["For each machine: its fastest framework and device, and its cheapest one if that is another one."]
    if source.measure is Measure.TRAINING:
        notes.append("A trained model takes the published number of epochs.")
    notes.append(
        "A machine is named only if it is ahead of each other one with p < 0.05, after a correction for several "
        "comparisons (Holm). The two ends after or below a number are its 95% interval over launches. A lead is a "
        "ratio of means, so it can differ from the quotient of the numbers shown, which are those of a typical launch. "
        "A machine that did other work in a network, for example with other data, is left out of it."
    )
    return tuple(notes)
