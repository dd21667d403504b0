"""Prepare, start and resume runs, and build environments."""

import shutil
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from kit.datasets import service
from kit.engines import registry
from kit.engines.base import Engine
from kit.environments import interpreters
from kit.environments.package_sources import Sources
from kit.execution import campaign, paired_runs, phases, resolve, resume
from kit.execution.launch import now
from kit.execution.outlook import describe_launches, describe_place
from kit.execution.reporting import FinishedRun, report, update_index
from kit.execution.time_left import seconds_left
from kit.host import machine, machine_lock
from kit.model.environment import Environment, EnvironmentKey
from kit.model.errors import DataError, EngineError, ImageError, KitError
from kit.model.formatting import format_about, format_bytes, format_count, format_disk
from kit.model.machine import Machine
from kit.model.plan import Plan, PlannedLaunch
from kit.model.progress import PlainProgress, Progress, Silent, Tee
from kit.planning import catalog, studies
from kit.planning.catalog import find_scenario
from kit.planning.estimates import DOWNLOAD_BYTES_PER_S, Estimate, estimate
from kit.planning.plan import Options, check_timeout, make_plan, plan_cells
from kit.planning.profiles import find_profile
from kit.planning.selection import Selection, narrow_cells, pick
from kit.storage.run_folder import RunFolder
from kit.storage.run_names import new_run_id, require_out_folder
from scenarios.catalog import Scenarios
from scenarios.contract.cell import Cell


@dataclass(frozen=True)
class Downloads:
    """The size of the data sets that a run will download, and a line for each data set that is missing."""

    bytes: int
    lines: tuple[str, ...]


@dataclass(frozen=True)
class PreparedRun:
    """A run before it starts. note: which engine was chosen, and why. refusals: why the cells of an environment are
    skipped. base: the plan of the run that is measured in the same rounds, if there is one."""

    plan: Plan
    engine: Engine
    note: str
    refusals: Mapping[EnvironmentKey, str]
    estimate: Estimate
    downloads: Downloads
    base: Plan | None = None

    @property
    def seconds(self) -> float:
        """Return the estimated time until the report."""
        return self.estimate.seconds + self.downloads.bytes / DOWNLOAD_BYTES_PER_S

    @property
    def disk_bytes(self) -> int:
        """Return the estimated disk space for environments, and for data sets (archive, unpacked and prepared)."""
        return self.estimate.disk_bytes + 3 * self.downloads.bytes

    def summary(self, here: Machine) -> list[str]:
        """Return three lines: machine and engine, cells and launches, time and disk space."""
        cost = f"{format_about(self.seconds).capitalize()} and {format_disk(self.disk_bytes)}."
        return [
            describe_place(here, self.note),
            describe_launches(self.plan, self.refusals, runs=2 if self.base else 1),
            f"{cost} Ctrl-C keeps what is measured.",
        ]

    def details(self) -> list[str]:
        """Return lines with the engine, the reasons for skipped cells, the time and the disk space."""
        skipped = defaultdict[str, list[str]](list)
        for (framework, device), reason in self.refusals.items():
            skipped[reason].append(f"{framework} on {device}")
        return [
            self.note,
            *(f"Skipped: {', '.join(where)}. {reason}" for reason, where in skipped.items()),
            *self.estimate.lines,
            *self.downloads.lines,
            f"Total: {format_about(self.seconds)} and {format_disk(self.disk_bytes)}",
        ]


