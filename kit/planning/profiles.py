"""From a selection to an ordered list of launches, and what they will cost. Pure: nothing is looked up or run here."""

from __future__ import annotations

from dataclasses import dataclass

from kit.model.errors import unknown
from scenarios.contract.request import Budget
from scenarios.spec import Scenario


@dataclass(frozen=True)
class Profile:
    """How much a launch measures (budget; None: whole epochs, of which the scenario says how many), how many launches
    a cell gets, and what the profile is for.

    precise: cells get further launches until their intervals are narrow (kit.schedule). ceilings: the machine's
    ceilings are measured, too, before the cells.
    """

    name: str
    budget: Budget | None
    launches: int
    purpose: str
    precise: bool = False
    ceilings: bool = True


PROFILES: dict[str, Profile] = {
    p.name: p
    for p in (
        Profile("smoke", Budget(steps=20, test_images=200), 1, "does it work", ceilings=False),
        Profile("quick", Budget(seconds=6, test_images=1000), 1, "a first look in minutes"),
        Profile("standard", Budget(seconds=20), 5, "audits and comparisons", precise=True),
        Profile("full", None, 1, "accuracy, studies"),
    )
}


def find_profile(name: str) -> Profile:
    """The profile of that name. Raises UsageError."""
    if name not in PROFILES:
        raise unknown("profile", name, PROFILES)
    return PROFILES[name]


def budget(profile: Profile, epochs: int | None, scenario: Scenario) -> Budget:
    """How much a launch of this scenario measures. epochs: overrides the published number in the full profile."""
    return profile.budget or Budget(epochs=epochs or scenario.epochs)
