"""Carry out a plan: resolve its launches, then run one after the other. Each leaves its record at once.

Whatever ends the process, the records of finished launches are on disk. `--resume` runs the launches without a record.
"""

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from kit.engines.base import Engine
from kit.execution import paired_runs, phases
from kit.execution.interrupts import interrupts
from kit.execution.launch import ReadyLaunch, RunContext
from kit.execution.launch_report import LaunchReport
from kit.execution.outlook import describe_load
from kit.execution.resolve import DataSets, FindData, ResolvedLaunch, Resolver, require_named
from kit.execution.schedule import next_round
from kit.execution.side import Side
from kit.execution.time_left import pace_of
from kit.execution.tuned_settings import TunedSettings
from kit.host import gpus, machine_lock
from kit.host.gpu_choice import choose_gpus
from kit.host.limits import launch_limits
from kit.host.load import measure_load
from kit.host.machine import usable_cpus
from kit.host.paths import cache_folder
from kit.model.environment import EnvironmentKey
from kit.model.errors import EngineError, Interrupted
from kit.model.machine import Machine
from kit.model.plan import Plan, PlannedLaunch
from kit.model.progress import Progress
from kit.model.record import Record
from kit.planning import catalog
from kit.planning.profiles import find_profile
from kit.storage import run_lock
from kit.storage.files import disk_faults
from kit.storage.reference_cache import ReferenceCache
from kit.storage.run_folder import RunFolder
from kit.storage.tuning_cache import TuningCache
from scenarios.contract.reasons import Code, Status

SideLaunch = tuple[Side, ReadyLaunch]

LOAD_S = 1.0  # for the load of other programs: 100 clock ticks of each CPU

MACHINE_CHANGED = "The machine or its software changed since this run began. Each record describes its machine."


def run_campaign(
    folder: RunFolder,
    engine: Engine,
    machine: Machine,
    find_data: FindData,
    progress: Progress,
    *,
    base: RunFolder | None = None,
    retry_failed: bool = False,
) -> None:
    """Run what the plan of the folder still lacks. Call it from the main thread: it handles signals.

    machine: as it is now. find_data: `kit.datasets.service.resolve`. base: another run with the same launches, which is
    measured in the same rounds (`kit.execution.paired_runs`). retry_failed: also repeat, as further launches, what
    ended neither `ok` nor skipped. Raise EngineError if another run is measuring, if another process measures this one,
    if a cell on a named device cannot run, or if the engine is lost. Raise DiskError, and UsageError for a scenario
    that the catalog no longer has, or if the lock of the run is a link. Raise KeyboardInterrupt after a signal. Wrap
    this in `resumable`. The records made until then are kept.
    """
    folders = [folder, base] if base else [folder]
    with interrupts.handled(), machine_lock.measuring(folder.plan.run), ExitStack() as held:
        for each in folders:
            held.enter_context(run_lock.held(each.path))
        # First, because a container of a killed run makes its GPU busy, takes memory, and may still write checkpoints.
        for leftover in engine.sweep(lambda run: False):  # this process has the lock, so no other run is alive
            progress.line(f"Removed what a dead run left: {leftover}")
        _Campaign(folders, engine, machine, find_data, progress).run(retry_failed=retry_failed)


@contextmanager
def resumable(folder: RunFolder, *, retry_failed: bool = False) -> Iterator[None]:
    """Turn a signal or a fault of the disk into an error that names the command to resume the run.

    retry_failed: see `run_campaign`. Raise Interrupted or DiskError.
    """
    command = folder.retry_command if retry_failed else folder.resume_command
    try:
        with disk_faults(f"Then continue with `{command}`."):
            yield
    except KeyboardInterrupt as signal:
        raise Interrupted(
            "Interrupted. Finished measurements and checkpoints are kept.",
            f"Continue with `{command}`.",
        ).with_notes_of(signal) from None