def prepare(selection: Selection, options: Options, sources: Sources, against: RunFolder | None = None) -> PreparedRun:
    """Choose the engine, make the plan and estimate its cost. Nothing is built. options.engine may be `auto`.

    against: an earlier run. Its environments are measured, too, in the same rounds. Then the selection narrows its `ok`
    cells, and the number of rounds is fixed. Raise UsageError for invalid names and numbers, and for an earlier run
    that cannot be measured again here. Raise EngineError if the engine is not available, and ImageError if an
    environment of the earlier run is gone.
    """
    if against is not None and options.engine == "auto":
        options = replace(options, engine=against.plan.engine)
    engine, note = registry.choose(options.engine, options.environment, sources)
    scenarios, frameworks = catalog.scenarios(), catalog.frameworks()
    known = studies.load(selection.studies or ())  # a wrong file is an error now, not after the measurements
    interpreter = interpreters.find(options.environment) if options.environment else ""
    resolved = replace(options, engine=engine.name, environment=interpreter)
    if against is not None:
        paired = _plan_against(selection, resolved, engine, against)
        run, kind = against.plan.run, paired[0].data
        note = f"{note} Half of the launches use the environments of {run}."
        return _prepared(
            engine, note if kind == options.data else f"{note} All use {kind} data, as {run} did.", *paired
        )
    plan = make_plan(selection, resolved, scenarios, frameworks, run=new_run_id(), created_at=now(), studies=known)
    return _prepared(engine, note, plan)


def prepare_again(base: RunFolder, new: RunFolder, keys: Sequence[str], rounds: int, sources: Sources) -> PreparedRun:
    """Prepare quick launches of cells of two runs, in the environments of each run and in the same rounds.

    keys: of cells that are `ok` in both runs. Raise as `prepare` does.
    """
    paired_runs.require_same_engine(base, new)
    interpreter = resume.choose_interpreter(new, "", Silent())
    engine, note = registry.choose(new.plan.engine, interpreter, sources)
    _require_same_place(engine, base, new)
    of_new, of_base = paired_runs.ok_records(new), paired_runs.ok_records(base)
    paired_runs.require_ok(new, of_new, keys)
    cells = [cell for cell in paired_runs.cells(new, of_new) if cell.key in keys]
    asked = new.plan
    options = Options(
        engine.name,
        interpreter,
        seed=asked.seed,
        data=paired_runs.data_of((record for record in (*of_new, *of_base) if record.key in keys), asked.data),
        memory_bytes=asked.memory_bytes,
        threads=asked.threads,
        gpus=asked.gpus,
        identify=asked.identify,
        rounds=rounds,
    )
    plan = _plan_earlier(cells, options, {})
    plans = paired_runs.reusing(plan, new, of_new), paired_runs.reusing(plan, base, of_base)
    try:
        return _prepared(engine, note, *paired_runs.paired(*plans))
    except ImageError as error:  # its remedy names options of `kit run`
        remedy = "Build it again with the kit version of that run, or name other runs."
        raise ImageError(error.message, remedy) from error


def _plan_against(selection: Selection, options: Options, engine: Engine, against: RunFolder) -> tuple[Plan, Plan]:
    """Return the plans of the run and of its base."""
    _require_same_place(engine, against)
    records = paired_runs.ok_records(against)
    earlier = paired_runs.cells(against, records)
    cells = narrow_cells(selection, earlier, catalog.scenarios(), against.plan.run)
    keys = {cell.key for cell in cells}
    fixed = replace(
        options,
        rounds=find_profile(options.profile).launches if options.rounds is None else options.rounds,
        data=paired_runs.data_of((record for record in records if record.key in keys), options.data),
    )
    trained = {launch.cell: launch.epochs_in(against.plan.epochs) for launch in against.plan.launches}
    plan = _plan_earlier(cells, fixed, trained)
    return paired_runs.paired(plan, paired_runs.reusing(plan, against, records))


def _plan_earlier(cells: Sequence[Cell], options: Options, epochs: Mapping[Cell, int | None]) -> Plan:
    """Return the plan of cells of an earlier run, which may come from a stranger. epochs: see `plan_cells`."""
    scenarios, frameworks = catalog.scenarios(), catalog.frameworks()
    for cell in cells:
        resume.require_known_launch(PlannedLaunch(cell=cell, launch=1, named=True), scenarios, frameworks)
    return plan_cells(cells, options, scenarios, named=True, run=new_run_id(), created_at=now(), epochs=epochs)


def _require_same_place(engine: Engine, *runs: RunFolder) -> None:
    here = machine.describe(engine.describe(), identify=False)
    for run in runs:
        paired_runs.require_same_place(run, engine.name, here)


