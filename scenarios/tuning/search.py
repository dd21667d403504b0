"""A race over settings: each candidate by turns with stock and with the best so far; who falls behind is out early.

Settings are axes: a name and the values that it can have, the stock's own first. Those that are likely to gain are
tried together before all others, since time does not last for one after the other. Then, axis by axis, every other
value is tried on top of those that gained so far, the base, because some gain only with others. A candidate that leads
in its first turns gets as many again, the idea of successive halving (K. Jamieson, A. Talwalkar, AISTATS 2016); one
that leads in these, too, and computes the scenario's function, is the new base. Then the base is tried without each of
its parts, because some gained by luck, or no longer do, or never did. In the end a base counts for the turns after
those that made it the base: in these it must be faster than stock beyond chance. Else an earlier base is taken of which
that is so, or stock.

Stock, base and candidate take turns together, since a candidate that is held against the base's earlier turns is held
against those in which it was lucky.

Knows nothing of frameworks or processes: `Trials` starts them. Clocks count what a candidate costs, so that one that
hangs or crashes costs its share of the budget and nothing else.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

Settings = Mapping[str, str]  # of axes that are not as in stock; empty: stock
Axes = Mapping[str, Sequence[str]]
Change = Callable[[Settings], dict[str, str]]

SLICE_S = 0.1  # of one side's turn: what disturbs a machine lasts longer, so that more of them tell more
LOOK_TURNS = 4
LOOKS = 2
CLIMB_SHARE = 0.5  # of the budget; then parts are left out, and values tried that were not yet
GAIN = 1.02  # less is no gain that a few turns could show
PART_GAIN = 1.01  # a part of the base is left out where it gains less; it was taken for likely, or for gaining
FINAL_TURNS = 8  # at least
CHANCE = 0.05  # that a base which is as fast as stock is taken


class TrialFailed(Exception):
    """The candidate crashed, hung, or does not compute the scenario's function. The text says which."""


class Trial(Protocol):
    """A process that works with some settings."""

    def measure(self, seconds: float) -> float:
        """Work for about so long; images/s. Raises TrialFailed."""

    def close(self) -> None:
        """End the process."""


class Trials(Protocol):
    """Starts candidates."""

    def start(self, settings: Settings, limit_s: float) -> Trial:
        """Start and warm up a process with these settings, within a time. Raises TrialFailed."""

    def prove(self, settings: Settings) -> None:
        """Hold these settings against the reference. Raises TrialFailed where something else is computed, or nothing in
        good time."""


@dataclass(eq=False)
class Candidate:
    """What is known of some settings. ratios: over stock, of each turn; fresh: those since it became the base; rates:
    its own, of each turn; failure: why it was given up; start_s: until its first turn."""

    settings: dict[str, str]
    ratios: list[float] = field(default_factory=list)
    fresh: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    failure: str = ""
    start_s: float = 0.0

    @property
    def confirmed(self) -> bool:
        """Whether it is faster than stock by the turns after those that made it the base."""
        faster = sum(ratio > 1 for ratio in self.fresh)
        enough = len(self.fresh) >= FINAL_TURNS and faster >= least_beyond_chance(len(self.fresh))
        return enough and statistics.median(self.fresh) >= GAIN


def least_beyond_chance(turns: int) -> int:
    """Of so many turns: in how many one must be faster, so that two which are equally fast differ as much in at most
    CHANCE of cases (one-sided sign test)."""
    least, cases = turns + 1, 0
    while (cases := cases + math.comb(turns, least - 1)) <= CHANCE * 2**turns:
        least -= 1
    return least


@dataclass(frozen=True)
class Outcome:
    """chosen: the settings to take. candidates: all that were tried, stock first; where stock failed the search ended
    there, and stock it is. seconds: what the search took."""

    chosen: dict[str, str]
    candidates: list[Candidate]
    seconds: float


def search(
    axes: Axes, likely: Settings, trials: Trials, budget_s: float, clock: Callable[[], float] = time.monotonic
) -> Outcome:
    """Find the fastest settings within about `budget_s`. likely: of the axes, those to be tried together at first."""
    return _Search(trials, budget_s, clock).run(axes, likely)


class _SideFailed(Exception):
    """Stock or the base failed: nothing can be held against who took turns with it."""


