"""Resolve planned launches: find or make the environment and the data of each, or say why it cannot start."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kit.datasets.service import ResolvedData
from kit.engines.base import Engine
from kit.execution.launch import UnstartedLaunch
from kit.host import gpu_choice, gpus
from kit.model.data_choice import DataChoice
from kit.model.environment import Environment, EnvironmentKey, Framework
from kit.model.errors import CorruptDataError, DataError, EngineError, ImageError, unknown
from kit.model.machine import Gpu, Machine
from kit.model.plan import Plan, PlannedLaunch
from kit.model.progress import Progress
from kit.model.record import Record
from kit.planning import catalog
from scenarios.contract.cell import Device
from scenarios.contract.reasons import Code, Reason
from scenarios.spec import Scenario

# Ampere. Source: NVIDIA, CUDA C++ Programming Guide, "Feature Support per Compute Capability"
TF32_CAPABILITY = (8, 0)

FindData = Callable[[str, DataChoice, Progress], ResolvedData]


@dataclass(frozen=True)
class ResolvedLaunch:
    """A planned launch whose environment and data are here."""

    planned: PlannedLaunch
    scenario: Scenario
    environment: Environment
    data: ResolvedData


def refusals(plan: Plan, engine: Engine, frameworks: Mapping[str, Framework]) -> dict[EnvironmentKey, str]:
    """Return the environments of the plan that cannot run here, and why.

    Raise UsageError if the plan has a framework that does not exist.
    """
    found = {}
    for name, device in dict.fromkeys(launch.environment_key for launch in plan.launches):
        if name not in frameworks:
            raise unknown("framework", name, frameworks)
        framework = frameworks[name]
        offered = device in framework.devices
        why = engine.refusal(framework, device) if offered else f"{framework.title} is not offered on {device}."
        if why is None and device == "cuda" and plan.gpus is None and (hidden := gpu_choice.hidden()):
            why = hidden.message
        if why is not None:
            found[name, device] = why
    return found


def require_named(launches: Sequence[PlannedLaunch], refused: Mapping[EnvironmentKey, str]) -> None:
    """Raise EngineError if a launch on a device that the user named cannot run here."""
    for launch in launches:
        if launch.named and (why := refused.get(launch.environment_key)):
            raise EngineError(
                f"{launch.cell.framework} cannot run on {launch.cell.device} here: {why}",
                "Omit --device to skip such cells. `kit doctor` checks GPU and engine.",
            )


def find_earlier(engine: Engine, framework: Framework, device: Device, digest: str) -> Environment:
    """Return the environment with this digest, which an earlier run used. Raise ImageError if it no longer exists."""
    if found := engine.find(framework, device, digest):
        return found
    raise ImageError(
        f"The environment of {framework.title} on {device} that the earlier run used is gone: {digest}.",
        "Build it again with the kit version of that run, or select other frameworks. If it was an interpreter whose "
        "packages have not changed since, name it with --env.",
    )


class DataSets:
    """The data sets of a run, or of two runs that are measured together. Each one is looked up once.

    kind: what the user asked for. found: each data set that was looked up, or why it is not available.
    """

    def __init__(self, plan: Plan, find_data: FindData, records: Sequence[Record], progress: Progress) -> None:
        """Start with the records of earlier launches: a resumed run keeps the kind of data that it began with."""
        self.kind, self._find, self._progress = plan.data, find_data, progress
        self.found: dict[str, ResolvedData | Reason] = {}
        scenarios = catalog.scenarios()
        started = {record.key: record for record in records if record.image and record.request}
        self._begun = {
            catalog.find_scenario(launch, scenarios).dataset: started[launch.key]
            for launch in plan.launches
            if launch.key in started
        }

    def find(self, name: str) -> ResolvedData | Reason:
        """Return a data set, or why it is not available."""
        if name not in self.found:
            self.found[name] = self._look_up(name)
        return self.found[name]

    def _look_up(self, name: str) -> ResolvedData | Reason:
        begun = self._begun.get(name)
        if begun is not None and begun.synthetic:
            return ResolvedData("synthetic", None, begun.data_note)
        try:
            return self._find(name, "real" if begun else self.kind, self._progress)
        except DataError as error:
            code = Code.DATA_CORRUPT if isinstance(error, CorruptDataError) else Code.DATA_UNAVAILABLE
            return Reason.of(code, error.message, error.remedy)


class Resolver:
    """Resolve the launches of one run. Each environment is looked up or made once.

    environments: each environment that was asked for, or why it cannot be made.
    """

    def __init__(
        self, plan: Plan, engine: Engine, machine: Machine, gpu: Gpu | None, data: DataSets, progress: Progress
    ) -> None:
        """gpu: the first GPU of CUDA launches, None if it is unknown."""
        self._plan, self._engine, self._machine, self._progress = plan, engine, machine, progress
        self._gpu = gpu
        self._data = data
        self._frameworks = catalog.frameworks()
        self._scenarios = catalog.scenarios()
        self._refused = refusals(plan, engine, self._frameworks)
        self.environments: dict[EnvironmentKey, Environment | Reason] = {}

    def resolve(self, launches: Sequence[PlannedLaunch]) -> list[ResolvedLaunch | UnstartedLaunch]:
        """Resolve launches. All of this happens before anything is measured, so that measuring has the machine alone.

        Raise EngineError if a launch on a device that the user named cannot run here.
        """
        require_named(launches, self._refused)
        return [self._resolve(launch) for launch in launches]

    def data_sets(self, launches: Sequence[PlannedLaunch]) -> list[str]:
        """Return the names of the data sets that these launches need.

        Raise EngineError if a launch on a device that the user named cannot run here.
        """
        require_named(launches, self._refused)
        return [*dict.fromkeys(self._scenario(launch).dataset for launch in launches if self._refusal(launch) is None)]

    def missing(self, launches: Sequence[PlannedLaunch]) -> dict[EnvironmentKey, bool]:
        """Return the environments that launches with data need and that were not asked for yet. The value says whether
        the environment exists. Raise EngineError."""
        needed = dict.fromkeys(
            launch.environment_key
            for launch in launches
            if self._refusal(launch) is None
            and isinstance(self._data.find(self._scenario(launch).dataset), ResolvedData)
        )
        return {key: self._exists(key) for key in needed if key not in self.environments}

    def _exists(self, key: EnvironmentKey) -> bool:
        earlier = self._plan.earlier_environment(key) is not None
        return earlier or self._engine.ready(self._frameworks[key[0]], key[1])

    def _scenario(self, launch: PlannedLaunch) -> Scenario:
        return catalog.find_scenario(launch, self._scenarios)

    def _refusal(self, launch: PlannedLaunch) -> Reason | None:
        """Return why the launch cannot run on this machine, None if it can."""
        if why := self._refused.get(launch.environment_key):
            return self._skip_reason(launch.environment_key, why)
        if launch.cell.device == "cuda" and self._gpu:
            return self._gpu_reason(launch, self._gpu)
        return None

    def _resolve(self, launch: PlannedLaunch) -> ResolvedLaunch | UnstartedLaunch:
        if reason := self._refusal(launch):
            return UnstartedLaunch(launch, reason)
        scenario = self._scenario(launch)
        data = self._data.find(scenario.dataset)
        if isinstance(data, Reason):
            return UnstartedLaunch(launch, data)
        environment = self.environment(launch.environment_key)
        if isinstance(environment, Reason):
            return UnstartedLaunch(launch, environment)
        return ResolvedLaunch(launch, scenario, environment, data)

    def _skip_reason(self, key: EnvironmentKey, why: str) -> Reason:
        framework, device = self._frameworks[key[0]], key[1]
        if device not in framework.devices:
            return Reason.of(Code.NOT_OFFERED, why)
        if (hidden := gpu_choice.hidden()) and why == hidden.message:
            return Reason.of(Code.NO_DEVICE, why, hidden.remedy)
        if device == "cuda" and not self._machine.gpus:
            return Reason.of(Code.NO_DEVICE, why)
        if self._plan.environment:
            return Reason.of(Code.NOT_OFFERED, why, "Name another interpreter with --env, or omit --env.")
        return Reason.of(Code.NOT_OFFERED if gpus.refusal(framework) else Code.NO_GPU_RUNTIME, why)

    def _gpu_reason(self, launch: PlannedLaunch, gpu: Gpu) -> Reason | None:
        """Return why the GPU cannot run this launch, None if it can. The code in a named interpreter is unknown."""
        own = gpu.compute_capability
        if launch.cell.precision == "tf32" and own is not None and own < TF32_CAPABILITY:
            have, need = (".".join(map(str, version)) for version in (own, TF32_CAPABILITY))
            return Reason.of(
                Code.NOT_OFFERED,
                f"TF32 needs compute capability {need} or newer, but GPU {gpu.index} ({gpu.name}) has {have}.",
                "Use --precision fp32, or choose another GPU with --gpus.",
            )
        lack = gpus.lack_of(gpu, self._frameworks[launch.cell.framework], self._machine.cuda_driver)
        if lack is None or self._plan.environment:
            return None
        return Reason.of(Code.NOT_OFFERED, lack[0], "Choose another GPU with --gpus.")

    def environment(self, key: EnvironmentKey) -> Environment | Reason:
        """Return an environment. Make it if necessary. Return the reason if that fails."""
        if key not in self.environments:
            self.environments[key] = self._make_environment(key)
        return self.environments[key]

    def _make_environment(self, key: EnvironmentKey) -> Environment | Reason:
        framework, device = self._frameworks[key[0]], key[1]
        try:
            if digest := self._plan.earlier_environment(key):
                return find_earlier(self._engine, framework, device, digest)
            return self._engine.prepare(framework, device, self._progress)
        except ImageError as error:
            self._progress.log(f"{framework.name} {device}: {error}")
            return Reason.of(Code.IMAGE_FAILED, error.message, error.remedy)