def _prepared(engine: Engine, note: str, plan: Plan, base: Plan | None = None) -> PreparedRun:
    scenarios, frameworks = catalog.scenarios(), catalog.frameworks()
    refusals = resolve.refusals(plan, engine, frameworks)
    plans = [plan, base] if base else [plan]
    for each in plans:
        paired_runs.require_environments(each, engine, frameworks)
    needed = {launch.environment_key for launch in plan.launches} - refusals.keys()
    ready = {key for key in needed if plan.earlier_environment(key) or engine.ready(frameworks[key[0]], key[1])}
    cost = estimate(plan, scenarios, ready=ready, left_out=refusals.keys(), runs=len(plans))
    return PreparedRun(plan, engine, note, refusals, cost, _downloads(plan, scenarios), base)


def start(prepared: PreparedRun, out: Path, progress: Progress) -> FinishedRun:
    """Run a prepared run in a new folder in `out`, and write its report. Show the summary first.

    Raise UsageError if `out` cannot be a folder, and whatever campaign.run_campaign and campaign.resumable raise.
    """
    require_out_folder(out)
    machine.require_supported()
    here = machine.describe(prepared.engine.describe(), prepared.plan.identify)
    campaign.require_startable(prepared.plan, here, prepared.refusals)
    folder, base = _create(prepared, out, here)
    with _logged(folder, progress) as logged:
        for line in prepared.summary(here):
            logged.line(line)
        if prepared.plan.environment:
            resume.remember_interpreter(prepared.plan, prepared.plan.environment, logged)
        campaign.run_campaign(folder, prepared.engine, here, service.resolve, logged, base=base)
        return _finished(folder, base, logged)


def _create(prepared: PreparedRun, out: Path, here: Machine) -> tuple[RunFolder, RunFolder | None]:
    """Make the folder of the run and that of its base, or none of both."""
    if prepared.base is None:
        return RunFolder.create(out / prepared.plan.run, prepared.plan, here), None
    base = RunFolder.create(out / prepared.base.run, prepared.base, here)
    try:
        return RunFolder.create(out / prepared.plan.run, prepared.plan, here), base
    except BaseException:  # also Ctrl-C
        shutil.rmtree(base.path, ignore_errors=True)
        raise


def _finished(folder: RunFolder, base: RunFolder | None, progress: Progress) -> FinishedRun:
    """Write the reports of a run and of its base, and the index of their folder."""
    finished, other = report(folder), report(base) if base else None
    if note := update_index(folder.path):
        progress.line(note)
    if other is None:
        return finished
    return replace(finished, base=other, exit_code=campaign.exit_code_of_both(finished.exit_code, other.exit_code))


def resume_run(
    folder: RunFolder,
    environment: str,
    sources: Sources,
    progress: Progress,
    *,
    retry_failed: bool,
    timeout_s: float | None = None,
) -> FinishedRun:
    """Resume a stopped run, and the one that is measured in the same rounds. Write the reports.

    environment: interpreter of `--env`, or "". timeout_s: limit per launch instead of the plan's. Raise UsageError if
    this kit cannot run the plan, if it would measure another network in a cell than before, or if the user did not name
    the interpreter of the plan. Raise whatever campaign.run_campaign and campaign.resumable raise.
    """
    folder, base = paired_runs.open_pair(folder)
    folders = [folder, base] if base else [folder]
    if timeout_s is not None:
        check_timeout(timeout_s)
        for each in folders:
            each.plan = each.plan.model_copy(update={"timeout_s": timeout_s})  # the file of the plan stays
    with campaign.resumable(folder, retry_failed=retry_failed), machine_lock.measuring(folder.plan.run):
        pass  # before `_logged`, because another process may be writing to the log of the run
    with _logged(folder, progress, retry_failed=retry_failed) as logged:
        machine.require_supported()
        for each in folders:
            resume.require_known(each)
            resume.require_same_networks(each)
        interpreter = resume.choose_interpreter(folder, environment, logged)
        with resume.naming_field(folder, "engine"):
            engine, note = registry.choose(folder.plan.engine, interpreter, sources)
        here = machine.describe(engine.describe(), folder.plan.identify)
        logged.line(describe_place(here, note))
        logged.line(_left(folders, retry_failed=retry_failed))
        if folder.plan.identify:
            logged.line("The results will name this host, its user and its GPUs: the run began with --identify.")
        for each in folders:
            resume.require_possible(each, here)
        campaign.run_campaign(folder, engine, here, service.resolve, logged, base=base, retry_failed=retry_failed)
        return _finished(folder, base, logged)


