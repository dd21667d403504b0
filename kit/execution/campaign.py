"""A plan carried out: environments and data first, then one launch after the other, each leaving its record at once.

Whatever ends the process, what was measured is on disk, and `--resume` does the rest: the launches without a record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from kit.datasets.service import Source
from kit.engines.base import Engine
from kit.execution import launch_requests
from kit.execution.interrupts import Interrupts
from kit.execution.launch import Job, RunContext, record_without_launch, run_launch
from kit.execution.schedule import next_round
from kit.host import gpus, machine_lock
from kit.host.limits import choose_gpus, launch_limits
from kit.host.machine import usable_cpus
from kit.host.paths import cache_folder
from kit.model.environment import Environment, EnvironmentKey, Framework
from kit.model.errors import CorruptDataError, DataError, DiskError, EngineError, ImageError, Interrupted, unknown
from kit.model.machine import Machine
from kit.model.plan import Plan, PlannedLaunch
from kit.model.progress import Progress
from kit.model.record import Record, reason, tuning_of
from kit.planning import catalog
from kit.planning.catalog import find_scenario
from kit.planning.profiles import find_profile
from kit.storage.reference_cache import ReferenceCache
from kit.storage.run_folder import RunFolder
from kit.storage.tuning_cache import TuningCache
from scenarios.contract.reasons import Code, Reason, Status
from scenarios.contract.request import Request
from scenarios.contract.result import Tuning
from scenarios.spec import Scenario

DataKind = Literal["real", "synthetic"]
Resolve = Callable[[str, Literal["auto", "real", "synthetic"], Progress], Source]

MACHINE_CHANGED = "The machine or its software changed since this run began; see the machine in each record."
CAUSE_EXIT_CODES = {
    Code.ENGINE_FAILED: EngineError.exit_code,
    Code.IMAGE_FAILED: ImageError.exit_code,
    Code.DATA_UNAVAILABLE: DataError.exit_code,
    Code.DATA_CORRUPT: DataError.exit_code,
    Code.DISK_FULL: DiskError.exit_code,
}


def run_campaign(
    folder: RunFolder,
    engine: Engine,
    machine: Machine,
    resolve: Resolve,
    progress: Progress,
    *,
    retry_failed: bool = False,
) -> list[Record]:
    """Run what the folder's plan still lacks and return all records. For the main thread: it handles signals.

    machine: as it is now. resolve: `kit.datasets.resolve`. retry_failed: also repeat, as further launches, what ended
    neither `ok` nor skipped. Raises EngineError (another run measures; no GPU for a cell asked for by name; the engine
    is gone), DiskError, UsageError (a scenario that the catalogue has no more), Interrupted. Records made until then
    are kept.
    """
    interrupts = Interrupts()
    try:
        with interrupts.handled(), machine_lock.measuring(folder.plan.run):
            _Campaign(folder, engine, machine, resolve, progress, interrupts).run(retry_failed=retry_failed)
    except KeyboardInterrupt:
        raise Interrupted(
            "Interrupted. What was measured is kept.", f"Continue with `{folder.resume_command}`."
        ) from None
    return folder.records()


def require_startable(plan: Plan, machine: Machine, refused: Mapping[EnvironmentKey, str]) -> None:
    """Raise what would end a new run before its first launch, so that a run that cannot start leaves no folder.

    refused: see `refusals`. Raises EngineError (another run measures; a cell asked for by name cannot run here),
    UsageError (threads or GPUs that are not here).
    """
    _require_named(plan.launches, refused)
    launch_limits(plan, usable_cpus(), machine.memory_limit_bytes)
    choose_gpus(plan.gpus, gpus.gpus(identify=True), gpus.busy())
    with machine_lock.measuring(plan.run):
        pass


def refusals(plan: Plan, engine: Engine, frameworks: Mapping[str, Framework]) -> dict[EnvironmentKey, str]:
    """The (framework, device) pairs of the plan that cannot run here, and why. Raises UsageError for a framework that
    is no more."""
    found = {}
    for name, device in dict.fromkeys((launch.framework, launch.device) for launch in plan.launches):
        if name not in frameworks:
            raise unknown("framework", name, frameworks)
        framework = frameworks[name]
        offered = device in framework.devices
        why = engine.refusal(framework, device) if offered else f"{framework.title} is not offered on {device}."
        if why is not None:
            found[name, device] = why
    return found


def exit_code(plan: Plan, records: Sequence[Record]) -> int:
    """What the process ends with: 0 where each cell has as many `ok` launches as were planned, or was skipped without
    having been asked for: by name, or by settings that are not offered. Else 1; or the cause's own code where nothing
    is ok and all have that one cause."""
    ok = Counter(record.key for record in records if record.status is Status.OK)
    skipped = {record.key for record in records if record.status is Status.SKIPPED}
    not_offered = {record.key for record in records if record.reason and record.reason.code is Code.NOT_OFFERED}
    wanted = Counter(launch.key for launch in plan.launches)
    named = {launch.key for launch in plan.launches if launch.named} | (not_offered & plan.pinned.keys())
    if all(ok[key] >= count or (key in skipped and key not in named) for key, count in wanted.items()):
        return 0
    causes = {record.reason.code for record in records if record.reason and record.status is not Status.SKIPPED}
    codes = {CAUSE_EXIT_CODES.get(cause, 1) for cause in causes}
    return codes.pop() if len(codes) == 1 and not ok else 1


class _Campaign:
    """One go at a plan, under the machine's lock."""

    def __init__(
        self,
        folder: RunFolder,
        engine: Engine,
        machine: Machine,
        resolve: Resolve,
        progress: Progress,
        interrupts: Interrupts,
    ) -> None:
        self.folder, self.plan, self.engine, self.resolve = folder, folder.plan, engine, resolve
        self.progress, self.interrupts = progress, interrupts
        self.frameworks = catalog.frameworks()
        self.scenarios = catalog.scenarios()
        self.profile = find_profile(self.plan.profile)
        self.sources: dict[str, Source] = {}
        self.no_source: dict[str, Reason] = {}
        self.environments: dict[EnvironmentKey, Environment] = {}
        self.no_environment: dict[EnvironmentKey, Reason] = {}
        self.probed: set[str] = set()
        self.settings: dict[str, dict[str, str]] = dict(self.plan.pinned)
        self.no_settings: dict[str, Reason] = {}
        self.tunings = TuningCache(cache_folder() / "tuning", machine, self.plan)
        self.limits = launch_limits(self.plan, usable_cpus(), machine.memory_limit_bytes)
        self.gpus = choose_gpus(self.plan.gpus, gpus.gpus(identify=True), gpus.busy())
        self.setting = RunContext(
            run=self.plan.run,
            profile=self.plan.profile,
            identify=self.plan.identify,
            machine=machine,
            engine=engine,
            references=ReferenceCache(cache_folder() / "reference"),
            warnings=() if machine.id == folder.machine.id else (MACHINE_CHANGED,),
        )

    def run(self, *, retry_failed: bool) -> None:
        """All steps, in order."""
        self.folder.clean()
        for leftover in self.engine.sweep(lambda run: False):  # the lock is ours: no other run is alive
            self.progress.line(f"Removed what a dead run left: {leftover}")
        for launches in self._rounds(retry_failed=retry_failed):
            ready = self._with_environments(self._with_data(self._without_refused(launches)))
            tuned = self._with_settings(ready)
            if self.profile.ceilings:
                self._probe(tuned)
            self._measure(tuned)

    def _rounds(self, *, retry_failed: bool) -> Iterator[list[PlannedLaunch]]:
        """What the plan still lacks, then round by round what a precise profile asks for in view of the records."""
        lacking = self.folder.missing() + (self.folder.retries() if retry_failed else [])
        if lacking:
            yield lacking
        while self.profile.precise and (launches := next_round(self.plan, self.folder.records())):
            yield launches

    def _without_refused(self, launches: list[PlannedLaunch]) -> list[PlannedLaunch]:
        """Those that can run here; the others get `skipped` records, or end it all where they were asked for."""
        refused = refusals(self.plan, self.engine, self.frameworks)
        _require_named(launches, refused)
        causes = {place: self._skip_reason(place, why) for place, why in refused.items()}
        return self._settle(launches, lambda launch: causes.get((launch.framework, launch.device)))

    def _skip_reason(self, place: EnvironmentKey, why: str) -> Reason:
        framework, device = self.frameworks[place[0]], place[1]
        if device not in framework.devices:
            return reason(Code.NOT_OFFERED, why, "Nothing: the framework has no such environment.")
        if device == "cuda" and not self.setting.machine.gpus:
            return reason(Code.NO_DEVICE, why, "Run on a machine with an NVIDIA GPU; kit doctor looks for one.")
        if self.plan.environment:
            return reason(Code.NOT_OFFERED, why, "Name another interpreter by --env, or leave --env out.")
        code = Code.NOT_OFFERED if gpus.refusal(framework) else Code.NO_GPU_RUNTIME
        return reason(code, why, "kit doctor looks into driver, toolkit and engine.")

    def _with_data(self, launches: list[PlannedLaunch]) -> list[PlannedLaunch]:
        """The launches whose data set is here. A continued run keeps the kind of data it began with."""
        earlier = {record.key: record for record in self.folder.records() if record.image}
        begun = {self._scenario(x).dataset: earlier[x.key] for x in self.plan.launches if x.key in earlier}
        for launch in launches:
            name = self._scenario(launch).dataset
            if name in self.sources or name in self.no_source:
                continue
            if name in begun and begun[name].request.data == "synthetic":
                self.sources[name] = Source("synthetic", None, begun[name].data_note)
                continue
            try:
                self.sources[name] = self.resolve(name, "real" if name in begun else self.plan.data, self.progress)
            except DataError as error:
                code = Code.DATA_CORRUPT if isinstance(error, CorruptDataError) else Code.DATA_UNAVAILABLE
                self.no_source[name] = reason(code, error.message, error.remedy)
        return self._settle(launches, lambda launch: self.no_source.get(self._scenario(launch).dataset))

    def _with_environments(self, launches: list[PlannedLaunch]) -> list[PlannedLaunch]:
        """The launches whose environment could be made. All are made before anything is measured, so that measuring
        has the machine to itself."""
        for place in dict.fromkeys((launch.framework, launch.device) for launch in launches):
            if place in self.environments or place in self.no_environment:
                continue
            framework, device = place
            try:
                self.environments[place] = self.engine.prepare(self.frameworks[framework], device, self.progress)
            except ImageError as error:
                self.progress.line(f"{framework} {device}: {error}")
                self.no_environment[place] = reason(Code.IMAGE_FAILED, error.message, error.remedy)
        return self._settle(launches, lambda launch: self.no_environment.get((launch.framework, launch.device)))

    def _settle(
        self, launches: list[PlannedLaunch], cause_of: Callable[[PlannedLaunch], Reason | None]
    ) -> list[PlannedLaunch]:
        """Leave a record for each launch that has a cause not to run; the others."""
        left = []
        for launch in launches:
            cause = cause_of(launch)
            if cause is None:
                left.append(launch)
            else:
                kind: DataKind = "synthetic" if self.plan.data == "synthetic" else "real"
                self.folder.save(record_without_launch(self.setting, self._request(launch, kind), cause))
        return left

    def _with_settings(self, launches: list[PlannedLaunch]) -> list[PlannedLaunch]:
        """The launches whose settings are known: stock's, those that were pinned, and those that a search finds, here
        or in an earlier run. A search that fails takes its cell with it; --resume --retry-failed tries it again."""
        records = self.folder.tunings()
        found = {record.key: tuning_of(record).settings for record in records if record.status is Status.OK}
        self.settings = found | self.settings
        tried = Counter(record.key for record in records)
        wanted = {launch.key: launch for launch in launches if launch.lane == "tuned"}
        unknown = [wanted[key] for key in wanted if key not in self.settings and key not in self.no_settings]
        searches = [self._search(launch, 1 + tried[launch.key]) for launch in unknown]
        self._run("Tuning", [job for job in searches if job], self._take_settings)
        return self._settle(launches, lambda launch: self.no_settings.get(launch.key))

    def _search(self, launch: PlannedLaunch, number: int) -> Job | None:
        """What finds the settings of a cell; None where an earlier run on this machine has. number: of tries."""
        source = self.sources[self._scenario(launch).dataset]
        request = launch_requests.tuning(self._request(launch, source.kind), number, self.plan.tune_s)
        known = None if number > 1 else self.tunings.find(request, self.environments[launch.framework, launch.device])
        if known is None:
            return self._job(request, source)
        self.folder.save(known)
        self.settings[launch.key] = tuning_of(known).settings
        self.progress.line(f"{launch.key}: as found before ({known.started_at}): {_found(tuning_of(known))}")
        return None

    def _take_settings(self, record: Record) -> None:
        if record.status is not Status.OK:
            assert record.reason is not None
            self.no_settings[record.key] = record.reason
            return
        self.settings[record.key] = tuning_of(record).settings
        if tuning_of(record).broken:
            return
        try:
            self.tunings.keep(record, self.environments[record.request.framework, record.request.device])
        except OSError as error:
            self.progress.line(f"{record.key}: settings could not be kept for later runs: {error}")

    def _probe(self, launches: Sequence[PlannedLaunch]) -> None:
        """The ceilings of what these launches run on. A probe that fails costs no cell; --resume tries it again."""
        records = self.folder.probes()
        self.probed |= {record.key for record in records if record.status is Status.OK}
        tried = Counter(record.key for record in records)
        jobs = []
        for launch in launches:
            request = launch_requests.probing(self.plan, launch, len(self.limits.cpus))
            if request.key not in self.probed:
                self.probed.add(request.key)
                jobs.append(self._job(replace(request, launch=1 + tried[request.key])))
        self._run("Probing", jobs)

    def _measure(self, launches: Sequence[PlannedLaunch]) -> None:
        jobs = []
        for launch in launches:
            source = self.sources[self._scenario(launch).dataset]
            jobs.append(self._job(self._request(launch, source.kind), source))
        self._run("Measuring", jobs)

    def _run(self, label: str, jobs: Sequence[Job], take: Callable[[Record], None] = lambda record: None) -> None:
        """One launch after the other, each leaving its record at once."""
        if not jobs:
            return
        with self.progress.task(label, total=len(jobs), unit="launches") as task:
            for job in jobs:
                task.describe(job.request.key)
                self.folder.require_space()
                with self.interrupts.deferred():
                    record = run_launch(self.setting, job, self.interrupts.pending)
                    self.folder.save(record)
                take(record)
                if self.interrupts.pending():
                    raise KeyboardInterrupt
                self.progress.line(_told(record))
                task.advance(1)
                if record.reason is not None and record.reason.code is Code.ENGINE_FAILED:
                    self._require_engine()

    def _require_engine(self) -> None:
        """Raise EngineError where the engine failed for good, so that not every further launch fails of it."""
        try:
            self.engine.describe()
        except EngineError as error:
            remedy = f"{error.remedy} Then continue with `{self.folder.resume_command}`."
            raise EngineError(error.message, remedy) from error

    def _job(self, request: Request, source: Source | None = None) -> Job:
        """source: None for a probe, which needs no data."""
        return Job(
            request=request,
            environment=self.environments[request.framework, request.device],
            limits=replace(self.limits, gpus=self.gpus if request.device == "cuda" else ()),
            data=source.folder if source and source.kind == "real" else None,
            data_note=source.note if source else "",
            work=self.folder.work(request),
            log=self.folder.log(request),
        )

    def _request(self, launch: PlannedLaunch, data: DataKind) -> Request:
        settings = self.settings.get(launch.key, {})
        return launch_requests.measuring(
            self.plan, launch, self._scenario(launch), data, len(self.limits.cpus), settings
        )

    def _scenario(self, launch: PlannedLaunch) -> Scenario:
        return find_scenario(launch, self.scenarios)


