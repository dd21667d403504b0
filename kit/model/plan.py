"""Define the plan of a run and the file of settings."""

from collections import Counter
from typing import Annotated, ClassVar, Self

from pydantic import AfterValidator, Field, PositiveFloat, PositiveInt, model_validator

from kit.model.data_choice import DataChoice
from kit.model.document import Contract, Document, Part
from kit.model.environment import EnvironmentKey
from scenarios.contract import allocators
from scenarios.contract.cell import Cell
from scenarios.contract.ranges import MAX_SEED, MAX_TIME

Seconds = Annotated[PositiveFloat, Field(le=MAX_TIME)]


def _check_settings(settings: dict[str, str]) -> dict[str, str]:
    allocators.check(settings)
    return settings


Settings = Annotated[dict[str, str], AfterValidator(_check_settings)]


class PlannedLaunch(Part):
    """One launch of a plan.

    launch: number among the launches of the cell, from 1. named: the user named this device, so a cell that cannot run
    is an error and not a skipped record.
    """

    cell: Annotated[Cell, Contract(Cell)]
    launch: PositiveInt
    named: bool

    @property
    def key(self) -> str:
        """Return the key of the cell."""
        return self.cell.key

    @property
    def environment_key(self) -> EnvironmentKey:
        """Return which environment the launch needs."""
        return self.cell.framework, self.cell.device


class Plan(Document):
    """What a run will do, in order. It is written before the first launch, so --resume knows what is missing.

    run: id of the run. created_at: UTC, ISO 8601. environment: the interpreter of `--env`, or "". epochs: of the full
    profile; None for the published number. timeout_s: limit for one launch. memory_bytes, threads, gpus: None for what
    the machine has when the run starts. identify: whether records may name host and user. budget_s: limit for the
    duration of all launches, after which the standard profile adds no more; None for no limit. tune_s: duration of the
    search for a tuned cell's settings. pinned: settings of cells for which no search is needed.
    """

    run: str
    created_at: str
    profile: str
    engine: str
    environment: str
    seed: Annotated[int, Field(ge=0, le=MAX_SEED)]
    data: DataChoice
    epochs: PositiveInt | None
    timeout_s: Seconds
    memory_bytes: PositiveInt | None
    threads: PositiveInt | None
    gpus: str | None
    identify: bool
    launches: list[PlannedLaunch]
    budget_s: Seconds | None
    tune_s: Seconds
    pinned: dict[str, Settings]

    @model_validator(mode="after")
    def _each_launch_once(self) -> Self:
        counts = Counter((launch.key, launch.launch) for launch in self.launches)
        if twice := [f"{key} #{number}" for (key, number), count in counts.items() if count > 1]:
            raise ValueError(f"it has the launch {twice[0]} twice")
        return self


class Pins(Document):
    """Settings by cell. `kit settings` writes this file and `kit run --settings` reads it."""

    noun: ClassVar[str] = "file of settings"
    remedy: ClassVar[str] = "Name a file that `kit settings` wrote."

    cells: dict[str, Settings] = Field(min_length=1)
