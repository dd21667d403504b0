"""The settings with which a cell is fastest on this machine: first for training, then for inference under those."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from scenarios.contract import allocators
from scenarios.contract.request import Request
from scenarios.contract.result import Objective, Search, Tried, Tuning
from scenarios.tuning.search import Axes, Settings, search
from scenarios.tuning.trials import ForkServers, ForkTrials

# Of what is left of the budget when the objective's turn comes.
SHARES: dict[Objective, float] = {"training": 0.6, "latency": 0.5, "throughput": 1.0}
# Of the budget: what a candidate may take until it has made its first step; or twice stock's time, where that is more.
CANDIDATE_SHARE = 0.15


def tune(request: Request, io: Path, data: Path) -> Tuning:
    """Search for about `request.budget.seconds`, once the framework is imported. data: see `handover`. Raises
    TrialFailed where the framework does not even start; where stock fails later, stock it is: the launch with it will
    say why."""
    budget_s = request.budget.seconds or 0.0
    settings: dict[str, str] = {}
    searches = []
    with ForkServers(io, data) as servers:
        offer = servers.offer()
        axes = {objective: {axis.name: axis.values for axis in of} for objective, of in offer.axes.items()}
        servers.start(axes.get("training", {}).get(allocators.AXIS, ()))
        until = time.monotonic() + budget_s
        for objective, share in SHARES.items():
            if not axes.get(objective):
                continue
            if (left_s := until - time.monotonic()) <= 0:
                searches.append(Search(objective, {}, [], 0.0, untried(axes[objective], [])))
                continue
            trials = ForkTrials(servers, objective, dict(settings), CANDIDATE_SHARE * budget_s)
            found = search(axes[objective], offer.likely[objective], trials, share * left_s)
            settings |= found.chosen
            tried = [Tried(c.settings, c.ratios, c.rates, c.failure) for c in found.candidates]
            left = untried(axes[objective], [candidate.settings for candidate in found.candidates])
            searches.append(Search(objective, found.chosen, tried, found.seconds, left))
    return Tuning(settings, searches)


def untried(axes: Axes, tried: Sequence[Settings]) -> int:
    """How many values that are not stock's own are in none of what was tried."""
    known = {value for settings in tried for value in settings.items()}
    return sum((name, value) not in known for name, values in axes.items() for value in values[1:])