def _require_named(launches: Sequence[PlannedLaunch], refused: Mapping[EnvironmentKey, str]) -> None:
    for launch in launches:
        if launch.named and (why := refused.get((launch.framework, launch.device))):
            raise EngineError(
                f"{launch.framework} cannot run on {launch.device} here: {why}",
                "Leave --device out: then such cells are skipped. kit doctor looks into GPU and engine.",
            )


def _found(tuning: Tuning) -> str:
    if tuning.broken:
        return f"as in stock, and searched anew in the next run, since this search broke off: {tuning.broken}"
    if tuning.settings:
        return ", ".join(f"{name} {value}" for name, value in tuning.settings.items())
    short = f"; there was no time for {tuning.untried} values, a longer --tune tries them" if tuning.untried else ""
    return f"nothing is faster than stock beyond doubt{short}"


def _told(record: Record) -> str:
    """One line on a launch that ended."""
    if record.result is not None and record.result.ceilings and record.status is Status.OK:
        products = [c.value for c in record.result.ceilings if c.name == "matmul"]
        return record.key + "".join(f": {value / 1e9:,.0f} GFLOP/s in matrix products" for value in products)
    if record.request.purpose == "tune" and record.status is Status.OK:
        return f"{record.key}: {_found(tuning_of(record))}"
    if record.result is not None and record.result.training is not None and record.status is Status.OK:
        return f"{record.key}: {record.result.training.images_per_s:,.0f} images/s"
    return f"{record.key}: {record.status}" + (f", {record.reason.message}" if record.reason else "")
