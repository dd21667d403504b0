"""The settings with which a cell is fastest on this machine: first for training, then for inference under those."""

from __future__ import annotations

import time
from pathlib import Path

from scenarios import allocators
from scenarios.contract import Objective, Request, Search, Tried, Tuning
from scenarios.tuning.search import Candidate, StockFailed, search
from scenarios.tuning.trials import ForkServers, ForkTrials

# Of what is left of the budget when the objective's turn comes.
SHARES: dict[Objective, float] = {"training": 0.6, "latency": 0.5, "throughput": 1.0}
CANDIDATE_SHARE = 0.15  # of the budget: what one candidate may take until it has made its first step


def tune(request: Request, io: Path, data: Path) -> Tuning:
    """Search for about `request.budget.seconds`. data: see `handover`. Raises TrialFailed where the framework does not
    even start; where stock fails later, stock it is: the launch with it will say why."""
    budget_s = request.budget.seconds or 0.0
    until = time.monotonic() + budget_s
    settings: dict[str, str] = {}
    searches = []
    with ForkServers(io, data) as servers:
        axes = {objective: {axis.name: axis.values for axis in of} for objective, of in servers.offer().axes.items()}
        servers.start(axes.get("training", {}).get(allocators.AXIS, ()))
        for objective, share in SHARES.items():
            left_s = until - time.monotonic()
            if axes.get(objective) and left_s > 0:
                trials = ForkTrials(servers, objective, dict(settings), CANDIDATE_SHARE * budget_s)
                found = _searched(objective, axes[objective], trials, share * left_s)
                settings |= found.chosen
                searches.append(found)
    return Tuning(settings, searches)


def _searched(objective: Objective, axes: dict[str, list[str]], trials: ForkTrials, budget_s: float) -> Search:
    began = time.monotonic()
    try:
        found = search(axes, trials, budget_s)
    except StockFailed as error:
        return Search(objective, {}, [Tried({}, [], [], str(error))], time.monotonic() - began)
    return Search(objective, found.chosen, [_tried(candidate) for candidate in found.candidates], found.seconds)


def _tried(candidate: Candidate) -> Tried:
    return Tried(candidate.settings, candidate.ratios, candidate.rates, candidate.failure)