def require_startable(plan: Plan, machine: Machine, refused: Mapping[EnvironmentKey, str]) -> None:
    """Raise what would end a new run before its first launch, so that a run that cannot start leaves no folder.

    refused: see `kit.execution.resolve.refusals`. Raise EngineError if another run is measuring or a cell on a named
    device cannot run here, and UsageError for threads or GPUs that are not here.
    """
    require_named(plan.launches, refused)
    launch_limits(plan, usable_cpus(), machine.memory_limit_bytes)
    choose_gpus(plan)
    with machine_lock.measuring(plan.run):
        pass


def exit_code(plan: Plan, records: Sequence[Record]) -> int:
    """Return the exit code of the process.

    It is 0 if each cell has as many `ok` launches as planned, or was skipped without being named (by device, or by
    settings that are not offered). If nothing is ok and all launches have the same reason, it is the code of that
    reason. Else it is 1.
    """
    ok = Counter(record.key for record in records if record.ok)
    skipped = {record.key for record in records if record.status is Status.SKIPPED}
    not_offered = {record.key for record in records if record.reason and record.reason.code is Code.NOT_OFFERED}
    wanted = Counter(launch.key for launch in plan.launches)
    named = {launch.key for launch in plan.launches if launch.named} | (not_offered & plan.pinned.keys())
    if all(ok[key] >= count or (key in skipped and key not in named) for key, count in wanted.items()):
        return 0
    reasons = {record.reason.code for record in records if record.reason and record.status is not Status.SKIPPED}
    codes = {code.exit_code for code in reasons}
    return codes.pop() if len(codes) == 1 and not ok else 1


def exit_code_of_both(one: int, other: int) -> int:
    """Return the exit code of two runs that were measured together: that of the failed one, or 1 if both failed for
    different reasons."""
    codes = {one, other} - {0}
    return codes.pop() if len(codes) == 1 else min(1, len(codes))


