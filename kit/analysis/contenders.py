"""Compare machines with their prices: all cells, and the best choice for each network. No input or output.

A contender is a run with the name and the prices of its machine. The first one is the base of all ratios.

The choice for a network is between the best cells of the machines, in any framework and on any device. A machine is
named the fastest or the cheapest only if it is ahead of each other one with p < 0.05, adjusted by `holm` for all pairs
of machines (Welch's test, because machines do not share rounds). The best of several cells of a machine is a little
faster than expected by chance; this favors machines on which more was measured.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from operator import attrgetter
from statistics import geometric_mean

from kit.analysis.comparison import Comparison, Overall, compare, mean_ratio, overall
from kit.analysis.costs import MILLION, Estimate, Times, times_of
from kit.analysis.host_samples import joules_per_1000_images
from kit.analysis.intervals import CONFIDENCE, Interval, Verdict, holm, ratio_interval, ratio_p_value
from kit.analysis.pairing import Measure, rates
from kit.analysis.run_analysis import unchanged
from kit.analysis.summaries import CellSummary, ContestState, summarize
from kit.model.record import Record
from kit.model.run import Run
from kit.model.tariff import Tariff
from scenarios.catalog import Scenarios
from scenarios.contract.cell import Cell

SPEED = attrgetter("speed")

Work = tuple[object, ...]  # what two machines must have in common to do the same work


@dataclass(frozen=True)
class Contender:
    """A run with the name of its machine. tariff: its prices, or None. catalog: the scenarios of today."""

    label: str
    run: Run
    tariff: Tariff | None
    catalog: Scenarios

    @cached_property
    def cells(self) -> list[CellSummary]:
        """Return the summary of each cell with an `ok` launch."""
        return [summary for summary in summarize(self.run) if summary.launches]

    @cached_property
    def scenarios(self) -> Scenarios:
        """Return the scenarios that did not change since the run."""
        return unchanged(self.catalog, self.run.records)

    def per_hour(self, cell: Cell) -> float | None:
        """Return the price of an hour of the machine while it runs a cell, or None if it is unknown."""
        return self.tariff.per_hour.get(cell.device) if self.tariff else None


@dataclass(frozen=True)
class Versus:
    """A contender compared with the base, cell by cell."""

    base: Contender
    other: Contender
    comparisons: Sequence[Comparison]

    @cached_property
    def by_key(self) -> dict[str, Comparison]:
        """Return the comparison of each cell, by its key."""
        return {comparison.key: comparison for comparison in self.comparisons}

    @cached_property
    def compared(self) -> list[Comparison]:
        """Return the comparisons of the cells that have a ratio."""
        return [each for each in self.comparisons if each.ratio is not None]

    @cached_property
    def counts(self) -> Counter[Verdict]:
        """Return how many compared cells have which result."""
        return Counter(each.verdict for each in self.compared)

    @cached_property
    def speed(self) -> Overall | None:
        """Return the mean ratio of speeds, other over base."""
        return overall(self.comparisons)

    def break_even(self, cell: Cell) -> float | None:
        """Return the ratio of speeds at which both machines do the same work for the same money, or None."""
        base, other = self.base.per_hour(cell), self.other.per_hour(cell)
        return None if base is None or other is None else other / base


@dataclass(frozen=True)
class Offer:
    """A cell of a machine as a way to do the work of a network. rates: images/s of its launches. per_hour: price, or
    None."""

    label: str
    work: Work
    summary: CellSummary
    rates: tuple[float, ...]
    times: Times
    per_hour: float | None

    @property
    def speed(self) -> float:
        """Return images/s."""
        return MILLION / self.times.million.value

    def cost(self, time: Estimate | None) -> Estimate | None:
        """Return what a time costs, or None if the time or the price is unknown."""
        return None if time is None or self.per_hour is None else time.cost(self.per_hour)


@dataclass(frozen=True)
class Ranking:
    """The offer with the highest median. second: the best other one by its mean. ratio, interval: of the means, leader
    over second. state: what the data support."""

    leader: Offer
    second: Offer
    ratio: float
    interval: Interval | None
    state: ContestState


@dataclass(frozen=True)
class Choice:
    """The machines for one network.

    fast, cheap: the offer of each machine with the highest speed and with the lowest cost, in the order of the
    machines; None if it has none. fastest, cheapest: None for fewer than two offers.
    """

    fast: tuple[Offer | None, ...]
    cheap: tuple[Offer | None, ...]
    fastest: Ranking | None
    cheapest: Ranking | None

    @property
    def offers(self) -> list[Offer]:
        """Return the fast offers that exist."""
        return [offer for offer in self.fast if offer]

    @property
    def cell(self) -> Cell:
        """Return a cell of the network."""
        return self.offers[0].summary.cell


@dataclass(frozen=True)
class Value:
    """How much work a machine does for the same money as the base, each network in its cheapest way.

    mean: over the networks, other over base. results: of the networks, by Welch's intervals.
    """

    other: str
    mean: Overall
    results: frozenset[Verdict]


def values(contenders: Sequence[Contender], found: Sequence[Choice]) -> list[Value]:
    """Return the value of each other machine against the first one. Machines without a common network with prices are
    left out. found: the choices between these machines."""
    made = []
    for index, contender in enumerate(contenders[1:], start=1):
        pairs = [(base, other) for each in found if (base := each.cheap[0]) and (other := each.cheap[index])]
        mean = mean_ratio([_per_money(other) / _per_money(base) for base, other in pairs])
        intervals = [ratio_interval(_worths(other, _per_money), _worths(base, _per_money)) for base, other in pairs]
        if mean:
            results = frozenset(interval.verdict if interval else Verdict.UNKNOWN for interval in intervals)
            made.append(Value(contender.label, mean, results))
    return made


def versus(contenders: Sequence[Contender], measure: Measure) -> list[Versus]:
    """Return each other contender compared with the first one."""
    base, *others = contenders
    return [Versus(base, other, compare(base.run, other.run, measure)) for other in others]


def choices(contenders: Sequence[Contender], measure: Measure) -> list[Choice]:
    """Return the choice for each network that at least two machines measured in the same way."""
    groups: dict[Work, dict[str, list[Offer]]] = {}
    for contender in contenders:
        for offer in _offers(contender, measure):
            groups.setdefault(offer.work, {}).setdefault(contender.label, []).append(offer)
    labels = [contender.label for contender in contenders]
    return [_choice([group.get(label, []) for label in labels]) for group in groups.values() if len(group) > 1]


def _offers(contender: Contender, measure: Measure) -> Iterable[Offer]:
    """Yield the offer of each cell of a machine."""
    for summary in contender.cells:
        times = times_of(summary, measure, contender.scenarios)
        if times is None:
            continue
        records = [record for record in contender.run.by_cell[summary.key] if record.ok]
        first = records[0]
        evidence = first.result.evidence if first.result else None
        cell, digest = summary.cell, evidence.data_digest if evidence else ""
        batch = summary.inference_batch if measure is Measure.INFERENCE else cell.batch
        spec = first.request.spec if first.request else ""
        work = (cell.network, batch, cell.precision, spec, summary.synthetic, digest)
        speeds = tuple(rates(records, measure).values())
        yield Offer(contender.label, work, summary, speeds, times, contender.per_hour(cell))


def _choice(by_machine: Sequence[Sequence[Offer]]) -> Choice:
    fast = tuple(max(offers, key=SPEED, default=None) for offers in by_machine)
    priced = [[offer for offer in offers if offer.per_hour is not None] for offers in by_machine]
    cheap = tuple(max(offers, key=_per_money, default=None) for offers in priced)
    return Choice(fast, cheap, _rank(fast, SPEED), _rank(cheap, _per_money))


def _per_money(offer: Offer) -> float:
    """Return how much work the offer does for an amount of money. Its price is known."""
    assert offer.per_hour is not None
    return offer.speed / offer.per_hour


def _worths(offer: Offer, worth: Callable[[Offer], float]) -> list[float]:
    """Return the worth of each launch of an offer."""
    return [rate * worth(offer) / offer.speed for rate in offer.rates]


def _rank(found: Sequence[Offer | None], worth: Callable[[Offer], float]) -> Ranking | None:
    """Return the offer with the highest worth, or None if there are fewer than two offers."""
    offers = [offer for offer in found if offer]
    if len(offers) < 2:
        return None
    worths = {offer.label: _worths(offer, worth) for offer in offers}
    leader = max(offers, key=worth)
    others = [offer for offer in offers if offer is not leader]
    others.sort(key=lambda offer: geometric_mean(worths[offer.label]), reverse=True)  # the tests compare means
    second, pairs = others[0], list(combinations([leader, *others], 2))  # those of the leader are the first ones
    p_values = holm([ratio_p_value(worths[one.label], worths[other.label]) for one, other in pairs])
    interval = ratio_interval(worths[leader.label], worths[second.label])
    ratio = interval.estimate if interval else worth(leader) / worth(second)
    ahead = ratio > 1 and max(p_values[: len(others)]) < 1 - CONFIDENCE
    once = any(len(offer.rates) < 2 for offer in offers)
    return Ranking(leader, second, ratio, interval, _state(interval, ahead=ahead, once=once))


def _state(interval: Interval | None, *, ahead: bool, once: bool) -> ContestState:
    """Return what the data support. ahead: whether the leader is ahead of all others. once: whether an offer has one
    launch."""
    if ahead:
        return ContestState.NAMED
    if interval is None or once:
        return ContestState.UNKNOWN
    return ContestState.TIE if interval.tied else ContestState.UNDECIDED


@dataclass(frozen=True)
class Energy:
    """Images per joule of a cell in training, the median over launches. parts: what was measured, `cpu` and `gpu0`."""

    images: float
    parts: tuple[str, ...]


def energy_of(records: Iterable[Record]) -> Energy | None:
    """Return the images per joule of the `ok` launches of a cell, or None if no launch has its energy.

    The joules of all parts are added. Launches with fewer parts than the others are left out.
    """
    found = [joules for record in records if record.ok and (joules := joules_per_1000_images(record))]
    parts = max((tuple(sorted(joules)) for joules in found), key=len, default=())
    totals = [total for joules in found if tuple(sorted(joules)) == parts and (total := sum(joules.values())) > 0]
    return Energy(1000 / statistics.median(totals), parts) if totals else None


@dataclass(frozen=True)
class Position:
    """A device of a machine in the chart of speed against cost, over the networks that all of them have.

    speed, cost: geometric means of images/s and of the cost of an image, relative to the first position. efficient: no
    other position is both faster and cheaper, by these estimates. launches: the fewest of a network.
    """

    label: str
    device: str
    speed: float
    cost: float
    efficient: bool
    launches: int


def positions(contenders: Sequence[Contender], measure: Measure) -> list[Position]:
    """Return the devices of the machines that have prices. Empty if there are fewer than two, or if they have no
    network in common."""
    best: dict[tuple[str, str], dict[Work, Offer]] = {}
    for contender in contenders:
        for offer in _offers(contender, measure):
            if offer.per_hour is not None:
                of_device = best.setdefault((contender.label, offer.summary.cell.device), {})
                if offer.work not in of_device or of_device[offer.work].speed < offer.speed:
                    of_device[offer.work] = offer
    common = set.intersection(*(set(offers) for offers in best.values())) if len(best) > 1 else set()
    if not common:
        return []
    speeds = {place: geometric_mean([best[place][work].speed for work in common]) for place in best}
    costs = {place: geometric_mean([1 / _per_money(best[place][work]) for work in common]) for place in best}
    first = next(iter(best))
    return [
        Position(
            *place,
            speeds[place] / speeds[first],
            costs[place] / costs[first],
            not any(
                speeds[other] >= speeds[place]
                and costs[other] <= costs[place]
                and (speeds[other], costs[other]) != (speeds[place], costs[place])
                for other in best
            ),
            min(len(best[place][work].rates) for work in common),
        )
        for place in best
    ]
