"""Define the plan of a run and the file of settings."""

from collections import Counter
from typing import Annotated, ClassVar, Self

from pydantic import AfterValidator, Field, model_validator

from kit.model.data_choice import DataChoice
from kit.model.document import Contract, Document, Items, Part
from kit.model.environment import EnvironmentKey
from scenarios.contract import allocators
from scenarios.contract.cell import Cell
from scenarios.contract.ranges import MAX_SEED

# Allowed ranges of the options' values. They also apply to the file of a plan, which may come from a stranger.
MIN_S, MAX_S = 1, 366 * 86400  # one second to one year
MIN_MEMORY_BYTES = 64 << 20  # numpy and OpenCV alone take 45 MiB in a worker; Docker's own minimum is 6 MiB
MAX_MEMORY_BYTES = 1 << 50
MAX_THREADS = 8192  # the maximum number of CPUs of a Linux kernel for x86-64 (NR_CPUS)
MAX_EPOCHS = 10_000  # the published numbers are 5 to 25
MAX_LAUNCHES = 10_000  # of a plan; at 10 s each, they take more than a day
MAX_ROUNDS = 1000
MAX_STUDIES = 100

# The id of a run is also the name of its folder and of files.
RunId = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}$")]
Epochs = Annotated[int, Field(ge=1, le=MAX_EPOCHS)]
Seconds = Annotated[float, Field(ge=MIN_S, le=MAX_S)]
# An image's id, or a hash of packages. It never names another place, because a plan may come from a stranger.
Digest = Annotated[str, Field(pattern=r"^(sha256:)?[0-9a-f]{1,64}$")]


def _check_settings(settings: dict[str, str]) -> dict[str, str]:
    allocators.check(settings)
    return settings


Settings = Annotated[dict[str, str], AfterValidator(_check_settings)]


class PlannedLaunch(Part):
    """One launch of a plan.

    launch: number among the launches of the cell, from 1. named: the user named this device, so a cell that cannot run
    is an error and not a skipped record. epochs: of the full profile, if a study or the run of --against trains
    another number than the scenario has; 0 to measure only the speed. Plan.epochs overrides every number but 0.
    """

    cell: Annotated[Cell, Contract(Cell)]
    launch: Annotated[int, Field(ge=1, le=MAX_LAUNCHES)]
    named: bool
    epochs: Annotated[int, Field(ge=0, le=MAX_EPOCHS)] | None = None

    @property
    def key(self) -> str:
        """Return the key of the cell."""
        return self.cell.key

    @property
    def name(self) -> str:
        """Return the key of the cell with the number of the launch."""
        return f"{self.key} #{self.launch}"

    @property
    def speed_only(self) -> bool:
        """Return whether the launch measures only the speed, even in the full profile."""
        return self.epochs == 0

    def epochs_in(self, wanted: int | None) -> int | None:
        """Return how many epochs the launch trains in the full profile.

        None means the scenario's number, and 0 that only the speed is measured. wanted: Plan.epochs.
        """
        return 0 if self.speed_only else wanted or self.epochs

    @property
    def environment_key(self) -> EnvironmentKey:
        """Return which environment the launch needs."""
        return self.cell.framework, self.cell.device


def block_of(cell: Cell) -> tuple[str, str]:
    """Return the scenario and the device of a cell. Cells that have the same ones are a block.

    In each round of a run, they run directly one after the other, in random order. So they can be compared in pairs.
    """
    return cell.label, cell.device_label


def _check_each_once(launches: list[PlannedLaunch]) -> list[PlannedLaunch]:
    counts = Counter(launch.name for launch in launches)
    if twice := [name for name, count in counts.items() if count > 1]:
        raise ValueError(f"the launch {twice[0]:.200} is there twice")
    return launches


class Plan(Document):
    """What a run will do, in order. It is written before the first launch, so --resume knows what is missing.

    run: id of the run. created_at: UTC, ISO 8601. environment: path of the interpreter of `--env`, or "". epochs: of
    the full profile; None for the published number. timeout_s: limit for one launch. memory_bytes, threads, gpus: None
    for what the machine has when the run starts. identify: whether records may name host and user. budget_s: limit for
    the duration of all launches, after which the standard profile adds no more; None for no limit. tune_s: duration of
    the search for a tuned cell's settings; None for the default, which depends on how fast processes start. pinned:
    settings of tuned cells for which no search is needed. against: id of the run that was measured in the same rounds,
    or None. rounds: number of launches of each cell, after which the standard profile adds no more; None for the number
    of the profile. environments: digest by `framework/device` of environments that an earlier run used and that this
    run uses again. The others are those of today's packages. keep_weights: whether launches with whole epochs keep the
    weights of their last and their best epoch. studies: names of the studies that the run repeats.
    """

    run: RunId
    created_at: str
    profile: str
    engine: str
    environment: str
    seed: Annotated[int, Field(ge=0, le=MAX_SEED)]
    data: DataChoice
    epochs: Epochs | None
    timeout_s: Seconds
    memory_bytes: Annotated[int, Field(ge=MIN_MEMORY_BYTES, le=MAX_MEMORY_BYTES)] | None
    threads: Annotated[int, Field(ge=1, le=MAX_THREADS)] | None
    gpus: str | None
    identify: bool
    launches: Annotated[Items[PlannedLaunch], Field(max_length=MAX_LAUNCHES), AfterValidator(_check_each_once)]
    budget_s: Seconds | None
    tune_s: Seconds | None
    pinned: dict[str, Settings]
    against: RunId | None = None
    rounds: Annotated[int, Field(ge=1, le=MAX_ROUNDS)] | None = None
    environments: dict[str, Digest] = Field(default_factory=dict)
    keep_weights: bool = True
    studies: Annotated[list[RunId], Field(max_length=MAX_STUDIES)] = Field(default_factory=list)

    def earlier_environment(self, key: EnvironmentKey) -> str | None:
        """Return the digest of the environment of an earlier run that the plan uses again, or None."""
        return self.environments.get("/".join(key))

    @model_validator(mode="after")
    def _pins_planned_cells(self) -> Self:
        tuned = {launch.key for launch in self.launches if launch.cell.lane == "tuned"}
        if unplanned := sorted(self.pinned.keys() - tuned):
            raise ValueError(f"pinned has {unplanned[0]!r:.200}, which is not a tuned cell of the plan")
        return self


class Pins(Document):
    """Settings by cell. `kit settings` writes this file and `kit run --settings` reads it."""

    noun: ClassVar[str] = "file of settings"
    remedy: ClassVar[str] = "Name a file that `kit settings` wrote."

    cells: dict[str, Settings] = Field(min_length=1)
