"""Search for the fastest settings. Candidates are compared in turns with stock and with the best settings so far.

Settings are axes: each has a name and values, the stock value first. The search goes through these steps:

1. Try all settings together that are likely to gain, because there is no time to try each of them alone.
2. Try every other value on top of those that gained so far, the base, because some gain only with others.
3. Try the base without each of its parts, because some gained by luck, no longer gain, or never did.
4. Try the values for which there was no time in step 2.

A candidate that is faster than the base in a first round of turns gets a second round. This is the idea of successive
halving (K. Jamieson, A. Talwalkar, AISTATS 2016). If it is faster again, and computes the scenario's function, it is
the new base. Only the turns after that decide whether a base is the result: in these it must be significantly faster
than stock. Otherwise the result is an earlier base for which this holds, or stock.

Stock, base and candidate take each turn together. A comparison with the base's earlier turns would be unfair, because
it may have been lucky in them.

This module knows nothing of frameworks or processes: a `TrialStarter` starts them. All costs of a candidate count, so
one that hangs or crashes costs its share of the budget and nothing else.
"""

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

Settings = Mapping[str, str]  # those that differ from stock; empty for stock itself
Axes = Mapping[str, Sequence[str]]
Change = Callable[[Settings], dict[str, str]]

TURN_S = 0.1  # for each side; disturbances of the machine last longer, so more and shorter turns show more
ROUND_TURNS = 4
ROUNDS = 2
ADDING_SHARE = 0.5  # share of the budget until the base is tried without its parts
MIN_GAIN = 1.02  # a few turns cannot show a smaller gain
MIN_PART_GAIN = 1.01  # a part of the base that gains less is removed; it is in the base because it seemed to gain
MIN_FINAL_TURNS = 8
SIGNIFICANCE = 0.05  # probability that a base that is only as fast as stock is the result


class TrialFailed(Exception):
    """The trial crashed, hung, or does not compute the scenario's function. The message says which."""


class Trial(Protocol):
    """A process that works under some settings."""

    def measure(self, seconds: float) -> float:
        """Work for about this time. Return the speed in images/s. Raise TrialFailed."""

    def close(self) -> None:
        """End the process."""


class TrialStarter(Protocol):
    """Start trials."""

    def start(self, settings: Settings, limit_s: float) -> Trial:
        """Start and warm up a trial within `limit_s`. Raise TrialFailed."""

    def prove(self, settings: Settings) -> None:
        """Compare what these settings compute with the reference. Raise TrialFailed if it differs or takes too long."""


@dataclass(eq=False)
class Candidate:
    """What is known about some settings.

    ratios: speed divided by stock's speed, for each turn. base_ratios: those of the turns as the base. rates: speed in
    each turn. failure: why the search gave it up, or "". start_s: time until its first turn.
    """

    settings: dict[str, str]
    ratios: list[float] = field(default_factory=list)
    base_ratios: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    failure: str = ""
    start_s: float = 0.0

    @property
    def confirmed(self) -> bool:
        """Whether its turns as the base show that it is faster than stock."""
        turns, wins = len(self.base_ratios), sum(ratio > 1 for ratio in self.base_ratios)
        significant = turns >= MIN_FINAL_TURNS and wins >= min_significant_wins(turns)
        return significant and statistics.median(self.base_ratios) >= MIN_GAIN


def min_significant_wins(turns: int) -> int:
    """Return the smallest number of wins that is significant.

    Of two equally fast sides, one wins that often in at most SIGNIFICANCE of cases (one-sided sign test).
    """
    wins, cases = turns + 1, 0
    while (cases := cases + math.comb(turns, wins - 1)) <= SIGNIFICANCE * 2**turns:
        wins -= 1
    return wins


@dataclass(frozen=True)
class SearchResult:
    """What a search found.

    settings: the fastest. candidates: all in order, stock first. If stock failed, the search ended there, and the
    result is stock. seconds: duration of the search.
    """

    settings: dict[str, str]
    candidates: list[Candidate]
    seconds: float


def search(
    axes: Axes,
    likely: Settings,
    trials: TrialStarter,
    budget_s: Callable[[float], float],
    clock: Callable[[], float] = time.monotonic,
) -> SearchResult:
    """Find the fastest settings within about the budget. likely: the settings to try together first.

    budget_s: return the budget in seconds for the seconds that stock took to start. It is called once.
    """
    return _Search(trials, budget_s, clock).run(axes, likely)


class _BaselineFailed(Exception):
    """Stock or the base failed, so the candidate of this turn cannot be compared."""