class _Campaign:
    """The launches of one process, under the lock of the machine. Each belongs to a side, that is, to one folder."""

    def __init__(
        self,
        folders: Sequence[RunFolder],
        engine: Engine,
        machine: Machine,
        find_data: FindData,
        progress: Progress,
    ) -> None:
        plan = folders[0].plan
        self.plan, self.engine, self.progress = plan, engine, progress
        self.profile = find_profile(plan.profile)
        limits, gpu_ids = launch_limits(plan, usable_cpus(), machine.memory_limit_bytes), choose_gpus(plan)
        gpu = gpus.named(gpu_ids[0]) if gpu_ids else None
        earlier = [record for folder in folders for record in folder.records()]
        self.pace = pace_of(earlier, catalog.scenarios())
        self.data = DataSets(plan, find_data, earlier, progress)
        context = RunContext(
            run=plan.run,  # also for the other folder: `kit clean` removes nothing that belongs to the lock's holder
            profile=plan.profile,
            identify=plan.identify,
            machine=machine,
            engine=engine,
            references=ReferenceCache(cache_folder() / "reference"),
        )
        self.sides = [
            Side(
                folder,
                context if machine.id == folder.machine.id else replace(context, warnings=(MACHINE_CHANGED,)),
                Resolver(folder.plan, engine, machine, gpu, self.data, progress),
                TunedSettings(folder, TuningCache(cache_folder() / "tuning", machine, gpu, folder.plan), progress),
                limits,
                gpu_ids,
                gpu,
            )
            for folder in folders
        ]

    def run(self, *, retry_failed: bool) -> None:
        """Run all launches, round by round."""
        for side in self.sides:
            side.folder.clean()
        rounds = self._rounds(retry_failed=retry_failed)
        if (first := next(rounds, None)) is None:
            return
        self._find(first)
        resolved = self._resolve(first)
        if any(own for _, own in resolved) and (warning := describe_load(measure_load(LOAD_S))):
            self.progress.line(warning)
        self._search(resolved)
        ready = [(side, side.ready(own)) for side, own in resolved]
        if self.profile.ceilings:
            self._probe([(side, probe) for side, own in ready for probe in side.probes(own)])
        with self.progress.phase("Measuring") as phase:
            report = LaunchReport(phase, self.progress, self.plan, self.pace)
            self._measure(ready, report)
            for launches in rounds:
                self._measure([(side, side.ready(own)) for side, own in self._resolve(launches)], report)
            phase.end(report.outcome())

    def _find(self, launches: Sequence[Sequence[PlannedLaunch]]) -> None:
        """Find or make the data sets and the environments of these launches, before anything is measured."""
        names = [name for side, own in zip(self.sides, launches, strict=True) for name in side.resolver.data_sets(own)]
        phases.find_data(self.progress, self.data, names)
        for side, own in zip(self.sides, launches, strict=True):
            phases.find_environments(self.progress, side.resolver, own, self.engine.name)

    def _resolve(self, launches: Sequence[Sequence[PlannedLaunch]]) -> list[tuple[Side, list[ResolvedLaunch]]]:
        return [(side, side.resolve(own)) for side, own in zip(self.sides, launches, strict=True)]

    def _search(self, resolved: Sequence[tuple[Side, list[ResolvedLaunch]]]) -> None:
        """Find the settings of tuned cells."""
        if not any(side.settings.missing(own) for side, own in resolved):
            return
        with self.progress.phase("Tuning") as phase:
            known = sum(len(side.settings.missing(own)) for side, own in resolved)
            searches = [(side, search) for side, own in resolved for search in side.searches(own)]
            report = LaunchReport(phase, self.progress, self.plan)
            for side, search, record in self._run(searches, report):
                side.settings.take(record, search.environment)
            phase.end(phases.tuning_outcome(report, known - len(searches)))

    def _probe(self, probes: Sequence[SideLaunch]) -> None:
        """Measure the ceilings of the machine."""
        if not probes:
            return
        with self.progress.phase("Ceilings") as phase:
            report = LaunchReport(phase, self.progress, self.plan)
            for _ in self._run(probes, report):
                pass
            phase.end(phases.ceilings_outcome(report, self.sides[0].folder.records("probe")))

    def _measure(self, ready: Sequence[tuple[Side, list[ReadyLaunch]]], report: LaunchReport) -> None:
        for _ in self._run(self._in_pairs([(side, launch) for side, own in ready for launch in own]), report):
            pass

    def _rounds(self, *, retry_failed: bool) -> Iterator[list[list[PlannedLaunch]]]:
        """Yield what each side still lacks. Then, in the standard profile, yield the rounds that the records need."""
        folders = [side.folder for side in self.sides]
        if any(lacking := paired_runs.lacking(folders, retry_failed=retry_failed)):
            yield lacking
        while self.profile.precise and self.plan.rounds is None:
            if not (launches := next_round(self.plan, folders[0].records())):
                return
            yield [launches]

    def _in_pairs(self, launches: Sequence[SideLaunch]) -> list[SideLaunch]:
        """Return the launches in the order of the plan, followed by the retries. Both sides of a launch are neighbors,
        in random order."""
        places: dict[tuple[str, int], list[SideLaunch]] = {(x.key, x.launch): [] for x in self.plan.launches}
        for side, launch in launches:
            places.setdefault((launch.request.cell.key, launch.request.launch), []).append((side, launch))
        return [
            launch
            for (key, number), own in places.items()
            for launch in random.Random(f"{self.plan.seed}/{number}/{key}").sample(own, len(own))
        ]

    def _run(self, launches: Sequence[SideLaunch], report: LaunchReport) -> Iterator[tuple[Side, ReadyLaunch, Record]]:
        """Run one launch after the other. Save each record at once, then yield it."""
        report.expect([launch.request for _, launch in launches])
        for side, launch in launches:
            report.start(launch.request)
            side.folder.require_space()
            with interrupts.deferred():
                record = side.run(launch, interrupts.pending, report.epoch)
            yield side, launch, record
            if interrupts.pending():
                raise KeyboardInterrupt
            report.finish(record, of_base=side is not self.sides[0])
            if record.reason is not None and record.reason.code is Code.ENGINE_FAILED:
                self._require_engine()

    def _require_engine(self) -> None:
        """Raise EngineError if the engine is lost, so that not every further launch fails for that reason."""
        try:
            self.engine.describe()
        except EngineError as error:
            # The lost launch has a record, so that only a retry repeats it.
            remedy = f"{error.remedy} Then continue with `{self.sides[0].folder.retry_command}`."
            raise EngineError(error.message, remedy) from error
