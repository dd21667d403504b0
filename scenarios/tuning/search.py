"""Successive halving over settings (K. Jamieson, A. Talwalkar, AISTATS 2016), each candidate by turns with stock.

Settings are axes: a name and the values that it can have, the stock's own first. Axis by axis, every other value is
tried on top of those that gained so far, the base, because some gain only with others. Stock, base and candidate take
turns: what a candidate gains over the base is taken from these alone, since the base's earlier turns are those in
which it was lucky. What came together so is then tried with each of its parts left out, because some gained by luck,
or no longer do. In each round the faster half goes on, for twice as long. What leads in the end must compute the
scenario's function and be faster than stock once more, in turns of its own; else stock is taken.

Knows nothing of frameworks or processes: `Trials` starts them. Clocks count what a candidate costs, so that one that
hangs or crashes costs its share of the budget and nothing else.
"""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

Settings = Mapping[str, str]  # of axes that are not as in stock; empty: stock
Axes = Mapping[str, Sequence[str]]

SLICE_S = 0.1  # of one side's turn: what disturbs a machine lasts longer, so that more of them tell more
FIRST_TURNS = 4
MOST_TURNS = 12  # of a round
FIRST_SHARE = 0.7  # of the budget: until then values are tried for the first time
GAIN = 1.02  # less is no gain that a few turns could show
RIVALS = 4  # beside the base without one of its parts: of those that were tried first, the fastest
FINALISTS = 2
FINAL_SLICE_S = 0.2
FINAL_TURNS = 8  # in all of which but one it must be faster: by chance that is so in 9 of 256


class TrialFailed(Exception):
    """The candidate crashed, hung, or does not compute the scenario's function. The text says which."""


class StockFailed(Exception):
    """What the search began with failed, so that nothing more can be held against it. The text says how."""


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
        """Hold these settings against the reference. Raises TrialFailed where something else is computed."""


@dataclass(frozen=True)
class Cost:
    """Seconds. start_s: until its first turn, and after its last. turns_s: a turn of each side: longer than asked for
    where a step is."""

    start_s: float
    turns_s: float


@dataclass(eq=False)
class Candidate:
    """What is known of some settings. ratios: over stock, of each turn; rates: its own; failure: why it was given up.
    lead: over the base beside which it last ran."""

    settings: dict[str, str]
    ratios: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    failure: str = ""
    lead: float = 0.0
    cost: Cost | None = None  # when it last ran

    @property
    def ratio(self) -> float:
        """Median over its turns; 0 where there is none."""
        return statistics.median(self.ratios) if self.ratios and not self.failure else 0.0

    @property
    def gains(self) -> bool:
        """Whether it is worth a further look."""
        return self.ratio >= GAIN


@dataclass(frozen=True)
class Outcome:
    """chosen: the settings to take. candidates: all that were tried, stock first; where stock failed the search ended
    there, and stock it is. seconds: what the search took."""

    chosen: dict[str, str]
    candidates: list[Candidate]
    seconds: float


def search(axes: Axes, trials: Trials, budget_s: float, clock: Callable[[], float] = time.monotonic) -> Outcome:
    """Find the fastest settings within about `budget_s`, proofs not counted."""
    return _Search(trials, budget_s, clock).run(axes)


@dataclass
class _Side:
    """What takes turns."""

    candidate: Candidate
    trial: Trial


