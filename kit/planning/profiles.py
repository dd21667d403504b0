"""Define the profiles: how much a launch measures, and how many launches a cell gets."""

from dataclasses import dataclass

from kit.model.errors import unknown
from scenarios.contract.request import Budget
from scenarios.spec import Scenario

STANDARD = Budget(seconds=20)

# Default time of the search for one tuned cell's settings. If processes start slowly, as on CUDA, the search may last
# up to MAX_TUNE_S.
TUNE_S = 60.0
MAX_TUNE_S = 600.0


@dataclass(frozen=True)
class Profile:
    """How much a run measures.

    budget: of one launch; None for the number of epochs in the scenario. launches: per cell. precise: cells get more
    launches until their intervals are narrow (kit.execution.schedule). ceilings: measure the machine's ceilings before
    the cells.
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
        Profile("quick", Budget(seconds=3, test_images=1000), 2, "a first look in minutes"),
        Profile("standard", STANDARD, 5, "audits and comparisons", precise=True),
        Profile("full", None, 1, "accuracy, studies"),
    )
}


def find_profile(name: str) -> Profile:
    """Return the profile of that name. Raise UsageError if there is none."""
    if name not in PROFILES:
        raise unknown("profile", name, PROFILES)
    return PROFILES[name]


def budget(profile: Profile, epochs: int | None, scenario: Scenario) -> Budget:
    """Return how much a launch of this scenario measures.

    epochs: of the full profile; None for the scenario's, and 0 to measure only the speed, as in the profile standard.
    """
    if profile.budget:
        return profile.budget
    return STANDARD if epochs == 0 else Budget(epochs=epochs or scenario.epochs)


def search_budget(tune_s: float | None, timeout_s: float) -> Budget:
    """Return how long a search for settings may last.

    tune_s: the exact time in seconds; None for the default, which may be extended to half of the launch's timeout.
    """
    return Budget(seconds=tune_s) if tune_s else Budget(seconds=TUNE_S, max_seconds=min(MAX_TUNE_S, timeout_s / 2))
