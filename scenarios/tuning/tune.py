"""Find the fastest settings of a cell on this machine: first for training, then for inference under these."""

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

from scenarios.contract import allocators
from scenarios.contract.request import Budget, Request
from scenarios.contract.result import Objective, Search, Tried, Tuning
from scenarios.tuning.forked_trials import ForkedTrials, ForkServers
from scenarios.tuning.messages import SearchSpace
from scenarios.tuning.search import Axes, Settings, TrialStarter, search

# Share of the time that is left when the search for this objective begins.
SHARES: dict[Objective, float] = {"training": 0.6, "latency": 0.5, "throughput": 1.0}
# Share of the whole time until a candidate must have made its first step. If stock takes more than half as long, twice
# stock's time is the limit.
START_SHARE = 0.15

# Return what starts the trials for this objective on top of these settings. The last argument returns the limit for a
# start in seconds.
MakeTrials = Callable[[Objective, Settings, Callable[[], float]], TrialStarter]


class TimeLimit:
    """The time of all searches of a launch together. It begins now, and is extended if stock starts slowly."""

    def __init__(self, budget: Budget, clock: Callable[[], float]) -> None:
        self._budget, self._clock = budget, clock
        self._began = clock()
        self._stock_s = 0.0  # slowest start of stock so far

    @property
    def allowed_s(self) -> float:
        """Return the duration in seconds."""
        return self._budget.search_seconds(self._stock_s)

    @property
    def left_s(self) -> float:
        """Return the seconds that are left. They are negative if the time is over."""
        return self._began + self.allowed_s - self._clock()

    def max_start_s(self) -> float:
        """Return the seconds until a candidate must have made its first step."""
        return max(START_SHARE * self.allowed_s, 2 * self._stock_s)

    def part(self, share: float) -> Callable[[float], float]:
        """Return the budget, as `search` takes it, of a search that begins now and gets this share of what is left."""
        began = self._clock()

        def budget_s(stock_s: float) -> float:
            self._stock_s = max(self._stock_s, stock_s)
            return share * (self._began + self.allowed_s - began)

        return budget_s


def tune(request: Request, io: Path, data: Path) -> Tuning:
    """Search for as long as `request.budget` allows, not counting the import of the framework.

    data: folder that `shared_data.save` wrote. Raise TrialFailed if the framework does not start. If stock fails later,
    the result is stock, and the launch that measures it reports the cause.
    """
    with closing(ForkServers(io, data)) as servers:
        space = servers.search_space()
        training = {axis.name: axis.values for axis in space.axes.get("training", ())}
        servers.start(training.get(allocators.AXIS, ()))
        return search_all(space, request.budget, partial(ForkedTrials, servers), time.monotonic)


def search_all(space: SearchSpace, budget: Budget, make_trials: MakeTrials, clock: Callable[[], float]) -> Tuning:
    """Search for each objective that has settings, with the settings found for the earlier ones."""
    limit = TimeLimit(budget, clock)
    settings: dict[str, str] = {}
    searches = []
    for objective, share in SHARES.items():
        axes = {axis.name: axis.values for axis in space.axes.get(objective, ())}
        if not axes:
            continue
        if limit.left_s <= 0:
            searches.append(Search(objective, {}, [], 0.0, count_untried(axes, [])))
            continue
        trials = make_trials(objective, dict(settings), limit.max_start_s)
        found = search(axes, space.likely[objective], trials, limit.part(share), clock)
        settings |= found.settings
        tried = [Tried(c.settings, c.ratios, c.rates, c.failure) for c in found.candidates]
        untried = count_untried(axes, [candidate.settings for candidate in found.candidates])
        searches.append(Search(objective, found.settings, tried, found.seconds, untried))
    return Tuning(settings, searches, limit.allowed_s)


def count_untried(axes: Axes, tried: Sequence[Settings]) -> int:
    """Return the number of values that no candidate had. Stock values do not count."""
    known = {value for settings in tried for value in settings.items()}
    return sum((name, value) not in known for name, values in axes.items() for value in values[1:])
