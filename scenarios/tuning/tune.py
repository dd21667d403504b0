"""Find the fastest settings of a cell on this machine: first for training, then for inference under these."""

import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from scenarios.contract import allocators
from scenarios.contract.request import Request
from scenarios.contract.result import Objective, Search, Tried, Tuning
from scenarios.tuning.forked_trials import ForkedTrials, ForkServers
from scenarios.tuning.search import Axes, Settings, search

# Share of the budget that is left when the search for this objective begins.
SHARES: dict[Objective, float] = {"training": 0.6, "latency": 0.5, "throughput": 1.0}
# Share of the budget until a candidate must have made its first step. If stock takes more than half as long, twice
# stock's time is the limit.
START_SHARE = 0.15


def tune(request: Request, io: Path, data: Path) -> Tuning:
    """Search for about `request.budget.seconds`, not counting the import of the framework.

    data: folder that `shared_data.save` wrote. Raise TrialFailed if the framework does not start. If stock fails later,
    the result is stock, and the launch that measures it reports the cause.
    """
    budget_s = request.budget.seconds or 0.0
    settings: dict[str, str] = {}
    searches = []
    with closing(ForkServers(io, data)) as servers:
        space = servers.search_space()
        axes = {objective: {axis.name: axis.values for axis in found} for objective, found in space.axes.items()}
        servers.start(axes.get("training", {}).get(allocators.AXIS, ()))
        until = time.monotonic() + budget_s
        for objective, share in SHARES.items():
            if not axes.get(objective):
                continue
            if (left_s := until - time.monotonic()) <= 0:
                searches.append(Search(objective, {}, [], 0.0, count_untried(axes[objective], [])))
                continue
            trials = ForkedTrials(servers, objective, dict(settings), START_SHARE * budget_s)
            found = search(axes[objective], space.likely[objective], trials, share * left_s)
            settings |= found.settings
            tried = [Tried(c.settings, c.ratios, c.rates, c.failure) for c in found.candidates]
            untried = count_untried(axes[objective], [candidate.settings for candidate in found.candidates])
            searches.append(Search(objective, found.settings, tried, found.seconds, untried))
    return Tuning(settings, searches)


def count_untried(axes: Axes, tried: Sequence[Settings]) -> int:
    """Return the number of values that no candidate had. Stock values do not count."""
    known = {value for settings in tried for value in settings.items()}
    return sum((name, value) not in known for name, values in axes.items() for value in values[1:])