class _Search:
    def __init__(self, trials: Trials, budget_s: float, clock: Callable[[], float]) -> None:
        self._trials, self._clock = trials, clock
        self._began = clock()
        self._until = self._began + budget_s
        self._found = [Candidate({})]
        self._leads: dict[str, float] = {}  # by axis: what it gained when the base took its value
        self._ranked: list[Candidate] = []  # those of the last round first

    def run(self, axes: Axes) -> Outcome:
        """See `search`."""
        stock = self._found[0]
        try:
            chosen = self._fastest(axes, stock)
        except StockFailed as error:
            stock.failure = str(error)
            chosen = stock
        return Outcome(dict(chosen.settings), self._found, self._clock() - self._began)

    def _fastest(self, axes: Axes, stock: Candidate) -> Candidate:
        try:
            self._stock = self._base = _Side(stock, self._trials.start({}, math.inf))
        except TrialFailed as error:
            raise StockFailed(str(error)) from error
        try:
            tried = self._climb(axes)
            self._halve(self._rivals(tried), MOST_TURNS // 2)
            self._rebase(self._stock)
            return self._final()
        finally:
            self._rebase(self._stock)
            self._stock.trial.close()

    def _climb(self, axes: Axes) -> list[Candidate]:
        """Try each axis' values on top of the base, which takes those that gain. All that were tried."""
        until = self._began + FIRST_SHARE * (self._until - self._began)
        tried = []
        for name, values in axes.items():
            for value in values[1:]:
                candidate = Candidate({**self._base.candidate.settings, name: value})
                tried.append(candidate)
                if not self._affordable(candidate, FIRST_TURNS, until):
                    continue
                side = self._duel(candidate, FIRST_TURNS, until)
                if side and candidate.gains and candidate.lead >= GAIN:
                    self._rebase(side)
                    self._leads[name] = candidate.lead
                elif side:
                    side.trial.close()
        return tried

    def _rebase(self, side: _Side) -> None:
        """Let this be the base."""
        if self._base is not self._stock:
            self._base.trial.close()
        self._base = side

    def _rivals(self, tried: Sequence[Candidate]) -> list[Candidate]:
        """The base without each of its parts, first without that which gained least; then the fastest of the others."""
        settings = self._base.candidate.settings
        names = sorted(settings, key=lambda name: self._leads[name]) if len(settings) > 1 else []
        parts = [{n: v for n, v in settings.items() if n != name} for name in names]
        best = sorted((c for c in tried if c.gains and c.settings not in (settings, *parts)), key=lambda c: -c.ratio)
        known = {frozenset(candidate.settings.items()): candidate for candidate in tried}
        rivals = [known.get(frozenset(part.items()), Candidate(part)) for part in parts]
        return [*(rival for rival in rivals if not rival.failure), *best[:RIVALS]]

    def _halve(self, rivals: Sequence[Candidate], turns: int) -> None:
        """Rank the base and its rivals."""
        base, going = self._base.candidate, list(rivals)
        for candidate in rivals:
            candidate.lead = 0.0  # it was over another base
        while True:
            done = True
            for candidate in going:
                if not self._affordable(candidate, turns, self._until):
                    done = False
                elif side := self._duel(candidate, turns, self._until):
                    side.trial.close()
            going = sorted((c for c in going if c.gains and c.lead), key=lambda c: -c.lead)
            others = sorted((c for c in rivals if c.gains and c not in going), key=lambda c: -c.lead)
            ahead = [c for c in going if c.lead >= (1 if len(c.settings) < len(base.settings) else GAIN)]
            behind = [c for c in going if c not in ahead]
            self._ranked = [*ahead, *([base] if base.gains else []), *behind, *others]
            if turns >= MOST_TURNS or not going or not done:
                break
            going, turns = going[: max(1, len(going) // 2)], 2 * turns

    def _final(self) -> Candidate:
        """The first of the finalists that is faster than stock once more, in turns that had no part in choosing it: of
        many short looks, the luckiest is the fastest. Finalists compute the scenario's function."""
        finalists = (candidate for candidate in self._ranked if self._proven(candidate))
        for candidate in itertools.islice(finalists, FINALISTS):
            before = len(candidate.ratios)
            if side := self._duel(candidate, FINAL_TURNS, math.inf, FINAL_SLICE_S):
                side.trial.close()
                fresh = candidate.ratios[before:]
                if sum(ratio > 1 for ratio in fresh) >= FINAL_TURNS - 1 and statistics.median(fresh) >= GAIN:
                    return candidate
        return self._found[0]

    def _proven(self, candidate: Candidate) -> bool:
        try:
            self._trials.prove(candidate.settings)
        except TrialFailed as error:
            candidate.failure = str(error)
            return False
        return True

    def _affordable(self, candidate: Candidate, turns: int, until: float) -> bool:
        """Whether there is time for it, and for a final after it. What is too dear for the time left is passed over."""
        cost = self._expected(candidate)
        ended = self._clock() + cost.start_s + turns * cost.turns_s
        final_s = cost.start_s + FINAL_TURNS * max(cost.turns_s, 2 * FINAL_SLICE_S)
        return ended <= until and ended + final_s <= self._until

    def _expected(self, candidate: Candidate) -> Cost:
        """What it took before, else what is usual."""
        if candidate.cost:
            return candidate.cost
        known = [other.cost for other in self._found if other.cost]
        if not known:
            return Cost(0.0, 3 * SLICE_S)
        return Cost(statistics.median(c.start_s for c in known), statistics.median(c.turns_s for c in known))

    def _duel(self, candidate: Candidate, turns: int, until: float, slice_s: float = SLICE_S) -> _Side | None:
        """Some turns beside base and stock; still running where nothing failed. until: then it must have begun, so that
        one that hangs takes no time from what comes after."""
        if candidate not in self._found:
            self._found.append(candidate)
        began = self._clock()
        try:
            side = _Side(candidate, self._trials.start(candidate.settings, until - began))
        except TrialFailed as error:
            candidate.failure = str(error)
            return None
        started = self._clock()
        try:
            candidate.lead = statistics.median([self._turn(side, index, slice_s) for index in range(turns)])
        except TrialFailed:
            side.trial.close()
            if self._base.candidate.failure:
                self._rebase(self._stock)
            return None
        except StockFailed:
            side.trial.close()
            raise
        candidate.cost = Cost(started - began, (self._clock() - started) / turns)
        return side

    def _turn(self, new: _Side, index: int, slice_s: float) -> float:
        """One of each side; who goes first changes from turn to turn. What the new one gains over the base."""
        sides = [self._stock, new] if self._base is self._stock else [self._stock, self._base, new]
        first = index % len(sides)
        rates = {id(side): self._rate(side, slice_s) for side in (*sides[first:], *sides[:first])}
        for side in sides:
            side.candidate.rates.append(rates[id(side)])
            if side is not self._stock:
                side.candidate.ratios.append(rates[id(side)] / rates[id(self._stock)])
        return rates[id(new)] / rates[id(self._base)]

    def _rate(self, side: _Side, slice_s: float) -> float:
        try:
            return side.trial.measure(slice_s)
        except TrialFailed as error:
            if side is self._stock:  # no fault of the candidate's
                raise StockFailed(str(error)) from error
            side.candidate.failure = str(error)
            raise
