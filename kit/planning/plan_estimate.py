"""From a selection to an ordered list of launches, and what they will cost. Pure: nothing is looked up or run here."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from kit.model.cell import Scenarios
from kit.model.environment import EnvironmentKey
from kit.model.plan import Plan, PlannedLaunch
from kit.model.units import format_bytes, format_duration
from kit.planning.catalog import find_scenario
from kit.planning.estimates import PROBE_S, environment_cost, launch_seconds, search_seconds, start_seconds
from kit.planning.profiles import PROFILES, Profile, budget

Environments = Collection[EnvironmentKey]


@dataclass(frozen=True)
class Estimate:
    """seconds and disk_bytes in all; lines: how they come about, for people."""

    seconds: float
    disk_bytes: int
    lines: tuple[str, ...]


def estimate(plan: Plan, scenarios: Scenarios, ready: Environments = (), left_out: Environments = ()) -> Estimate:
    """Rough time and disk of a plan. ready: environments that exist already; left_out: those whose launches will be
    skipped. Downloads of data sets are not in it."""
    launches = [launch for launch in plan.launches if (launch.framework, launch.device) not in left_out]
    used = {(launch.framework, launch.device) for launch in launches}
    needed = sorted(used - set(ready))
    costs = [environment_cost(framework, device) for framework, device in needed]
    building_s, disk_bytes = sum(c.seconds for c in costs), sum(c.bytes for c in costs)
    profile = PROFILES[plan.profile]
    measuring_s = sum(planned_seconds(launch, profile, plan.epochs, scenarios) for launch in launches)
    lines = [f"{_count(len(launches), 'launch', 'launches')}: about {format_duration(measuring_s)}"]
    if plan.budget_s is not None and plan.budget_s > measuring_s:
        lines.append(f"Further launches where intervals are wide, until {format_duration(plan.budget_s)} are spent")
        measuring_s = plan.budget_s
    if searched := {x.key: x for x in launches if x.lane == "tuned" and x.key not in plan.pinned}:
        tuning_s = sum(search_seconds(x.framework, x.device, plan.tune_s) for x in searched.values())
        count = _count(len(searched), "search", "searches")
        lines.append(f"{count} for settings, unless made before: about {format_duration(tuning_s)} with start-up")
        if plan.pinned:
            lines.append(f"Not in the file of settings, so searched: {', '.join(searched)}")
        measuring_s += tuning_s
    if profile.ceilings:
        probes = {(launch.framework, launch.device, launch.precision) for launch in launches}
        probing_s = sum(PROBE_S + start_seconds(framework, device) for framework, device, _ in probes)
        count = _count(len(probes), "probe", "probes")
        lines.append(f"{count} of this machine's ceilings: about {format_duration(probing_s)}")
        measuring_s += probing_s
    if needed:
        names = ", ".join(f"{framework} {device}" for framework, device in needed)
        lines.append(
            f"{_count(len(needed), 'environment', 'environments')} to make ({names}): about "
            f"{format_duration(building_s)}, {format_bytes(disk_bytes)} of disk"
        )
    return Estimate(measuring_s + building_s, disk_bytes, tuple(lines))


def planned_seconds(launch: PlannedLaunch, profile: Profile, epochs: int | None, scenarios: Scenarios) -> float:
    scenario = find_scenario(launch, scenarios)
    limit = budget(profile, epochs, scenario)
    return launch_seconds(scenario, launch.framework, launch.device, launch.batch, limit)


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