def _left(folders: Sequence[RunFolder], *, retry_failed: bool) -> str:
    """Return what runs that are measured in the same rounds lack, and how long that takes."""
    plan = folders[0].plan
    launches = [launch for own in paired_runs.lacking(folders, retry_failed=retry_failed) for launch in own]
    how_long = f", {format_about(seconds_left(folders, launches, catalog.scenarios()))}" if launches else ""
    count = format_count(len(launches), "launch")
    adaptive = find_profile(plan.profile).precise and plan.rounds is None
    more = ", then more rounds where intervals are wide" if adaptive else ""
    return f"Left to measure in {plan.run}: {count}{how_long}{more}. Ctrl-C keeps what is measured."


@contextmanager
def _logged(folder: RunFolder, progress: Progress, *, retry_failed: bool = False) -> Iterator[Progress]:
    """Show progress, and write it to the log of the run, with the report or the error at its end.

    retry_failed: see `campaign.run_campaign`. Raise Interrupted if a signal ends the block, and DiskError for a fault
    of the disk.
    """
    log = PlainProgress(folder.append_progress)
    try:
        with campaign.resumable(folder, retry_failed=retry_failed):
            yield Tee(log, progress)
    except KitError as error:
        log.line(str(error))
        raise
    log.line(f"Report: {folder.index}")


def _downloads(plan: Plan, scenarios: Scenarios) -> Downloads:
    size, lines = 0, []
    names = dict.fromkeys(find_scenario(launch, scenarios).dataset for launch in plan.launches)
    for name in names if plan.data != "synthetic" else ():
        try:
            found = service.status(name)
        except DataError as error:  # only the cells of this data set will fail
            lines.append(str(error))
            continue
        if found.prepared is not None:
            continue
        name_and_size = f"{found.title} ({format_bytes(found.download_bytes)})"
        if plan.data == "auto" and found.download_bytes > service.AUTO_BUDGET.bytes:
            lines.append(
                f"{name_and_size} is missing, so synthetic data is used. `kit data fetch {name}` gets the real data."
            )
        else:
            size += found.download_bytes
            otherwise = ". If no mirror has it, synthetic data is used" if plan.data == "auto" else ""
            lines.append(f"{name_and_size} will be downloaded{otherwise}.")
    return Downloads(size, tuple(lines))


def build(engine: Engine, framework_names: list[str], device_names: list[str], progress: Progress) -> list[Environment]:
    """Build the environments of frameworks for devices.

    Empty lists mean all frameworks, and the devices that the engine can use here. Raise UsageError for unknown names,
    EngineError if the engine can use none of them or if a run or another build holds the machine's lock, and ImageError
    if one cannot be built.
    """
    machine.require_supported()
    frameworks = catalog.frameworks()
    names = pick("framework", framework_names or None, list(frameworks), list(frameworks))
    devices = pick("device", device_names or None, catalog.DEVICES, catalog.DEVICES)
    wanted = [
        (frameworks[name], device)
        for name in names
        for device in frameworks[name].devices
        if device in devices and (device_names or engine.refusal(frameworks[name], device) is None)
    ]
    if not wanted:  # an engine usually has the same reason for all frameworks
        offered = [
            (frameworks[name], device) for name in names for device in devices if device in frameworks[name].devices
        ]
        why = next((why for place in offered if (why := engine.refusal(*place))), "It is not offered on that device.")
        raise EngineError(f"Nothing can be built here. {why}", "Run `kit doctor`. It checks engine and GPU.")
    with machine_lock.measuring("build"):  # a build would slow down a run that measures
        return phases.build(progress, engine, wanted)
