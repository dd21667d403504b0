"""What workers are asked for: by planned launches, by probes, by searches for settings. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from kit.model.plan import Plan, PlannedLaunch
from kit.planning.profiles import budget, find_profile
from scenarios.contract import allocators
from scenarios.contract.request import Budget, Request
from scenarios.spec import Scenario, digest

TUNING_TEST_IMAGES = 1000  # what inference is tried on


def measuring(
    plan: Plan,
    launch: PlannedLaunch,
    scenario: Scenario,
    data: Literal["real", "synthetic"],
    threads: int,
    settings: Mapping[str, str],
) -> Request:
    """Of a planned launch. settings: of the tuned lane, none in stock."""
    return Request(
        key=launch.key,
        launch=launch.launch,
        scenario=launch.scenario,
        variant=launch.variant,
        spec=digest(scenario),
        framework=launch.framework,
        device=launch.device,
        devices=launch.devices,
        lane=launch.lane,
        precision=launch.precision,
        batch=launch.batch,
        seed=plan.seed,
        threads=threads,
        data=data,
        budget=budget(find_profile(plan.profile), plan.epochs, scenario),
        settings=dict(settings),
        environment=allocators.variables(settings),
    )


def tuning(measured: Request, launch: int, seconds: float) -> Request:
    """What finds the settings for a request. launch: which try this is."""
    limits = Budget(seconds=seconds, test_images=TUNING_TEST_IMAGES)
    return replace(measured, launch=launch, purpose="tune", budget=limits, settings={}, environment={})


def probing(plan: Plan, launch: PlannedLaunch, threads: int) -> Request:
    """What measures the ceilings that a launch of this framework, device and precision can reach."""
    return Request(
        key=f"ceilings/{launch.framework}/{launch.device}/{launch.precision}",
        launch=1,
        scenario="",
        variant="",
        spec="",
        framework=launch.framework,
        device=launch.device,
        devices=1,
        lane="stock",
        precision=launch.precision,
        batch=1,
        seed=plan.seed,
        threads=threads,
        data="synthetic",
        budget=Budget(),
        purpose="probe",
    )
