"""From what a person asked for to a finished run: engine and plan, then campaign and report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from kit.analysis.diagnosis import Diagnosis
from kit.analysis.run_analysis import analyze_run
from kit.analysis.warnings import RunWarning
from kit.datasets import service
from kit.engines import registry
from kit.engines.base import Engine
from kit.environments.package_sources import Sources
from kit.execution import campaign
from kit.execution.launch import now
from kit.host import machine
from kit.model.cell import Scenarios
from kit.model.environment import Environment, EnvironmentKey
from kit.model.errors import DataError, EngineError, UsageError
from kit.model.plan import Plan
from kit.model.progress import Progress
from kit.model.record import Record
from kit.model.units import format_bytes
from kit.planning import catalog
from kit.planning.catalog import find_scenario
from kit.planning.estimates import DOWNLOAD_BYTES_PER_S
from kit.planning.plan import Options, make_plan
from kit.planning.plan_estimate import Estimate, estimate
from kit.planning.selection import Selection, pick
from kit.storage.run_folder import RunFolder, writing
from kit.storage.run_names import new_run_id


@dataclass(frozen=True)
class Downloads:
    """The data sets that a run will download, in bytes, and a line for each that is not here."""

    bytes: int
    lines: tuple[str, ...]


@dataclass(frozen=True)
class PreparedRun:
    """A run before it starts. note: which engine it has, and why. refusals: (framework, device) to the reason why
    the engine will skip its cells."""

    plan: Plan
    engine: Engine
    note: str
    refusals: Mapping[EnvironmentKey, str]
    estimate: Estimate
    downloads: Downloads

    @property
    def seconds(self) -> float:
        """About how long it will take, from now to the report."""
        return self.estimate.seconds + self.downloads.bytes / DOWNLOAD_BYTES_PER_S

    @property
    def disk_bytes(self) -> int:
        """About how much disk it will take: environments, and data sets as downloaded, unpacked and prepared."""
        return self.estimate.disk_bytes + 3 * self.downloads.bytes


@dataclass(frozen=True)
class FinishedRun:
    """A run after it ended. warnings, diagnoses: what the report says of its cells. exit_code: see
    campaign.exit_code."""

    run: str
    folder: Path
    report: Path
    records: list[Record]
    warnings: list[RunWarning]
    diagnoses: list[Diagnosis]
    exit_code: int


def prepare(selection: Selection, options: Options, sources: Sources) -> PreparedRun:
    """Choose the engine, make the plan and estimate its cost; nothing is built. options.engine may be `auto`.

    Raises UsageError for names and numbers that make no sense, EngineError where the engine asked for is not there.
    """
    engine, note = registry.choose(options.engine, options.environment, sources)
    scenarios, frameworks = catalog.scenarios(), catalog.frameworks()
    wishes = replace(options, engine=engine.name)
    plan = make_plan(selection, wishes, scenarios, frameworks, run=new_run_id(), created_at=now())
    refusals = campaign.refusals(plan, engine, frameworks)
    places = {(launch.framework, launch.device) for launch in plan.launches} - refusals.keys()
    ready = {(name, device) for name, device in places if engine.ready(frameworks[name], device)}
    cost = estimate(plan, scenarios, ready=ready, left_out=refusals.keys())
    return PreparedRun(plan, engine, note, refusals, cost, _downloads(plan, scenarios))


def start(prepared: PreparedRun, out: Path, progress: Progress) -> FinishedRun:
    """Carry out a new run in a folder of its own below `out`. Raises UsageError where `out` cannot be a folder, and
    what campaign.run_campaign raises."""
    _require_folder(out)
    machine.require_supported()
    here = machine.describe(prepared.engine.describe(), prepared.plan.identify)
    campaign.require_startable(prepared.plan, here, prepared.refusals)
    folder = RunFolder.create(out / prepared.plan.run, prepared.plan, here)
    campaign.run_campaign(folder, prepared.engine, here, service.resolve, progress)
    return report(folder)


def _require_folder(out: Path) -> None:
    """Raise UsageError where a file stands in the place of a folder: no free disk space would help there."""
    with writing(out):
        for place in (out, *out.parents):
            if place.exists() and not place.is_dir():
                raise UsageError(
                    f"{place} is a file, so that no run can be kept in {out}.",
                    "Name a folder with --out; one that is not there yet is made.",
                )


def resume(folder: RunFolder, sources: Sources, progress: Progress, *, retry_failed: bool) -> FinishedRun:
    """Go on with a run where it stopped. Raises what campaign.run_campaign raises."""
    machine.require_supported()
    engine, note = registry.choose(folder.plan.engine, folder.plan.environment, sources)
    progress.line(note)
    here = machine.describe(engine.describe(), folder.plan.identify)
    campaign.run_campaign(folder, engine, here, service.resolve, progress, retry_failed=retry_failed)
    return report(folder)


def report(folder: RunFolder, target: Path | None = None) -> FinishedRun:
    """Write the report of what a run has measured so far to `target`, or into the run's folder."""
    from kit.report.render import write_report  # seconds of imports, which a plan or a wrong name need not wait for

    plan, records = folder.plan, folder.records()
    analysis = analyze_run(plan, folder.machine, records, folder.probes(), catalog.scenarios(), folder.tunings())
    return FinishedRun(
        run=plan.run,
        folder=folder.path,
        report=write_report(target or folder.index, analysis),
        records=records,
        warnings=analysis.warnings,
        diagnoses=analysis.diagnoses,
        exit_code=campaign.exit_code(plan, records),
    )


def _downloads(plan: Plan, scenarios: Scenarios) -> Downloads:
    size, lines = 0, []
    names = dict.fromkeys(find_scenario(launch, scenarios).dataset for launch in plan.launches)
    for name in names if plan.data != "synthetic" else ():
        try:
            found = service.status(name)
        except DataError as error:  # its cells will fail with it; the others go on
            lines.append(str(error))
            continue
        if found.prepared is not None:
            continue
        told = f"{found.title} ({format_bytes(found.download_bytes)})"
        if plan.data == "auto" and found.download_bytes > service.AUTO_BUDGET.bytes:
            lines.append(f"{told} is not here; its synthetic set is used. `kit data fetch {name}` gets the real one.")
        else:
            size += found.download_bytes
            otherwise = "; where no mirror gives it, its synthetic set is used" if plan.data == "auto" else ""
            lines.append(f"{told} will be downloaded{otherwise}")
    return Downloads(size, tuple(lines))


def build(engine: Engine, framework_names: list[str], device_names: list[str], progress: Progress) -> list[Environment]:
    """Make the environments of these frameworks (none named: all) for these devices (none named: those that the
    engine can use here). Raises UsageError for unknown names, EngineError where the engine can use none of them,
    ImageError where one cannot be made."""
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
    if not wanted:  # an engine's reason is the same for all frameworks more often than not
        offered = [
            (frameworks[name], device) for name in names for device in devices if device in frameworks[name].devices
        ]
        why = next((why for place in offered if (why := engine.refusal(*place))), "It is not offered on that device.")
        raise EngineError(f"Nothing can be made here. {why}", "kit doctor looks into engine and GPU.")
    return [engine.prepare(framework, device, progress) for framework, device in wanted]
