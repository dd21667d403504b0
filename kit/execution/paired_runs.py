"""Measure the environments of an earlier run again, in the same rounds as a new run, so that both can be compared in
pairs.

The results are two run folders next to each other. The plan of each names the other one. The run of the earlier
environments is called the base, and its id ends in BASE_SUFFIX.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from kit.engines.base import Engine
from kit.execution.resolve import find_earlier
from kit.model.data_choice import DataChoice
from kit.model.environment import Framework
from kit.model.errors import UsageError
from kit.model.machine import Machine
from kit.model.plan import Plan, PlannedLaunch
from kit.model.record import Record
from kit.storage.run_folder import PLAN_FILE, RunFolder, parent_of
from scenarios.contract.cell import Cell

BASE_SUFFIX = "-base"


def ok_records(folder: RunFolder) -> list[Record]:
    """Return the records that say in which environment a cell can be measured again.

    Raise UsageError if there is none, or if a record is damaged.
    """
    found = [record for record in folder.records() if record.ok and record.image and record.request]
    if not found:
        raise UsageError(f"The run {folder.plan.run} has no ok launch.", "Name another run.")
    return found


def cells(folder: RunFolder, records: Sequence[Record]) -> list[Cell]:
    """Return the cells of these records, in the order of the run's plan."""
    found = {record.key: record.cell for record in records}
    planned = dict.fromkeys(launch.key for launch in folder.plan.launches)
    return [found[key] for key in planned | found if key in found]


def data_of(records: Iterable[Record], asked: DataChoice) -> DataChoice:
    """Return the kind of data with which these records can be compared, or `asked` if it names one or they differ.

    asked: `auto` if the user named none.
    """
    kinds = {record.synthetic for record in records}
    if asked != "auto" or len(kinds) != 1:
        return asked
    return "synthetic" if kinds.pop() else "real"


def require_same_place(folder: RunFolder, engine: str, machine: Machine) -> None:
    """Raise UsageError if a run was not measured by this engine, on this machine."""
    run = folder.plan.run
    if folder.plan.engine != engine:
        raise UsageError(
            f"The run {run} was measured with the engine {folder.plan.engine}, not with {engine}.",
            f"Use --engine {folder.plan.engine}, or name another run.",
        )
    if folder.machine.id != machine.id:
        raise UsageError(
            f"The run {run} is from another machine, or this machine's hardware or system has changed. "
            "Runs from two machines cannot be paired.",
            "Compare them with `kit compare`, or name a run from this machine.",
        )


def require_same_engine(base: RunFolder, new: RunFolder) -> None:
    """Raise UsageError if two runs were not measured by the same engine."""
    if base.plan.engine != new.plan.engine:
        raise UsageError(
            f"The run {base.plan.run} was measured with the engine {base.plan.engine}, but {new.plan.run} with "
            f"{new.plan.engine}.",
            "Name two runs that were measured with the same engine.",
        )


def require_ok(folder: RunFolder, records: Sequence[Record], keys: Collection[str]) -> None:
    """Raise UsageError if one of these cells has no record. records: see `ok_records`."""
    if missing := sorted({*keys} - {record.key for record in records}):
        raise UsageError(
            f"The run {folder.plan.run} has no ok launch of {missing[0]:.200}.", "Name a run in which the cell is ok."
        )


def reusing(plan: Plan, folder: RunFolder, records: Sequence[Record]) -> Plan:
    """Return the plan with the environments and the settings of an earlier run. records: see `ok_records`.

    Raise UsageError if a cell has no record, if the run used more than one environment for a framework on a device, and
    for a digest or a setting that is not valid: the run may come from a stranger.
    """
    run, keys = folder.plan.run, {launch.key for launch in plan.launches}
    require_ok(folder, records, keys)
    environments: dict[str, str] = {}
    pinned: dict[str, dict[str, str]] = {}
    for record in records:
        if record.key not in keys:
            continue
        assert record.image is not None
        assert record.request is not None
        name = f"{record.cell.framework}/{record.cell.device}"
        if environments.setdefault(name, record.image.digest) != record.image.digest:
            raise UsageError(
                f"The run {run} used more than one environment for {name}.",
                "Name another run, or select other frameworks.",
            )
        if record.cell.lane == "tuned":
            pinned[record.key] = record.request.settings
    changed = plan.model_copy(update={"environments": environments, "pinned": pinned})
    return Plan.from_json(changed.to_json(), f"The plan to measure {run} again")


def paired(plan: Plan, base: Plan) -> tuple[Plan, Plan]:
    """Return the plans of two runs that are measured in the same rounds. base: has the same launches."""
    run, base_run = plan.run, f"{plan.run}{BASE_SUFFIX}"
    return plan.model_copy(update={"against": base_run}), base.model_copy(update={"run": base_run, "against": run})


def require_environments(plan: Plan, engine: Engine, frameworks: Mapping[str, Framework]) -> None:
    """Raise ImageError if an environment of an earlier run is gone."""
    for name, device in dict.fromkeys(launch.environment_key for launch in plan.launches):
        if digest := plan.earlier_environment((name, device)):
            find_earlier(engine, frameworks[name], device, digest)


def lacking(folders: Sequence[RunFolder], *, retry_failed: bool) -> list[list[PlannedLaunch]]:
    """Return what each of these runs, which are measured in the same rounds, still lacks.

    A failed launch is retried in all of them, because a retry without its partner would not be a pair. If an earlier
    retry was interrupted, a run may lack one that another run has.
    """
    further = dict.fromkeys(x for each in folders for x in (*each.further(), *each.retries())) if retry_failed else ()
    return [[*each.missing(), *filter(each.lacks, further)] for each in folders]


def open_pair(folder: RunFolder) -> tuple[RunFolder, RunFolder | None]:
    """Return a run, and the base that is measured in the same rounds, if there is one. folder: any of both.

    Raise UsageError if the other folder is missing or damaged, or if it does not name this one.
    """
    own = folder.plan
    if own.against is None:
        return folder, None
    path = parent_of(folder.path) / own.against
    if not (path / PLAN_FILE).exists():
        raise UsageError(
            f"The run {own.run} is measured in the same rounds as {own.against}, but {path} is not a run.",
            "Move both folders to the same place, or start a new run.",
        )
    other = RunFolder.open(path)
    if (other.plan.run, other.plan.against, other.plan.launches) != (own.against, own.run, own.launches):
        raise UsageError(
            f"{path / PLAN_FILE} is not the plan of a run that is measured in the same rounds as {own.run}.",
            "Restore the file from a copy, or start a new run.",
        )
    return (other, folder) if own.run.endswith(BASE_SUFFIX) else (folder, other)
