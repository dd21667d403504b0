"""Make the request of a launch: to measure a cell, to search for its settings, to probe the machine's ceilings, or to
use trained weights."""

from collections.abc import Mapping
from dataclasses import replace

from kit.model.plan import Plan, PlannedLaunch
from kit.planning.profiles import budget, find_profile, search_budget
from kit.storage.trained_weights import TrainedWeights
from scenarios.contract import allocators
from scenarios.contract.cell import CEILINGS, Cell
from scenarios.contract.request import Budget, DataKind, Purpose, Request
from scenarios.spec import Scenario, digest

TUNING_TEST_IMAGES = 1000  # inference is tried on these


def measuring(
    plan: Plan,
    launch: PlannedLaunch,
    scenario: Scenario,
    data: DataKind,
    threads: int,
    settings: Mapping[str, str],
    environment_digest: str,
    gpu_digest: str = "",
) -> Request:
    """Return the request to measure a planned launch.

    settings: of the tuned lane; empty in the stock lane. gpu_digest: see `Gpu.digest`; empty on the CPU.
    """
    limits = budget(find_profile(plan.profile), launch.epochs_in(plan.epochs), scenario)
    whole_epochs = limits.epochs is not None
    return Request(
        cell=launch.cell,
        launch=launch.launch,
        spec=digest(scenario),
        seed=plan.seed,
        threads=threads,
        data=data,
        budget=limits,
        settings=dict(settings),
        environment=allocators.variables(settings),
        keep_weights=plan.keep_weights and whole_epochs,
        environment_digest=environment_digest if whole_epochs else "",
        gpu_digest=gpu_digest if whole_epochs else "",
    )


def tuning(plan: Plan, measured: Request, launch: int) -> Request:
    """Return the request to search for the settings of a cell. launch: number of this try, from 1."""
    limits = replace(search_budget(plan.tune_s, plan.timeout_s), test_images=TUNING_TEST_IMAGES)
    return replace(
        measured,
        launch=launch,
        purpose="tune",
        budget=limits,
        settings={},
        environment={},
        keep_weights=False,
        environment_digest="",
        gpu_digest="",
    )


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


def using_weights(
    purpose: Purpose, weights: TrainedWeights, framework: str, scenario: Scenario, threads: int, pictures: int = 0
) -> Request:
    """Return the request to predict or to export on the CPU, in the stock lane.

    scenario: of the cell that the weights come from, with its number of hidden layers.
    """
    cell = Cell(scenario.name, scenario.variant, framework, "cpu", 1, "stock", "fp32", scenario.batch)
    return Request(
        cell=replace(cell, hidden_layers=weights.cell.hidden_layers),
        launch=1,
        spec=digest(scenario),
        seed=0,
        threads=threads,
        data="synthetic",
        budget=Budget(),
        purpose=purpose,
        pictures=pictures,
        weights_digest=weights.kept.digest,
    )
