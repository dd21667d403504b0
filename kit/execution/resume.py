"""Decide whether a run may be resumed, and with which interpreter. Its folder may come from a stranger, or from another
version of kit."""

import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext

from kit.analysis.run_analysis import unchanged
from kit.environments import interpreters
from kit.host.gpu_choice import choose_gpus
from kit.host.limits import launch_limits
from kit.host.machine import usable_cpus
from kit.model.environment import Framework
from kit.model.errors import UsageError, unknown
from kit.model.machine import Machine
from kit.model.plan import Plan, PlannedLaunch
from kit.model.progress import Progress
from kit.planning import catalog
from kit.planning.profiles import find_profile
from kit.planning.selection import largest_batch
from kit.storage import chosen_interpreters
from kit.storage.run_folder import PLAN_FILE, RunFolder
from scenarios.catalog import Scenarios, scenario_of
from scenarios.spec import loads_photos

REMEDY = "Restore the file from a copy, or start a new run."
OTHER_MACHINE = "Resume the run on the machine where it began, or start a new run."


def require_known(folder: RunFolder) -> None:
    """Raise UsageError, which names file and field, if this kit cannot run a launch of the plan."""
    scenarios, frameworks = catalog.scenarios(), catalog.frameworks()
    with naming_field(folder, "profile"):
        find_profile(folder.plan.profile)
    for index, launch in enumerate(folder.plan.launches):
        with naming_field(folder, f"launches.{index}.cell"):
            require_known_launch(launch, scenarios, frameworks)


def require_known_launch(launch: PlannedLaunch, scenarios: Scenarios, frameworks: Mapping[str, Framework]) -> None:
    """Raise UsageError if this kit cannot run a launch, whose cell comes from a file."""
    cell = launch.cell
    if cell.framework not in frameworks:
        raise unknown("framework", cell.framework, frameworks)
    scenario = catalog.find_scenario(launch, scenarios)
    largest = largest_batch(scenario)
    if cell.batch > largest:
        raise UsageError(f"Batch {cell.batch:,} is larger than the training set, which has {largest:,} images.", REMEDY)
    if cell.workers and not loads_photos(scenario):
        raise UsageError(f"It has loader workers, but {scenario.label} has its images in memory.", REMEDY)
    if cell.devices != 1:
        raise UsageError(f"It has {cell.devices:,} devices, but kit runs a cell on one device.", REMEDY)


def require_same_networks(folder: RunFolder) -> None:
    """Raise UsageError if a cell would be measured with another definition of its network than before."""
    records = folder.records()
    known = unchanged(catalog.scenarios(), records)
    for record in records:
        if record.request and scenario_of(record.cell, known) is None:
            raise UsageError(
                f"The definition of {record.cell.label} changed since the run {folder.plan.run} measured it.",
                "Use the kit that began the run, or start a new run.",
            )


def require_possible(folder: RunFolder, machine: Machine) -> None:
    """Raise UsageError, which names file and field, if this machine has fewer CPUs or GPUs than the plan asks for.

    If the plan names no GPU, an error is about this machine's CUDA_VISIBLE_DEVICES, and names only the variable.
    """
    with naming_field(folder, "threads", OTHER_MACHINE):
        launch_limits(folder.plan, usable_cpus(), machine.memory_limit_bytes)
    with naming_field(folder, "gpus", OTHER_MACHINE) if folder.plan.gpus is not None else nullcontext():
        choose_gpus(folder.plan)


@contextmanager
def naming_field(folder: RunFolder, name: str, remedy: str = "") -> Iterator[None]:
    """Name the file of the plan and the field in every UsageError of this block. remedy: replaces that of the error,
    which may be for a new run."""
    try:
        yield
    except UsageError as error:
        raise UsageError(f"{folder.path / PLAN_FILE}: {name}: {error.message}", remedy or error.remedy) from error


def choose_interpreter(folder: RunFolder, given: str, progress: Progress) -> str:
    """Return the interpreter with which to resume a run, or "" if the run uses environments that kit makes.

    given: value of `--env`, or "". If it is empty, use the plan's interpreter, but only if this user named it for this
    run. Raise UsageError.
    """
    plan = folder.plan
    if given and not plan.environment:
        raise UsageError("--env does not apply, because the run began without it.", "Remove --env, or start a new run.")
    if given:
        interpreter = interpreters.find(given)
        remember_interpreter(plan, interpreter, progress)
        return interpreter
    if plan.environment and plan.environment != chosen_interpreters.recall(plan.run):
        raise UsageError(
            f"{folder.path / PLAN_FILE} names the interpreter {plan.environment}, which you did not name for this run.",
            f"If you trust it, name it with `{folder.resume_command} --env {shlex.quote(plan.environment)}`. Then "
            "repeat your command.",
        )
    return plan.environment


def remember_interpreter(plan: Plan, interpreter: str, progress: Progress) -> None:
    """Remember that this user named an interpreter for a run, so that --resume may execute it."""
    try:
        chosen_interpreters.remember(plan.run, interpreter)
    except OSError as error:
        progress.line(f"The choice of {interpreter} could not be kept, so --resume will need --env again: {error}")
