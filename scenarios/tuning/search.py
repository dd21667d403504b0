"""Successive halving over settings (K. Jamieson, A. Talwalkar, AISTATS 2016), each candidate by turns with stock.

Settings are axes: a name and the values that it can have, the stock's own first. Axis by axis, every other value is
tried on top of those that gained so far, because some gain only with others. What came together so is then tried with
each of its parts left out, because some gained by luck, or no longer do. In each round the faster half goes on, for
twice as long. What leads in the end must compute the scenario's function and be faster than stock once more, in turns
of its own; else stock is taken.

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

SLICE_S = 0.2  # of one side's turn
FIRST_PAIRS = 3
MOST_PAIRS = 8  # of a round
FIRST_SHARE = 0.7  # of the budget: until then values are tried for the first time
GAIN = 1.02  # less is no gain that three pairs of turns could show
RIVALS = 4  # of those that were tried first: the others are slower, or the same with a value that changes nothing
FINALISTS = 2
FINAL_PAIRS = 8  # of which all but one must be faster: by chance that is so in 9 of 256


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
    """Seconds. start_s: until its first turn, and after its last. pair_s: a pair of turns: longer than asked for where
    a step is."""

    start_s: float
    pair_s: float


@dataclass
class Candidate:
    """What is known of some settings. ratios: over stock, of each pair of turns; rates: its own, of each turn; failure:
    why it was given up."""

    settings: dict[str, str]
    ratios: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    failure: str = ""
    cost: Cost | None = None  # when it last ran

    @property
    def ratio(self) -> float:
        """Median over its pairs; 0 where there is none."""
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


class _Search:
    def __init__(self, trials: Trials, budget_s: float, clock: Callable[[], float]) -> None:
        self._trials, self._clock = trials, clock
        self._began = clock()
        self._until = self._began + budget_s
        self._stock = Candidate({})
        self._found = [self._stock]
        self._base = self._stock  # what further values are tried on top of
        self._ranked: list[Candidate] = []  # those of the last round first

    def run(self, axes: Axes) -> Outcome:
        """See `search`."""
        try:
            chosen = self._fastest(axes)
        except StockFailed as error:
            self._stock.failure = str(error)
            chosen = self._stock
        return Outcome(dict(chosen.settings), self._found, self._clock() - self._began)

    def _fastest(self, axes: Axes) -> Candidate:
        try:
            self._reference = self._trials.start({}, math.inf)
        except TrialFailed as error:
            raise StockFailed(str(error)) from error
        try:
            best = sorted((c for c in self._climb(axes) if c.gains), key=lambda c: -c.ratio)
            self._halve([*best[:2], *_without_parts(self._base), *best[2:RIVALS]], MOST_PAIRS // 2)
            return self._final()
        finally:
            self._reference.close()

    def _climb(self, axes: Axes) -> list[Candidate]:
        """Try each axis' values on top of the best so far, which ends up in `_base`. All that were tried."""
        until = self._began + FIRST_SHARE * (self._until - self._began)
        tried = []
        for name, values in axes.items():
            candidates = [Candidate({**self._base.settings, name: value}) for value in values[1:]]
            self._round(candidates, FIRST_PAIRS, until)
            tried += candidates
            best = max(candidates, key=lambda candidate: candidate.ratio, default=self._base)
            if best.ratio >= GAIN * max(1.0, self._base.ratio):
                self._base = best
        return tried

    def _halve(self, candidates: Sequence[Candidate], pairs: int) -> None:
        going = list(candidates)
        while going:
            done = self._round(going, pairs, self._until)
            going = sorted((c for c in going if c.gains), key=lambda c: -c.ratio)
            self._ranked = [*going, *(c for c in self._ranked if c not in going)]
            if pairs >= MOST_PAIRS or not done:
                break
            going, pairs = going[: max(1, len(going) // 2)], 2 * pairs

    def _final(self) -> Candidate:
        """The first of the finalists that is faster once more, in pairs that had no part in choosing it: of many short
        looks, the luckiest is the fastest. Finalists compute the scenario's function."""
        finalists = (candidate for candidate in self._ranked if self._proven(candidate))
        for candidate in itertools.islice(finalists, FINALISTS):
            before = len(candidate.ratios)
            self._duel(candidate, FINAL_PAIRS, math.inf)
            fresh = [] if candidate.failure else candidate.ratios[before:]
            if sum(ratio > 1 for ratio in fresh) >= FINAL_PAIRS - 1 and statistics.median(fresh) >= GAIN:
                return candidate
        return self._stock

    def _proven(self, candidate: Candidate) -> bool:
        try:
            self._trials.prove(candidate.settings)
        except TrialFailed as error:
            candidate.failure = str(error)
            return False
        return True

    def _round(self, candidates: Sequence[Candidate], pairs: int, until: float) -> bool:
        """Whether there was time for all, and a final after it. What is too dear for the time left is passed over."""
        done = True
        for candidate in candidates:
            cost = self._expected(candidate)
            final_s = cost.start_s + FINAL_PAIRS * cost.pair_s
            ended = self._clock() + cost.start_s + pairs * cost.pair_s
            if ended > until or ended + final_s > self._until:
                done = False
                continue
            if candidate not in self._found:
                self._found.append(candidate)
            self._duel(candidate, pairs, until)
        return done

    def _expected(self, candidate: Candidate) -> Cost:
        """What it took before, else what is usual."""
        if candidate.cost:
            return candidate.cost
        known = [other.cost for other in self._found if other.cost]
        if not known:
            return Cost(0.0, 2 * SLICE_S)
        return Cost(statistics.median(c.start_s for c in known), statistics.median(c.pair_s for c in known))

    def _duel(self, candidate: Candidate, pairs: int, until: float) -> None:
        """Some pairs. until: then it must have begun, so that one that hangs takes no time from what comes after."""
        began = self._clock()
        try:
            trial = self._trials.start(candidate.settings, until - began)
            try:
                started = self._clock()
                for index in range(pairs):
                    self._turns(trial, candidate, index)
                pairs_s = self._clock() - started
            finally:
                trial.close()
        except TrialFailed as error:
            candidate.failure = str(error)
        else:
            candidate.cost = Cost(self._clock() - began - pairs_s, pairs_s / pairs)

    def _turns(self, trial: Trial, candidate: Candidate, index: int) -> None:
        """One pair; who goes first changes from pair to pair."""
        if index % 2:
            base, new = self._of_stock(), trial.measure(SLICE_S)
        else:
            new, base = trial.measure(SLICE_S), self._of_stock()
        candidate.ratios.append(new / base)
        candidate.rates.append(new)
        self._stock.rates.append(base)

    def _of_stock(self) -> float:
        try:
            return self._reference.measure(SLICE_S)
        except TrialFailed as error:  # no fault of the candidate's
            raise StockFailed(str(error)) from error


def _without_parts(base: Candidate) -> list[Candidate]:
    """Its settings without each of their parts but the last, before which there was nothing else."""
    names = list(base.settings)
    return [Candidate({n: v for n, v in base.settings.items() if n != name}) for name in names[:-1]]
