"""Make the request of a launch: to measure a cell, to search for its settings, or to probe the machine's ceilings."""

from collections.abc import Mapping
from dataclasses import replace

from kit.model.plan import Plan, PlannedLaunch
from kit.planning.profiles import budget, find_profile, search_budget
from scenarios.contract import allocators
from scenarios.contract.cell import CEILINGS, Cell
from scenarios.contract.request import Budget, DataKind, Request
from scenarios.spec import Scenario, digest

TUNING_TEST_IMAGES = 1000  # inference is tried on these


def measuring(
    plan: Plan, launch: PlannedLaunch, scenario: Scenario, data: DataKind, threads: int, settings: Mapping[str, str]
) -> Request:
    """Return the request to measure a planned launch. settings: of the tuned lane; empty in the stock lane."""
    return Request(
        cell=launch.cell,
        launch=launch.launch,
        spec=digest(scenario),
        seed=plan.seed,
        threads=threads,
        data=data,
        budget=budget(find_profile(plan.profile), plan.epochs or launch.epochs, scenario),
        settings=dict(settings),
        environment=allocators.variables(settings),
    )


def tuning(plan: Plan, measured: Request, launch: int) -> Request:
    """Return the request to search for the settings of a cell. launch: number of this try, from 1."""
    limits = replace(search_budget(plan.tune_s, plan.timeout_s), test_images=TUNING_TEST_IMAGES)
    return replace(measured, launch=launch, purpose="tune", budget=limits, settings={}, environment={})


def probing(plan: Plan, cell: Cell, threads: int) -> Request:
    """Return the first request to probe the ceilings of this cell's framework, device and precision."""
    return Request(
        cell=Cell(CEILINGS, "", cell.framework, cell.device, 1, "stock", cell.precision, 1),
        launch=1,
        spec="",
        seed=plan.seed,
        threads=threads,
        data="synthetic",
        budget=Budget(),
        purpose="probe",
    )
