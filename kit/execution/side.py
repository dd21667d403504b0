"""Turn the planned launches of one run folder into launches that can start. A campaign measures one folder, or two in
the same rounds."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeGuard, TypeVar

from kit.analysis.ceilings import best_ceilings, max_training_rate
from kit.datasets.service import ResolvedData
from kit.execution import launch_requests
from kit.execution.epoch_watch import OnEpoch
from kit.execution.launch import ReadyLaunch, RunContext, UnstartedLaunch, run_launch, unstarted_record
from kit.execution.resolve import ResolvedLaunch, Resolver
from kit.execution.tuned_settings import TunedSettings
from kit.model.environment import Environment
from kit.model.launch import Limits
from kit.model.machine import Gpu
from kit.model.plan import PlannedLaunch
from kit.model.record import Record
from kit.planning import catalog
from kit.storage.files import disk_errors
from kit.storage.kept_files import remove_checkpoints
from kit.storage.run_folder import RunFolder
from scenarios.catalog import scenario_of
from scenarios.contract.cell import Cell
from scenarios.contract.reasons import Reason
from scenarios.contract.request import Request

T = TypeVar("T")

BATCHES_AHEAD = 3  # of each worker of PyTorch's DataLoader: two prefetched ones, and one that is being made
FLOAT32_BYTES = 4


@dataclass
class Side:
    """One run folder of a campaign, with its environments and settings.

    gpus: all GPUs that launches may use. gpu: the first one, on which cells compute; None if it is unknown. probed:
    keys of the probes that are done.
    """

    folder: RunFolder
    context: RunContext
    resolver: Resolver
    settings: TunedSettings
    limits: Limits
    gpus: tuple[str, ...]
    gpu: Gpu | None = None
    probed: set[str] = field(default_factory=set)

    def resolve(self, launches: Sequence[PlannedLaunch]) -> list[ResolvedLaunch]:
        """Resolve launches, see `Resolver.resolve`. Save the record of each one that cannot start."""
        return [each for each in self.resolver.resolve(launches) if self._can_start(each)]

    def searches(self, launches: Sequence[ResolvedLaunch]) -> list[ReadyLaunch]:
        """Return the searches for the settings of the tuned cells that have none yet."""
        return [
            self._make_ready(request, launch.environment, launch.data)
            for launch in self.settings.missing(launches)
            if (request := self.settings.look_up(self._request(launch, {}), launch.environment))
        ]

    def ready(self, launches: Sequence[ResolvedLaunch]) -> list[ReadyLaunch]:
        """Return the launches with their settings. Save the record of each one whose search failed."""
        return [ready for launch in launches if self._can_start(ready := self._with_settings(launch))]

    def probes(self, launches: Sequence[ReadyLaunch]) -> list[ReadyLaunch]:
        """Return the probes of the ceilings of what these launches run on. A failed probe costs no cell. --resume tries
        it again if a launch is missing."""
        records = self.folder.records("probe")
        self.probed |= {record.key for record in records if record.ok}
        tries = Counter(record.key for record in records)
        probes = []
        for launch in launches:
            request = launch_requests.probing(self.folder.plan, launch.request.cell, len(self.limits.cpus))
            if request.cell.key not in self.probed:
                self.probed.add(request.cell.key)
                request = replace(request, launch=1 + tries[request.cell.key])
                probes.append(self._make_ready(request, launch.environment))
        return probes

    def run(self, launch: ReadyLaunch, stopped: Callable[[], bool], on_epoch: OnEpoch) -> Record:
        """Run a launch, see `run_launch`, and save its record. If it is ok, remove its checkpoints then.

        The first launch of a cell does the full proof. If it fails, the next one does.
        """
        # Only now: of two retries, the first one takes the checkpoints of the failed launch.
        launch = replace(launch, kept=self.folder.kept(launch.request))
        if launch.request.purpose == "measure":
            cell = launch.request.cell
            scenario = scenario_of(cell, catalog.scenarios())
            assert scenario is not None, "the launch was resolved with it"
            launch = replace(
                launch,
                request=replace(launch.request, full_proof=cell.key not in self._proven),
                max_rate=max_training_rate(best_ceilings(self.folder.records("probe")), cell, scenario),
            )
        record = run_launch(self.context, launch, stopped, on_epoch)
        self.folder.save(record)
        if record.ok:
            with disk_errors(launch.kept.checkpoints):
                remove_checkpoints(launch.kept.checkpoints)
        if _has_full_proof(record):
            self._proven.add(record.key)
        return record

    @cached_property
    def _proven(self) -> set[str]:
        """Return the keys of the cells that a launch of this run proved in full."""
        return {record.key for record in self.folder.records() if _has_full_proof(record)}

    def _can_start(self, launch: T | UnstartedLaunch) -> TypeGuard[T]:
        """Save the record of a launch that cannot start."""
        if isinstance(launch, UnstartedLaunch):
            self.folder.save(unstarted_record(self.context, launch))
            return False
        return True

    def _with_settings(self, launch: ResolvedLaunch) -> ReadyLaunch | UnstartedLaunch:
        settings = self.settings.of(launch.planned.cell)
        if isinstance(settings, Reason):
            return UnstartedLaunch(launch.planned, settings)
        return self._make_ready(self._request(launch, settings), launch.environment, launch.data)

    def _make_ready(self, request: Request, environment: Environment, data: ResolvedData | None = None) -> ReadyLaunch:
        """Return a launch that can start. data: None for a probe, which needs none.

        A launch sees only the GPUs that it computes on. So only these are sampled, and a container, which sorts its
        GPUs by their PCI bus, cannot compute on another one.
        """
        used = request.cell.devices if request.cell.device == "cuda" else 0
        return ReadyLaunch(
            request=request,
            environment=environment,
            limits=replace(
                self.limits,
                gpus=self.gpus[:used],
                shm_bytes=max(self.limits.shm_bytes, _loaded_bytes(request.cell)),
            ),
            data=data.folder if data else None,
            data_note=data.note if data else "",
            work=self.folder.work(request),
            log=self.folder.log(request),
            kept=self.folder.kept(request),  # `run` looks again
        )

    def _request(self, launch: ResolvedLaunch, settings: Mapping[str, str]) -> Request:
        on_gpu = launch.planned.cell.device == "cuda"
        return launch_requests.measuring(
            self.folder.plan,
            launch.planned,
            launch.scenario,
            launch.data.kind,
            len(self.limits.cpus),
            settings,
            launch.environment.digest,
            self.gpu.digest(self.folder.plan.run) if on_gpu and self.gpu else "",
        )


def _loaded_bytes(cell: Cell) -> int:
    """Return the bytes of the batches that a cell's requested loader workers hold in shared memory, 0 without any."""
    scenario = scenario_of(cell, catalog.scenarios())
    if scenario is None or cell.workers is None:
        return 0
    return cell.workers * BATCHES_AHEAD * cell.batch * FLOAT32_BYTES * math.prod(scenario.image)


def _has_full_proof(record: Record) -> bool:
    return record.ok and record.purpose == "measure" and record.request is not None and record.request.full_proof