class _Search:
    def __init__(self, trials: Trials, budget_s: float, clock: Callable[[], float]) -> None:
        self._trials, self._clock = trials, clock
        self._began = clock()
        self._until = self._began + budget_s
        self._stock = Candidate({})
        self._found = [self._stock]
        self._bases = [self._stock]  # the last is the base, the others are there to fall back to
        self._climbed: set[tuple[str, str]] = set()
        self._running: dict[Candidate, Trial] = {}
        self._starts_s: list[float] = []
        self._turns_s: list[float] = []
        self._proofs_s: list[float] = []

    def run(self, axes: Axes, likely: Settings) -> Outcome:
        """See `search`."""
        try:
            with suppress(_SideFailed):  # stock's: told in its record
                self._begin()
                self._try(lambda _: dict(likely), GAIN, self._until)
                changes = [(name, value) for name, values in axes.items() for value in values[1:]]
                self._climb(changes, self._began + CLIMB_SHARE * (self._until - self._began))
                self._prune()
                pruned = self._base
                self._climb(changes, self._until)
                if self._base is not pruned:
                    self._prune()
                self._finish()
        finally:
            for candidate in list(self._running):
                self._end(candidate)
        confirmed = (base for base in reversed(self._bases) if base.confirmed and not self._stock.failure)
        chosen = next(confirmed, self._stock)
        return Outcome(dict(chosen.settings), self._found, self._clock() - self._began)

    @property
    def _base(self) -> Candidate:
        return self._bases[-1]

    def _begin(self) -> None:
        try:
            self._start(self._stock, math.inf)
        except TrialFailed as error:
            self._stock.failure = str(error)
            raise _SideFailed(self._stock.failure) from error

    def _climb(self, changes: Sequence[tuple[str, str]], until: float) -> None:
        """Try values on top of the base, each once."""
        for change in changes:
            if change not in self._climbed and self._try(_changed(*change), GAIN, until):
                self._climbed.add(change)

    def _prune(self) -> None:
        """Try the base without each of its parts."""
        for name in reversed(list(self._base.settings)):
            self._try(_without(name), 1 / PART_GAIN, self._until)

    def _finish(self) -> None:
        """Let the base take the turns that it lacks for being confirmed."""
        while self._ready() and self._base is not self._stock and len(self._base.fresh) < FINAL_TURNS:
            try:
                self._turn(self._base)
            except _SideFailed:
                self._fall_back()

    def _ready(self) -> bool:
        """Whether the base runs; after a fallback it must be started again, for which there may be no time."""
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

    def _try(self, change: Change, least: float, until: float) -> bool:
        """Let the base's settings, changed, take its place if they are at least so many times as fast in each look.
        False where they were tried before, where there was no time for it, or nothing to hold them against. until: then
        the first look must have ended."""
        if not self._ready() or not self._affordable(until):
            return False
        candidate = Candidate(change(self._base.settings))
        if any(candidate.settings == tried.settings for tried in self._found):
            return False
        self._found.append(candidate)
        try:
            self._start(candidate, until - self._clock())
            won = all(self._look(candidate) >= least for _ in range(LOOKS))
            if won:
                self._prove(candidate)
        except TrialFailed as error:
            candidate.failure = str(error)
            self._end(candidate)
        except _SideFailed as error:
            candidate.failure = f"What it was held against failed: {error}"
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

    def _prove(self, candidate: Candidate) -> None:
        began = self._clock()
        self._trials.prove(candidate.settings)
        self._proofs_s.append(self._clock() - began)

    def _fall_back(self) -> None:
        """After a failure of the base: let the last one before it that did not fail be the base. Raises _SideFailed
        where stock itself failed."""
        if self._stock.failure:
            raise _SideFailed(self._stock.failure)
        while self._base.failure:
            self._end(self._bases.pop())

    def _affordable(self, until: float) -> bool:
        """Whether there is time for one more, and for its proof and final turns."""
        start_s = max(self._base.start_s, statistics.median(self._starts_s))
        turn_s = statistics.median(self._turns_s) if self._turns_s else 3 * SLICE_S
        proof_s = statistics.median(self._proofs_s) if self._proofs_s else 0.0
        ended = self._clock() + start_s + LOOK_TURNS * turn_s
        rest_s = ((LOOKS - 1) * LOOK_TURNS + FINAL_TURNS) * turn_s + proof_s
        return ended <= until and ended + rest_s <= self._until

    def _start(self, candidate: Candidate, limit_s: float) -> None:
        began = self._clock()
        self._running[candidate] = self._trials.start(candidate.settings, limit_s)
        candidate.start_s = self._clock() - began
        self._starts_s.append(candidate.start_s)

    def _end(self, candidate: Candidate) -> None:
        if trial := self._running.pop(candidate, None):
            trial.close()

    def _look(self, candidate: Candidate) -> float:
        """How many times as fast as the base it is in some turns."""
        return statistics.median([self._turn(candidate) for _ in range(LOOK_TURNS)])

    def _turn(self, candidate: Candidate) -> float:
        """One turn of each side; how many times as fast as the base the candidate is. Each order of sides is followed
        by its reverse."""
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
            self._base.fresh.append(self._base.ratios[-1])
        self._turns_s.append(self._clock() - began)
        return rates[candidate] / rates[self._base]

    def _rate(self, side: Candidate) -> float:
        try:
            return self._running[side].measure(SLICE_S)
        except TrialFailed as error:
            if side is self._stock or side is self._base:
                side.failure = str(error)
                raise _SideFailed(str(error)) from error
            raise


def _changed(name: str, value: str) -> Change:
    return lambda settings: {**settings, name: value}


def _without(name: str) -> Change:
    return lambda settings: {n: v for n, v in settings.items() if n != name}
