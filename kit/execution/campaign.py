"""Carry out a plan: resolve its launches, then run one after the other. Each leaves its record at once.

Whatever ends the process, the records of finished launches are on disk. `--resume` runs the launches without a record.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeGuard, TypeVar

from kit.analysis.ceilings import best_ceilings, max_training_rate
from kit.datasets.service import ResolvedData
from kit.engines.base import Engine
from kit.execution import launch_requests, tuned_settings
from kit.execution.interrupts import interrupts
from kit.execution.launch import ReadyLaunch, RunContext, UnstartedLaunch, run_launch, unstarted_record
from kit.execution.resolve import FindData, ResolvedLaunch, Resolver, require_named
from kit.execution.schedule import next_round
from kit.execution.tuned_settings import TunedSettings
from kit.host import gpus, machine_lock
from kit.host.gpu_choice import choose_gpus
from kit.host.limits import launch_limits
from kit.host.machine import usable_cpus
from kit.host.paths import cache_folder
from kit.model.environment import Environment, EnvironmentKey
from kit.model.errors import EngineError, Interrupted
from kit.model.machine import Machine
from kit.model.plan import Plan, PlannedLaunch
from kit.model.progress import Progress
from kit.model.record import Record
from kit.planning import catalog
from kit.planning.profiles import find_profile
from kit.storage.files import disk_faults
from kit.storage.reference_cache import ReferenceCache
from kit.storage.run_folder import RunFolder
from kit.storage.tuning_cache import TuningCache
from scenarios.contract.reasons import Code, Reason, Status
from scenarios.contract.request import Request

T = TypeVar("T")

MACHINE_CHANGED = "The machine or its software changed since this run began. Each record describes its machine."


def run_campaign(
    folder: RunFolder,
    engine: Engine,
    machine: Machine,
    find_data: FindData,
    progress: Progress,
    *,
    retry_failed: bool = False,
) -> list[Record]:
    """Run what the plan of the folder still lacks and return all records. Call it from the main thread: it handles
    signals.

    machine: as it is now. find_data: `kit.datasets.service.resolve`. retry_failed: also repeat, as further launches,
    what ended neither `ok` nor skipped. Raise EngineError if another run is measuring, if a cell on a named device
    cannot run, or if the engine is lost. Raise DiskError, and UsageError for a scenario that the catalog no longer has.
    Raise KeyboardInterrupt after a signal. Wrap this in `resumable`. The records made until then are kept.
    """
    with interrupts.handled(), machine_lock.measuring(folder.plan.run):
        _Campaign(folder, engine, machine, find_data, progress).run(retry_failed=retry_failed)
    return folder.records()


@contextmanager
def resumable(folder: RunFolder) -> Iterator[None]:
    """Turn a signal or a fault of the disk into an error that names the command to resume the run.

    Raise Interrupted or DiskError.
    """
    try:
        with disk_faults(f"Then continue with `{folder.resume_command}`."):
            yield
    except KeyboardInterrupt as signal:
        raise Interrupted(
            "Interrupted. The finished measurements are kept.", f"Continue with `{folder.resume_command}`."
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


class _Campaign:
    """The launches of one process, under the lock of the machine."""

    def __init__(
        self,
        folder: RunFolder,
        engine: Engine,
        machine: Machine,
        find_data: FindData,
        progress: Progress,
    ) -> None:
        plan = folder.plan
        self.folder, self.plan, self.engine = folder, plan, engine
        self.progress = progress
        self.profile = find_profile(plan.profile)
        self.limits = launch_limits(plan, usable_cpus(), machine.memory_limit_bytes)
        self.gpus = choose_gpus(plan)
        gpu = gpus.named(self.gpus[0]) if self.gpus else None
        self.settings = TunedSettings(folder, TuningCache(cache_folder() / "tuning", machine, gpu, plan), progress)
        self.resolver = Resolver(plan, engine, machine, gpu, find_data, folder.records(), progress)
        self.scenarios = catalog.scenarios()
        self.probed: set[str] = set()
        self.proven = {record.key for record in folder.records() if _proves(record)}
        self.context = RunContext(
            run=plan.run,
            profile=plan.profile,
            identify=plan.identify,
            machine=machine,
            engine=engine,
            references=ReferenceCache(cache_folder() / "reference"),
            warnings=() if machine.id == folder.machine.id else (MACHINE_CHANGED,),
        )

    def run(self, *, retry_failed: bool) -> None:
        """Run all launches, round by round."""
        self.folder.clean()
        for leftover in self.engine.sweep(lambda run: False):  # this process has the lock, so no other run is alive
            self.progress.line(f"Removed what a dead run left: {leftover}")
        for launches in self._rounds(retry_failed=retry_failed):
            resolved = [each for each in self.resolver.resolve(launches) if self._has_started(each)]
            self._tune(resolved)
            ready = [launch for each in resolved if self._has_started(launch := self._ready(each))]
            if self.profile.ceilings:
                self._probe(ready)
            for _ in self._run("Measuring", ready):
                pass

    def _rounds(self, *, retry_failed: bool) -> Iterator[list[PlannedLaunch]]:
        """Return what the plan still lacks. Then, in the standard profile, return the rounds that the records need."""
        lacking = self.folder.missing() + (self.folder.retries() if retry_failed else [])
        if lacking:
            yield lacking
        while self.profile.precise and (launches := next_round(self.plan, self.folder.records())):
            yield launches

    def _has_started(self, launch: T | UnstartedLaunch) -> TypeGuard[T]:
        """Save the record of a launch that cannot start."""
        if isinstance(launch, UnstartedLaunch):
            self.folder.save(unstarted_record(self.context, launch))
            return False
        return True

    def _tune(self, launches: list[ResolvedLaunch]) -> None:
        """Search for the settings of the tuned cells that have none yet."""
        searches = [
            self._make_ready(request, launch.environment, launch.data)
            for launch in self.settings.missing(launches)
            if (request := self.settings.look_up(self._request(launch, {}), launch.environment))
        ]
        for search, record in self._run("Tuning", searches):
            self.settings.take(record, search.environment)

    def _ready(self, launch: ResolvedLaunch) -> ReadyLaunch | UnstartedLaunch:
        settings = self.settings.of(launch.planned.cell)
        if isinstance(settings, Reason):
            return UnstartedLaunch(launch.planned, settings)
        return self._make_ready(self._request(launch, settings), launch.environment, launch.data)

    def _probe(self, launches: Sequence[ReadyLaunch]) -> None:
        """Probe the ceilings of what these launches run on. A failed probe costs no cell. --resume tries it again if a
        launch is missing."""
        records = self.folder.records("probe")
        self.probed |= {record.key for record in records if record.ok}
        tries = Counter(record.key for record in records)
        probes = []
        for launch in launches:
            request = launch_requests.probing(self.plan, launch.request.cell, len(self.limits.cpus))
            if request.cell.key not in self.probed:
                self.probed.add(request.cell.key)
                request = replace(request, launch=1 + tries[request.cell.key])
                probes.append(self._make_ready(request, launch.environment))
        for _ in self._run("Probing", probes):
            pass

    def _run(self, label: str, launches: Sequence[ReadyLaunch]) -> Iterator[tuple[ReadyLaunch, Record]]:
        """Run one launch after the other. Save each record at once, then yield it."""
        if not launches:
            return
        with self.progress.task(label, total=len(launches), unit="launches") as task:
            for launch in launches:
                task.describe(launch.request.cell.key)
                self.folder.require_space()
                with interrupts.deferred():
                    record = run_launch(self.context, self._completed(launch), interrupts.pending)
                    self.folder.save(record)
                if _proves(record):
                    self.proven.add(record.key)
                yield launch, record
                if interrupts.pending():
                    raise KeyboardInterrupt
                self.progress.line(_describe(record))
                task.advance(1)
                if record.reason is not None and record.reason.code is Code.ENGINE_FAILED:
                    self._require_engine()

    def _completed(self, launch: ReadyLaunch) -> ReadyLaunch:
        """Return the launch with what the records made so far decide.

        If the first launch of a cell failed, the next one does the full proof.
        """
        cell = launch.request.cell
        if launch.request.purpose != "measure":
            return launch
        scenario = self.scenarios[cell.scenario][cell.variant]
        return replace(
            launch,
            request=replace(launch.request, full_proof=cell.key not in self.proven),
            max_rate=max_training_rate(best_ceilings(self.folder.records("probe")), cell, scenario),
        )

    def _require_engine(self) -> None:
        """Raise EngineError if the engine is lost, so that not every further launch fails for that reason."""
        try:
            self.engine.describe()
        except EngineError as error:
            remedy = f"{error.remedy} Then continue with `{self.folder.resume_command}`."
            raise EngineError(error.message, remedy) from error

    def _make_ready(self, request: Request, environment: Environment, data: ResolvedData | None = None) -> ReadyLaunch:
        """Return a launch that can start. data: None for a probe, which needs none.

        A launch sees only the GPUs that it computes on. So only these are sampled, and a container, which sorts its
        GPUs by their PCI bus, cannot compute on another one.
        """
        used = request.cell.devices if request.cell.device == "cuda" else 0
        return ReadyLaunch(
            request=request,
            environment=environment,
            limits=replace(self.limits, gpus=self.gpus[:used]),
            data=data.folder if data else None,
            data_note=data.note if data else "",
            work=self.folder.work(request),
            log=self.folder.log(request),
        )

    def _request(self, launch: ResolvedLaunch, settings: Mapping[str, str]) -> Request:
        threads = len(self.limits.cpus)
        return launch_requests.measuring(
            self.plan, launch.planned, launch.scenario, launch.data.kind, threads, settings
        )


def _proves(record: Record) -> bool:
    """Return whether this is an `ok` launch with the full proof."""
    return record.ok and record.purpose == "measure" and record.request is not None and record.request.full_proof


def _describe(record: Record) -> str:
    """Return one line about a finished launch."""
    result = record.result
    if result is None or record.reason is not None:
        return f"{record.key}: {record.status}" + (f", {record.reason.message}" if record.reason else "")
    if result.ceilings:
        products = [ceiling.value for ceiling in result.ceilings if ceiling.name == "matmul"]
        return record.key + "".join(f": {value / 1e9:,.0f} GFLOP/s in matrix products" for value in products)
    if result.tuning:
        return f"{record.key}: {tuned_settings.describe(result.tuning)}"
    assert result.training is not None
    return f"{record.key}: {result.training.images_per_s:,.0f} images/s"