class _Search:
    def __init__(self, trials: TrialStarter, budget_s: Callable[[float], float], clock: Callable[[], float]) -> None:
        self._trials, self._budget_s, self._clock = trials, budget_s, clock
        self._began = clock()
        self._until = math.inf  # until stock has started
        self._stock = Candidate({})
        self._candidates = [self._stock]
        self._bases = [self._stock]  # the last one is the base; the search falls back to the others
        self._added: set[tuple[str, str]] = set()
        self._running: dict[Candidate, Trial] = {}
        self._starts_s: list[float] = []
        self._turns_s: list[float] = []
        self._proofs_s: list[float] = []

    def run(self, axes: Axes, likely: Settings) -> SearchResult:
        try:
            with suppress(_BaselineFailed):  # stock failed; its candidate has the reason
                self._base_runs()  # starts stock
                self._until = self._began + self._budget_s(self._stock.start_s)
                self._try(lambda _: dict(likely), MIN_GAIN, self._until)
                values = [(name, value) for name, values in axes.items() for value in values[1:]]
                self._add_values(values, self._began + ADDING_SHARE * (self._until - self._began))
                self._remove_parts()
                reduced = self._base
                self._add_values(values, self._until)
                if self._base is not reduced:
                    self._remove_parts()
                self._take_final_turns()
        finally:
            for candidate in list(self._running):
                self._end(candidate)
        confirmed = (base for base in reversed(self._bases) if base.confirmed and not self._stock.failure)
        found = next(confirmed, self._stock)
        return SearchResult(dict(found.settings), self._candidates, self._clock() - self._began)

    @property
    def _base(self) -> Candidate:
        return self._bases[-1]

    def _add_values(self, values: Sequence[tuple[str, str]], until: float) -> None:
        """Try values on top of the base, each once."""
        for value in values:
            if value not in self._added and self._try(_with(*value), MIN_GAIN, until):
                self._added.add(value)

    def _remove_parts(self) -> None:
        """Try the base without each of its parts."""
        for name in reversed(list(self._base.settings)):
            self._try(_without(name), 1 / MIN_PART_GAIN, self._until)

    def _take_final_turns(self) -> None:
        """Let the base take the turns that it still needs to be confirmed."""
        while self._base_runs() and self._base is not self._stock and len(self._base.base_ratios) < MIN_FINAL_TURNS:
            try:
                self._turn(self._base)
            except _BaselineFailed:
                self._fall_back()

    def _base_runs(self) -> bool:
        """Start the base if it does not run. Return False if there is no time for that."""
        while self._base not in self._running:
            left_s = self._until - self._clock()
            if left_s < 2 * self._base.start_s:
                return False
            try:
                self._start(self._base, left_s)
            except TrialFailed as error:
                self._base.failure = str(error)
                self._fall_back()
        return True

    def _try(self, change: Change, min_ratio: float, until: float) -> bool:
        """Make the changed settings of the base the new base if they are fast enough.

        min_ratio: how many times as fast as the base they must be in each round. until: when the first round must have
        ended. Return False if they were tried before, if there is no time, or if there is nothing to compare with.
        """
        if not self._base_runs() or not self._affordable(until):
            return False
        candidate = Candidate(change(self._base.settings))
        if any(candidate.settings == known.settings for known in self._candidates):
            return False
        self._candidates.append(candidate)
        try:
            self._start(candidate, until - self._clock())
            won = all(self._round(candidate) >= min_ratio for _ in range(ROUNDS))
            if won:
                began = self._clock()
                self._trials.prove(candidate.settings)
                self._proofs_s.append(self._clock() - began)
        except TrialFailed as error:
            candidate.failure = str(error)
            self._end(candidate)
        except _BaselineFailed as error:
            candidate.failure = f"The settings that it was compared with failed: {error}"
            self._end(candidate)
            self._fall_back()
            return False
        else:
            loser = self._base if won else candidate
            if won:
                self._bases.append(candidate)
            if loser is not self._stock:
                self._end(loser)
        return True

    def _fall_back(self) -> None:
        """Return to the last base that did not fail. Raise _BaselineFailed if stock failed."""
        if self._stock.failure:
            raise _BaselineFailed(self._stock.failure)
        while self._base.failure:
            self._end(self._bases.pop())

    def _affordable(self, until: float) -> bool:
        """Whether there is time for one more candidate, and for its proof and final turns."""
        start_s = max(self._base.start_s, statistics.median(self._starts_s))
        turn_s = statistics.median(self._turns_s or [3 * TURN_S])
        proof_s = statistics.median(self._proofs_s or [0.0])
        ended = self._clock() + start_s + ROUND_TURNS * turn_s
        rest_s = ((ROUNDS - 1) * ROUND_TURNS + MIN_FINAL_TURNS) * turn_s + proof_s
        return ended <= until and ended + rest_s <= self._until

    def _start(self, candidate: Candidate, limit_s: float) -> None:
        began = self._clock()
        self._running[candidate] = self._trials.start(candidate.settings, limit_s)
        candidate.start_s = self._clock() - began
        self._starts_s.append(candidate.start_s)

    def _end(self, candidate: Candidate) -> None:
        if trial := self._running.pop(candidate, None):
            trial.close()

    def _round(self, candidate: Candidate) -> float:
        """Return the median over some turns of the candidate's speed divided by the base's."""
        return statistics.median([self._turn(candidate) for _ in range(ROUND_TURNS)])

    def _turn(self, candidate: Candidate) -> float:
        """Let each side work for one turn. Return the candidate's speed divided by the base's.

        Each order of the sides is followed by its reverse.
        """
        began = self._clock()
        sides = list(dict.fromkeys((self._stock, self._base, candidate)))
        index = len(candidate.ratios)
        first = index // 2 % len(sides)
        order = [*sides[first:], *sides[:first]]
        rates = {side: self._rate(side) for side in (order if index % 2 == 0 else reversed(order))}
        for side, rate in rates.items():
            side.rates.append(rate)
            if side is not self._stock:
                side.ratios.append(rate / rates[self._stock])
        if self._base is not self._stock:
            self._base.base_ratios.append(self._base.ratios[-1])
        self._turns_s.append(self._clock() - began)
        return rates[candidate] / rates[self._base]

    def _rate(self, side: Candidate) -> float:
        try:
            return self._running[side].measure(TURN_S)
        except TrialFailed as error:
            if side is self._stock or side is self._base:
                side.failure = str(error)
                raise _BaselineFailed(str(error)) from error
            raise


def _with(name: str, value: str) -> Change:
    return lambda settings: {**settings, name: value}


def _without(name: str) -> Change:
    return lambda settings: {other: value for other, value in settings.items() if other != name}
